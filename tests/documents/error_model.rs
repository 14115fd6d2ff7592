//! The error model (001): the meaning of its classes for calls, and its retry policy, which is the profile
//! `patient`. Its section on `Retry-After` is in `retry_after`.

use cofferdam::Error;
use cofferdam_test_support::{ScriptedReply, log_capture};
use serde_json::json;

use super::fixture::{Stage, fetch, once, order, probe, profile, repeated, script, walk, within};
use crate::envelope::{Expected, check, fault, limit, network};
use crate::shared_host::shared_host;

/// 5, 10, 20, 40 and 80 seconds, a fifth less or more. The document's sixth wait, of 160, comes after the last
/// of six attempts and is only reported.
const LIMITED: [std::ops::RangeInclusive<u64>; 5] =
    [4_000..=6_000, 8_000..=12_000, 16_000..=24_000, 32_000..=48_000, 64_000..=96_000];

/// One and two seconds, a fifth less or more, between three attempts.
const TRANSIENT: [std::ops::RangeInclusive<u64>; 2] = [800..=1_200, 1_600..=2_400];

#[test]
fn patient_profile_status_table() {
    let rows = [
        repeated(429, "rate_limited", &LIMITED),
        repeated(500, "unavailable", &TRANSIENT),
        repeated(503, "unavailable", &TRANSIENT),
        repeated(529, "unavailable", &TRANSIENT),
        // NetworkTimeout, reported as a status.
        repeated(408, "timeout", &TRANSIENT),
        once(400, "bad_request", false),
        once(401, "auth", false),
        once(403, "auth", false),
        once(404, "not_found", false),
    ];
    walk(&Stage::new(), &shared_host().upstream, "patient", &rows);
}

#[test]
fn the_sixth_attempt_is_the_last_and_names_the_delay() {
    let stage = Stage::new();
    let (url, path) = script(&shared_host().upstream, [ScriptedReply::status(429)]);
    let told = stage.call(fetch(&url).retry(profile("patient")));
    let details = told.failure().details();
    assert_eq!(shared_host().upstream.seen(&path).len(), 6);
    assert_eq!((&details["retried"], &details["retry_stopped"]), (&json!(5), &json!("max_attempts")));
    assert_eq!(details["retry_after_ms"], 160_000, "the next wait in the schedule");
    // The sixth answer may as well be a good one.
    let turns = [429, 429, 429, 429, 429, 200].map(ScriptedReply::status);
    let (url, _) = script(&shared_host().upstream, turns);
    assert_eq!(stage.call(fetch(&url).retry(profile("patient"))).outcome.unwrap()["status"], 200);
}

/// A failing transport, and a policy for each cause: the schedule of the last failure decides.
#[test]
fn the_last_failures_cause_selects_the_schedule() {
    let stage = Stage::new();
    let told = stage
        .call(fetch(&format!("http://localhost:{}/", shared_host().closed_port)).retry(profile("patient")));
    check(told.failure(), network("refused", true));
    within(&told.waits(), &TRANSIENT, "refused");
    let turns = [ScriptedReply::status(429), ScriptedReply::status(429), ScriptedReply::status(503)];
    let (url, path) = script(&shared_host().upstream, turns);
    let told = stage.call(fetch(&url).retry(profile("patient")));
    within(&told.waits(), &LIMITED[..2], "a 503 as the third attempt is the last of three");
    assert_eq!((told.failure().code(), shared_host().upstream.seen(&path).len()), ("unavailable", 3));
}

/// The table of transient and permanent classes. A tool's own errors have no policy of the core.
#[test]
fn patient_profile_class_table() {
    let stage = Stage::new();
    let patient = |op: &str, args| stage.call(probe(op, args).retry(profile("patient")));
    // Validation: does not start.
    let told = patient("fetch", json!({"address": "x"}));
    assert!(matches!(&told.outcome, Err(Error::Host(error)) if error.kind().code() == "validation"));
    assert_eq!(told.names(), ["received", "final"]);
    // ToolTransient (ResourceBusy): surfaced.
    let told = patient("fail", json!({"kind": "failed_transiently", "message": "Busy."}));
    check(told.failure(), Expected { retriable: true, ..fault("op_failed") });
    assert_eq!(told.attempts(), 1);
    // ToolTerminal: InputInvalid, OutputMalformed and Forbidden are surfaced.
    for (op, args, expected) in [
        ("fail", json!({"kind": "invalid_input", "message": "No."}), fault("input_invalid")),
        ("fail", json!({"kind": "failed", "message": "No."}), fault("op_failed")),
        (
            "fetch",
            json!({"url": shared_host().elsewhere.url("/")}),
            crate::envelope::denied("host_not_granted"),
        ),
    ] {
        let told = patient(op, args);
        check(told.failure(), expected);
        assert_eq!((told.attempts(), told.waits()), (1, vec![]), "{op}");
    }
    // ToolTransient (ExecutionTimeout): the time was all that there is.
    let limits = cofferdam_core::limits::LimitRequest::parse(None, Some("200ms"), None).unwrap();
    let sleep = probe("sleep", json!({"ms": 60_000})).retry(profile("patient")).limits(limits);
    let told = stage.call(sleep);
    check(told.failure(), limit("wall_time"));
    assert_eq!(told.attempts(), 1);
}

/// The caller sees neither stack nor cause; the log has the number of attempts.
#[test]
fn the_log_has_details_that_the_caller_has_not() {
    let stage = Stage::new();
    let told = stage.call(probe("panic", json!({"message": "the blue parrot"})).retry(profile("patient")));
    let envelope = serde_json::to_string(told.failure()).unwrap();
    assert!(
        !envelope.contains("parrot") && !envelope.contains("wasm") && !envelope.contains("0x"),
        "{envelope}"
    );
    let record = log_capture::record_of(told.failure().audit_id().as_str());
    assert!(record.get("notes").unwrap().contains("the blue parrot"));
    let (url, _) = script(&shared_host().upstream, [ScriptedReply::status(503), ScriptedReply::status(200)]);
    let told = stage.call(fetch(&url).retry(profile("patient")));
    let record = log_capture::record_of(told.report.audit_id.as_str());
    assert_eq!((record.get("attempts"), record.get("profile")), (Some("2"), Some("patient")));
}

/// The caller's policy outranks the operator's, but not the rule for operations that must not be repeated.
#[test]
fn a_call_can_override_the_profile() {
    let stage = Stage::new();
    let (url, path) = script(&shared_host().upstream, [ScriptedReply::status(503)]);
    for (name, seen) in [("patient", 3), ("none", 1), ("deterministic", 3), ("standard", 4)] {
        let before = shared_host().upstream.seen(&path).len();
        let told = stage.call(fetch(&url).retry(profile(name)));
        assert_eq!(shared_host().upstream.seen(&path).len() - before, seen, "{name}");
        assert_eq!(told.attempts(), seen, "{name}");
        let before = shared_host().upstream.seen(&path).len();
        stage.call(order("order_once", &url).retry(profile(name)));
        assert_eq!(shared_host().upstream.seen(&path).len() - before, 1, "{name}");
        let before = shared_host().upstream.seen(&path).len();
        stage.call(fetch(&url).retry(profile(name)).not_idempotent());
        assert_eq!(shared_host().upstream.seen(&path).len() - before, 1, "{name}");
    }
}
