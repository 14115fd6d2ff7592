//! The failure model (004): its codes and scenarios as calls show them. Its retries are the profile `none`. Its
//! scenarios about fallback are in `fallback`.

use cofferdam::Error;
use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::ScriptedReply;
use serde_json::json;

use super::fixture::{CallRecord, Stage, fetch, once, probe, profile, script, walk};
use crate::envelope::{check, denied, fault, limit, network};
use crate::shared_host::shared_host;

/// The code of an error of the host, of a call that was not attempted.
#[track_caller]
fn refused(told: &CallRecord) -> (&'static str, &str) {
    assert_eq!((told.attempts(), told.names()), (0, vec!["received", "final"]), "no instance was made");
    match &told.outcome {
        Err(Error::Host(error)) => (error.kind().code(), error.message()),
        other => panic!("{other:?}"),
    }
}

/// One attempt in every case. RATE_LIMIT, AGENT_UNAVAILABLE and UNAUTHORIZED are among them: `retriable` is
/// advice to the caller.
#[test]
fn failure_model_status_table() {
    let rows = [
        once(429, "rate_limited", true),
        once(500, "unavailable", true),
        once(503, "unavailable", true),
        once(408, "timeout", true),
        once(401, "auth", false),
        once(403, "auth", false),
        once(404, "not_found", false),
        once(400, "bad_request", false),
    ];
    walk(&Stage::new(), &shared_host().upstream, "none", &rows);
    let (url, path) =
        script(&shared_host().upstream, [ScriptedReply::after(429, "1"), ScriptedReply::status(200)]);
    let told = Stage::new().call(fetch(&url).retry(profile("none")));
    assert_eq!(told.failure().details()["retry_after_ms"], 1_000, "RATE_LIMIT: the caller's to wait");
    assert_eq!(shared_host().upstream.seen(&path).len(), 1);
}

/// VALIDATION_ERROR, PAYLOAD_TOO_LARGE.
#[test]
fn invalid_input_starts_no_instance() {
    let stage = Stage::new();
    let told = stage.call(probe("fetch", json!({})));
    let (code, message) = refused(&told);
    assert_eq!(code, "validation");
    assert!(message.contains("url"), "{message}");
    let told = stage.call(probe("panic", json!({"message": "x".repeat(5_000_000)})));
    check(told.failure(), limit("payload"));
    assert_eq!(told.attempts(), 0);
}

/// CAPABILITY_NOT_FOUND, with the requested name.
#[test]
fn an_unknown_operation_or_connector_is_named() {
    let stage = Stage::new();
    let told = stage.call(probe("teleport", json!({})));
    let (code, message) = refused(&told);
    assert_eq!(code, "op_not_found");
    assert!(message.contains("teleport") && message.contains("github://cofferdam/probe@0.1.0"), "{message}");
    let nobody = cofferdam_test_support::connector("github://cofferdam/nobody@1.0.0");
    let told = stage.call(cofferdam::Call::new(nobody, "greet", json!({})));
    let (code, message) = refused(&told);
    assert_eq!(code, "connector_not_found");
    assert!(message.contains("github://cofferdam/nobody@1.0.0"), "{message}");
}

/// INTERNAL_AGENT_ERROR: caught, not retryable, with its kind; and the next call is unaffected.
#[test]
fn a_trap_is_contained() {
    let stage = Stage::new();
    let told = stage.call(probe("panic", json!({"message": "inside"})).retry(profile("none")));
    check(told.failure(), fault("trap"));
    assert_eq!(told.failure().details()["trap"], "unreachable");
    let (url, _) = script(&shared_host().upstream, [ScriptedReply::status(200)]);
    assert!(stage.call(fetch(&url)).outcome.is_ok());
}

/// TRANSPORT_ERROR is retryable by the caller.
#[test]
fn an_unreachable_agent_is_retriable() {
    let stage = Stage::new();
    let told =
        stage.call(fetch(&format!("http://localhost:{}/", shared_host().closed_port)).retry(profile("none")));
    check(told.failure(), network("refused", true));
    assert_eq!(told.attempts(), 1);
}

/// AGENT_TIMEOUT, with the configured time. An outer policy may repeat it, although the envelope says no.
#[test]
fn a_timeout_names_the_configured_time() {
    let stage = Stage::new();
    let limits = LimitRequest::parse(None, Some("150ms"), None).unwrap();
    let told = stage.call(probe("sleep", json!({"ms": 60_000})).retry(profile("none")).limits(limits));
    check(told.failure(), limit("wall_time"));
    let details = told.failure().details();
    assert_eq!((&details["configured"], &details["unit"]), (&json!(150), &json!("ms")));
    assert_eq!(details["connector"], "github://cofferdam/probe@0.1.0");
}

/// The host's own UNAUTHORIZED, PROTOCOL_ERROR, AGENT_ERROR: none is retryable.
#[test]
fn some_codes_are_never_retriable() {
    let stage = Stage::new();
    for (op, args, expected) in [
        ("fetch", json!({"url": shared_host().elsewhere.url("/")}), denied("host_not_granted")),
        ("fail", json!({"kind": "failed", "message": "No."}), fault("op_failed")),
        ("forge_upstream", json!({"status": 503}), crate::envelope::upstream("unobserved", false)),
    ] {
        let told = stage.call(probe(op, args).retry(profile("none")));
        check(told.failure(), expected);
        assert!(!told.failure().retriable());
    }
}
