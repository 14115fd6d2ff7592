//! Connections that mockttp breaks on purpose, and its certificate, which is untrusted unless configured.

use cofferdam::FailureClass;
use cofferdam_test_support::services::Faults;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, package};
use serde_json::json;

use super::fixture::tools;
use crate::COFFERDAM;
use crate::shared_host::{example, failed, run};

#[test]
fn unknown_authority_reset_and_close_differ() {
    let Some(tools) = tools() else { return };
    let faults = Faults::start(&tools);
    let host_port = faults.server().host_port();
    let bytes = package::guest_package("probe", std::slice::from_ref(&host_port));
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let strict = home.builder().allow_private(&host_port).build().unwrap();
    run(strict.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    let fetch = |path: &str| json!({"url": format!("https://{host_port}{path}")});
    let failure = failed(run(strict.call(&example("probe"), "fetch", fetch("/text"))));
    let found = (failure.class(), &failure.details()["phase"], &failure.details()["request_sent"]);
    assert_eq!(found, (FailureClass::NetworkError, &json!("tls"), &json!(false)), "{failure}");

    let builder = home.builder().allow_private(&host_port).extra_root_pem(faults.authority_pem());
    let trusting = builder.build().unwrap();
    let call = |path: &str| run(trusting.call(&example("probe"), "fetch", fetch(path)));
    assert_eq!(call("/text").unwrap()["body"], "text");
    for path in ["/reset", "/close"] {
        let failure = failed(call(path));
        let found = (failure.class(), &failure.details()["phase"], &failure.details()["request_sent"]);
        assert_eq!(found, (FailureClass::NetworkError, &json!("response"), &json!(true)), "{path} {failure}");
        assert!(failure.retriable(), "{path} {failure}");
    }
    let limits = cofferdam_core::limits::LimitRequest::parse(None, Some("2s"), None).unwrap();
    let hanging = cofferdam::Call::new(example("probe"), "fetch", fetch("/hang")).limits(limits);
    let failure = failed(run(trusting.run(hanging)).outcome);
    assert_eq!(failure.class(), FailureClass::ResourceLimitExceeded, "{failure}");
}
