//! Tokens from a real authorisation server, on their way to httpbin, which wants credentials and repeats them.

use cofferdam::{Error, FailureClass, Host};
use cofferdam_egress::vault::{Binding, SecretMaterial};
use cofferdam_test_support::services::{OAuth, Server, httpbin};
use cofferdam_test_support::vault::{binding, oauth, secret};
use cofferdam_test_support::{Home, InstallAccepted as _, MemoryVault, Signer, package};
use serde_json::{Value, json};

use super::fixture::tools;
use crate::COFFERDAM;
use crate::envelope;
use crate::shared_host::{example, failed, run};

/// A host with the probe, which is granted httpbin and requires one credential.
struct Echo {
    bin: Server,
    host: Host,
    _home: Home,
}

/// The grant of httpbin makes a binding, for a connector of this name.
fn echo(bin: Server, kind: &str, reached: &[String], bind: impl Fn(&[&str], &[String]) -> Binding) -> Echo {
    let grant = [format!("http://{}", bin.host_port())];
    let manifest = package::with_hosts(&package::guest_manifest("probe"), &grant);
    let credential =
        format!("[[capabilities.credential]]\nkind = \"{kind}\"\nservice = \"bin\"\nhosts = {grant:?}\n");
    let bytes = package::pack(&package::guest("probe"), &format!("{manifest}\n{credential}"));
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let vault = MemoryVault::with([bind(&["github://cofferdam/probe"], &grant)]);
    let mut builder = home.builder().vault(vault).allow_private(bin.host_port());
    for host_port in reached {
        builder = builder.allow_private(host_port);
    }
    let host = builder.build().unwrap();
    run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    Echo { bin, host, _home: home }
}

impl Echo {
    async fn get(&self, path: &str) -> Result<Value, Error> {
        let url = format!("http://{}{path}", self.bin.host_port());
        self.host.call(&example("probe"), "fetch", json!({ "url": url })).await
    }
}

#[test]
fn a_token_is_fetched_once_for_many_calls() {
    let Some(tools) = tools() else { return };
    let issuer = OAuth::start(&tools);
    let echo = echo(httpbin(&tools), "oauth2", &[issuer.server().host_port()], |connectors, hosts| {
        binding("oauth2/bin", oauth(&issuer.token_url(), "a refresh token", None), connectors, hosts)
    });
    run(async {
        let (a, b, c, d) = tokio::join!(
            echo.get("/status/204"),
            echo.get("/status/204"),
            echo.get("/status/204"),
            echo.get("/status/204"),
        );
        for answer in [a, b, c, d] {
            assert_eq!(answer.unwrap()["status"], 204);
        }
    });
    assert_eq!(issuer.asked_for("refresh_token"), 1, "{}", issuer.server().log());
    // The endpoint that requires a token echoes it, which shows that it arrived.
    let failure = failed(run(echo.get("/bearer")));
    envelope::check(&failure, envelope::denied("secret_reflected"));
}

#[test]
fn a_revoked_refresh_token_is_a_failed_binding() {
    let Some(tools) = tools() else { return };
    let issuer = OAuth::start(&tools);
    let echo = echo(httpbin(&tools), "oauth2", &[issuer.server().host_port()], |connectors, hosts| {
        binding("oauth2/bin", oauth(&issuer.token_url(), OAuth::REVOKED, None), connectors, hosts)
    });
    let failure = failed(run(echo.get("/status/204")));
    assert_eq!((failure.class(), failure.code()), (FailureClass::BindingFailed, "refresh_refused"));
    assert!(!failure.retriable());
    assert!(!echo.bin.log().contains("/status/204"), "nothing was sent: {}", echo.bin.log());
}

#[test]
fn a_response_that_echoes_a_secret_is_stopped() {
    let Some(tools) = tools() else { return };
    let echo = echo(httpbin(&tools), "basic", &[], |connectors, hosts| {
        let material = SecretMaterial::Basic { username: "ada".into(), password: secret("lovelace-1843") };
        binding("basic/bin", material, connectors, hosts)
    });
    // httpbin compares what it was sent with its path.
    let failure = failed(run(echo.get("/basic-auth/ada/another-password")));
    envelope::check(&failure, envelope::upstream("auth", false));
    assert_eq!(failure.details()["binding"], "basic/bin/default");
    for path in ["/headers", "/anything", "/get"] {
        let failure = failed(run(echo.get(path)));
        envelope::check(&failure, envelope::denied("secret_reflected"));
        assert!(!failure.to_string().contains("lovelace"), "{failure}");
    }
    assert_eq!(run(echo.get("/user-agent")).unwrap()["status"], 200);
}
