//! The failure model (004): its codes and scenarios as calls show them. Rows I1, I2, I3, I6, I7, I11, I12 and I17; its
//! retries are the profile `none`. Scenarios 3 and 4 (fallback) are in `chain`.

use cofferdam::Error;
use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::Turn;
use serde_json::json;

use super::stage::{Stage, Told, fetch, once, probe, profile, script, walk};
use crate::envelope::{check, denied, fault, limit, network};
use crate::world::world;

/// The code of an error of the host, of a call that was not attempted.
#[track_caller]
fn refused(told: &Told) -> (&'static str, &str) {
    assert_eq!((told.attempts(), told.names()), (0, vec!["received", "final"]), "no instance was made");
    match &told.outcome {
        Err(Error::Host(error)) => (error.kind().code(), error.message()),
        other => panic!("{other:?}"),
    }
}

/// I17: one attempt, whatever happens. RATE_LIMIT, AGENT_UNAVAILABLE and UNAUTHORIZED of I1 are among it: retriable
/// is what the caller is told.
#[test]
fn i1_i17_the_table_of_statuses() {
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
    walk(&Stage::new(), &world().upstream, "none", &rows);
    let (url, path) = script(&world().upstream, [Turn::after(429, "1"), Turn::status(200)]);
    let told = Stage::new().call(fetch(&url).retry(profile("none")));
    assert_eq!(told.failure().details()["retry_after_ms"], 1_000, "RATE_LIMIT: the caller's to wait");
    assert_eq!(world().upstream.seen(&path).len(), 1);
}

/// I1 and I2: VALIDATION_ERROR, PAYLOAD_TOO_LARGE.
#[test]
fn i1_i2_what_is_not_acceptable_makes_no_instance() {
    let stage = Stage::new();
    let told = stage.call(probe("fetch", json!({})));
    let (code, message) = refused(&told);
    assert_eq!(code, "validation");
    assert!(message.contains("url"), "{message}");
    let told = stage.call(probe("panic", json!({"message": "x".repeat(5_000_000)})));
    check(told.failure(), limit("payload"));
    assert_eq!(told.attempts(), 0);
}

/// I3: CAPABILITY_NOT_FOUND, with what was looked for.
#[test]
fn i3_an_operation_or_connector_that_is_not_there_is_named() {
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

/// I6 and I12: INTERNAL_AGENT_ERROR: caught, not retryable, with its kind; and the next call is none the worse.
#[test]
fn i6_i12_a_trap_is_caught() {
    let stage = Stage::new();
    let told = stage.call(probe("panic", json!({"message": "inside"})).retry(profile("none")));
    check(told.failure(), fault("trap"));
    assert_eq!(told.failure().details()["trap"], "unreachable");
    let (url, _) = script(&world().upstream, [Turn::status(200)]);
    assert!(stage.call(fetch(&url)).outcome.is_ok());
}

/// I1 and I7: TRANSPORT_ERROR is retryable, by whoever asked.
#[test]
fn i7_an_agent_that_cannot_be_reached() {
    let stage = Stage::new();
    let told =
        stage.call(fetch(&format!("http://localhost:{}/", world().closed_port)).retry(profile("none")));
    check(told.failure(), network("refused", true));
    assert_eq!(told.attempts(), 1);
}

/// I11: AGENT_TIMEOUT, with the time that was configured; C2: an outer policy may repeat it, the envelope says no.
#[test]
fn i11_a_timeout_says_what_was_configured() {
    let stage = Stage::new();
    let limits = LimitRequest::parse(None, Some("150ms"), None).unwrap();
    let told = stage.call(probe("sleep", json!({"ms": 60_000})).retry(profile("none")).limits(limits));
    check(told.failure(), limit("wall_time"));
    let details = told.failure().details();
    assert_eq!((&details["configured"], &details["unit"]), (&json!(150), &json!("ms")));
    assert_eq!(details["connector"], "github://cofferdam/probe@0.1.0");
}

/// I1: UNAUTHORIZED of the host's own, PROTOCOL_ERROR, AGENT_ERROR: all no.
#[test]
fn i1_the_codes_that_are_never_retryable() {
    let stage = Stage::new();
    for (op, args, expected) in [
        ("fetch", json!({"url": world().elsewhere.url("/")}), denied("host_not_granted")),
        ("fail", json!({"kind": "failed", "message": "No."}), fault("op_failed")),
        ("forge_upstream", json!({"status": 503}), crate::envelope::upstream("unobserved", false)),
    ] {
        let told = stage.call(probe(op, args).retry(profile("none")));
        check(told.failure(), expected);
        assert!(!told.failure().retriable());
    }
}
