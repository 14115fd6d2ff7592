//! The three examples of the error recovery record (000), exactly.

use std::sync::Arc;

use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_test_support::{Fault, FaultyProxy, MemoryVault, ScriptedReply, log_capture, vault};
use serde_json::json;

use super::fixture::{SeparateHome, fetch, probe, script};
use crate::envelope::{check, network, upstream};
use crate::shared_host::run;

/// Starts listening at a port once the call has announced a retry.
struct Opens(Arc<FaultyProxy>);

impl Listener for Opens {
    fn event(&self, event: &Event<'_>) {
        if let EventKind::RetryScheduled { .. } = event.kind {
            self.0.listen();
        }
    }
}

/// The document's first example: refused once, and then successful. The log shows it, and the result does not.
#[test]
fn refused_once_then_successful() {
    log_capture::catch();
    let mut opened = None;
    let own = SeparateHome::new(|builder, own| {
        let proxy = run(async { Arc::new(FaultyProxy::refusing(own.upstream.port(), [Fault::None])) });
        opened = Some(Arc::clone(&proxy));
        let builder = builder.allow_private(proxy.host_port());
        builder.listener(Arc::new(Opens(proxy)))
    });
    let proxy = opened.unwrap();
    own.install(&own.manifest().replace(&own.upstream.host_port(), &proxy.host_port()));
    let first = own.call(fetch(&proxy.url("/text/hello")));
    let second = own.call(fetch(&proxy.url("/text/hello")));
    assert_eq!((first.attempts(), second.attempts()), (2, 1));
    assert_eq!(first.outcome.unwrap(), second.outcome.unwrap(), "a normal result");
    assert_eq!(
        first.steps.iter().map(|step| step.name).collect::<Vec<_>>(),
        [
            "received",
            "admitted",
            "attempt_started",
            "attempt_ended",
            "retry_scheduled",
            "attempt_started",
            "attempt_ended",
            "final"
        ]
    );
    let id = first.report.audit_id.as_str();
    let lines = log_capture::records(|record| {
        record.get("audit_id") == Some(id) && record.get("step") == Some("retry_scheduled")
    });
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let said = line.get("message").unwrap();
    assert!(said.contains("network_error") && said.contains("(refused)"), "{said}");
    assert!(said.contains("Retry 1/3 in 1."), "{said}");
    let record = log_capture::record_of(id);
    assert_eq!((record.get("outcome"), record.get("retried")), (Some("value"), Some("1")));
}

/// The second: a rejected credential is not tried again, and the message names it.
#[test]
fn a_rejected_credential_is_not_retried() {
    let own = SeparateHome::new(|builder, own| {
        let token = vault::secret("t0k3n-t0k3n-t0k3n");
        let bound = vault::binding(
            "bearer/shop",
            cofferdam_egress::vault::SecretMaterial::Bearer { token },
            &["github://cofferdam/probe"],
            &[own.upstream.grant()],
        );
        builder.vault(MemoryVault::with([bound]))
    });
    let credential = format!(
        "\n[[capabilities.credential]]\nkind = \"bearer\"\nservice = \"shop\"\nhosts = [\"{}\"]\n",
        own.upstream.grant()
    );
    own.install(&(own.manifest() + &credential));
    let (url, path) = script(&own.upstream, [ScriptedReply::status(401), ScriptedReply::status(200)]);
    let told = own.call(fetch(&url));
    let failure = told.failure();
    check(failure, upstream("auth", false));
    let details = failure.details();
    assert_eq!(details["status"], 401);
    assert_eq!(details["binding"], "bearer/shop/default");
    assert_eq!(details["suggestion"], "cofferdam binding rebind bearer/shop/default");
    assert!(failure.message().contains("bearer/shop/default"), "{}", failure.message());
    assert!(!details.contains_key("retried") && !details.contains_key("retry_stopped"));
    assert_eq!((told.attempts(), own.upstream.seen(&path).len()), (1, 1));
}

/// The third: a TLS handshake that does not end, in an operation that must not be repeated.
#[test]
fn a_tls_timeout_of_an_unsafe_operation() {
    let mut silent = None;
    let own = SeparateHome::new(|builder, own| {
        let proxy = run(async { FaultyProxy::start(own.upstream.port(), [Fault::BlackHole]) });
        let builder = builder.allow_private(proxy.host_port());
        silent = Some(proxy);
        builder
    });
    let proxy = silent.unwrap();
    own.install(&own.manifest().replace(&own.upstream.grant(), &proxy.host_port()));
    let url = format!("https://{}/charge", proxy.host_port());
    let call = |op: &str| {
        let args = json!({"url": url, "body": "x", "labels": ["only"], "patience_ms": 300});
        own.call(probe(op, args))
    };
    let once = call("order_once");
    assert_eq!((proxy.accepts(), once.attempts()), (1, 1));
    let failure = once.failure();
    check(failure, network("timeout", false));
    assert_eq!(failure.boundary().name(), "external");
    let details = failure.details();
    assert_eq!((&details["phase"], &details["request_sent"]), (&json!("tls"), &json!(false)));
    assert_eq!(details["idempotent"], false);
    assert!(failure.message().contains("not idempotent; it was not retried"), "{}", failure.message());
    assert!(!details.contains_key("retried"));
    // The same of what may be repeated.
    let again = call("order");
    check(again.failure(), network("timeout", true));
    assert_eq!((proxy.accepts(), again.attempts()), (5, 4));
    assert_eq!(own.upstream.connections(), 0);
}
