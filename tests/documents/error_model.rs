//! The error model (001): what its classes mean for calls, and its retry policy, which is the profile `patient`.
//! Rows S2, S8, S9, S12 to S15, S17 to S19; S13 is in `retry_after`, S11 and S20 are not of calls' attempts.

use cofferdam::Error;
use cofferdam_test_support::{Turn, records};
use serde_json::json;

use super::stage::{Stage, fetch, once, order, probe, profile, repeated, script, walk, within};
use crate::envelope::{Expected, check, fault, limit, network};
use crate::world::world;

/// S14: 5, 10, 20, 40 and 80 seconds, a fifth less or more. The document's sixth wait, of 160, is after the last of
/// six attempts (S15), and is only told.
const LIMITED: [std::ops::RangeInclusive<u64>; 5] =
    [4_000..=6_000, 8_000..=12_000, 16_000..=24_000, 32_000..=48_000, 64_000..=96_000];

/// S18: one and two seconds, a fifth less or more, between three attempts.
const TRANSIENT: [std::ops::RangeInclusive<u64>; 2] = [800..=1_200, 1_600..=2_400];

#[test]
fn s14_s15_s18_the_table_of_statuses() {
    let rows = [
        repeated(429, "rate_limited", &LIMITED),
        repeated(500, "unavailable", &TRANSIENT),
        repeated(503, "unavailable", &TRANSIENT),
        repeated(529, "unavailable", &TRANSIENT),
        // NetworkTimeout, told with a status.
        repeated(408, "timeout", &TRANSIENT),
        once(400, "bad_request", false),
        once(401, "auth", false),
        once(403, "auth", false),
        once(404, "not_found", false),
    ];
    walk(&Stage::new(), &world().upstream, "patient", &rows);
}

#[test]
fn s15_after_the_sixth_attempt_it_is_over_and_the_next_wait_is_told() {
    let stage = Stage::new();
    let (url, path) = script(&world().upstream, [Turn::status(429)]);
    let told = stage.call(fetch(&url).retry(profile("patient")));
    let details = told.failure().details();
    assert_eq!(world().upstream.seen(&path).len(), 6);
    assert_eq!((&details["retried"], &details["retry_stopped"]), (&json!(5), &json!("max_attempts")));
    assert_eq!(details["retry_after_ms"], 160_000, "C6: the give-up horizon");
    // The sixth answer may as well be a good one.
    let turns = [429, 429, 429, 429, 429, 200].map(Turn::status);
    let (url, _) = script(&world().upstream, turns);
    assert_eq!(stage.call(fetch(&url).retry(profile("patient"))).outcome.unwrap()["status"], 200);
}

/// S18: a transport that fails, and a policy for each cause: the schedule of the last failure decides.
#[test]
fn s18_a_network_that_fails_and_causes_that_change() {
    let stage = Stage::new();
    let told =
        stage.call(fetch(&format!("http://localhost:{}/", world().closed_port)).retry(profile("patient")));
    check(told.failure(), network("refused", true));
    within(&told.waits(), &TRANSIENT, "refused");
    let turns = [Turn::status(429), Turn::status(429), Turn::status(503)];
    let (url, path) = script(&world().upstream, turns);
    let told = stage.call(fetch(&url).retry(profile("patient")));
    within(&told.waits(), &LIMITED[..2], "a 503 as the third attempt is the last of three");
    assert_eq!((told.failure().code(), world().upstream.seen(&path).len()), ("unavailable", 3));
}

/// S2 and S9: a table of what is transient and what is not. S19: what a tool says of itself has no policy of the core.
#[test]
fn s2_s9_s19_the_table_of_classes() {
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
        ("fetch", json!({"url": world().elsewhere.url("/")}), crate::envelope::denied("host_not_granted")),
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

/// S8: whoever asks sees neither stack nor cause; S12: the record has the count.
#[test]
fn s8_s12_the_record_has_what_the_caller_has_not() {
    let stage = Stage::new();
    let told = stage.call(probe("panic", json!({"message": "the blue parrot"})).retry(profile("patient")));
    let envelope = serde_json::to_string(told.failure()).unwrap();
    assert!(
        !envelope.contains("parrot") && !envelope.contains("wasm") && !envelope.contains("0x"),
        "{envelope}"
    );
    let record = records::record_of(told.failure().audit_id().as_str());
    assert!(record.get("notes").unwrap().contains("the blue parrot"));
    let (url, _) = script(&world().upstream, [Turn::status(503), Turn::status(200)]);
    let told = stage.call(fetch(&url).retry(profile("patient")));
    let record = records::record_of(told.report.audit_id.as_str());
    assert_eq!((record.get("attempts"), record.get("profile")), (Some("2"), Some("patient")));
}

/// S17: a policy of the caller outranks the operator's, and not what must not be repeated.
#[test]
fn s17_another_policy_for_one_call() {
    let stage = Stage::new();
    let (url, path) = script(&world().upstream, [Turn::status(503)]);
    for (name, seen) in [("patient", 3), ("none", 1), ("deterministic", 3), ("standard", 4)] {
        let before = world().upstream.seen(&path).len();
        let told = stage.call(fetch(&url).retry(profile(name)));
        assert_eq!(world().upstream.seen(&path).len() - before, seen, "{name}");
        assert_eq!(told.attempts(), seen, "{name}");
        let before = world().upstream.seen(&path).len();
        stage.call(order("order_once", &url).retry(profile(name)));
        assert_eq!(world().upstream.seen(&path).len() - before, 1, "{name}");
        let before = world().upstream.seen(&path).len();
        stage.call(fetch(&url).retry(profile(name)).not_idempotent());
        assert_eq!(world().upstream.seen(&path).len() - before, 1, "{name}");
    }
}
