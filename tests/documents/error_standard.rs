//! The error handling standard (003): what is retryable and what is fatal, and its waits without jitter, which are the
//! profile `deterministic`. Rows R6, R7, R14, R15, R17, R18, R23 and R25.

use cofferdam_core::limits::LimitRequest;
use cofferdam_runtime::call::AttemptOutcome;
use cofferdam_test_support::Turn;
use serde_json::json;

use super::stage::{Stage, fetch, once, probe, profile, repeated, script, walk};
use crate::envelope::{check, denied, fault, limit, network};
use crate::world::world;

/// R23: exactly one and two seconds between three attempts: a replay waits as long.
const WAITS: [std::ops::RangeInclusive<u64>; 2] = [1_000..=1_000, 2_000..=2_000];

#[test]
fn r7_r14_r23_r25_the_table_of_statuses() {
    let rows = [
        repeated(429, "rate_limited", &WAITS),
        repeated(500, "unavailable", &WAITS),
        repeated(503, "unavailable", &WAITS),
        repeated(529, "unavailable", &WAITS),
        repeated(408, "timeout", &WAITS),
        once(401, "auth", false),
        once(402, "payment_required", false),
        once(403, "auth", false),
        once(400, "bad_request", false),
        once(404, "not_found", false),
        once(409, "bad_request", false),
        once(413, "bad_request", false),
        // R14: a refusal of the content is one of these to whoever sees the status alone.
        once(422, "bad_request", false),
    ];
    walk(&Stage::new(), &world().upstream, "deterministic", &rows);
}

/// R23: the transport, and the events of each wait.
#[test]
fn r23_a_transport_that_breaks_off_and_the_events_of_its_waits() {
    let stage = Stage::new();
    let (url, path) = script(&world().upstream, [Turn::hang_up()]);
    let told = stage.call(fetch(&url).retry(profile("deterministic")));
    check(told.failure(), network("closed", true));
    assert_eq!((told.waits(), world().upstream.seen(&path).len()), (vec![1_000, 2_000], 3));
    let waits: Vec<_> = told.steps.iter().filter(|step| step.name == "retry_scheduled").collect();
    for (number, step) in (1..).zip(&waits) {
        assert_eq!(step.facts["retry"], json!(number));
        assert_eq!((&step.facts["of"], &step.facts["profile"]), (&json!(2), &json!("deterministic")));
        assert_eq!((&step.facts["class"], &step.facts["code"]), (&json!("network_error"), &json!("closed")));
    }
    assert_eq!(waits.len(), 2);
    assert!(told.steps.iter().map(|step| step.seq).eq(1..=told.steps.len() as u32), "none is missing");
}

/// R6: what a failed attempt used is recorded as of one that succeeded.
#[test]
fn r6_a_failed_attempt_s_usage_is_recorded() {
    let stage = Stage::new();
    let (url, _) = script(&world().upstream, [Turn::status(503), Turn::hang_up(), Turn::status(200)]);
    let told = stage.call(fetch(&url).retry(profile("deterministic")));
    assert!(told.outcome.is_ok());
    let ended: Vec<_> = told.steps.iter().filter(|step| step.name == "attempt_ended").collect();
    assert_eq!((told.attempts(), ended.len()), (3, 3));
    for (attempt, step) in told.report.attempts.iter().zip(&ended) {
        let usage = attempt.usage.unwrap();
        // A GET has no body: its first line is all that counts.
        assert!(usage.fuel > 0 && usage.memory > 0 && usage.bytes_out < 64, "{usage:?}");
        assert_eq!(usage.requests, 1);
        assert_eq!(step.facts["usage"]["fuel"], json!(usage.fuel));
    }
    let [first, second, third] = told.report.attempts.as_slice() else { panic!() };
    assert!(first.usage.unwrap().bytes_in > 0, "the body of the answer that failed");
    assert!(
        matches!(&first.outcome, Some(AttemptOutcome::Failure { code, request_sent: true, .. }) if code == "unavailable")
    );
    assert!(
        matches!(&second.outcome, Some(AttemptOutcome::Failure { code, request_sent: true, .. }) if code == "closed")
    );
    assert_eq!(third.outcome, Some(AttemptOutcome::Value));
}

/// R15: a cap that is hit is told, never repeated, and raised by whoever asks, in so many words.
#[test]
fn r15_a_cap_that_is_hit_and_one_that_was_raised() {
    let stage = Stage::new();
    let call = |wall: &str| {
        let limits = LimitRequest::parse(None, Some(wall), None).unwrap();
        stage.call(probe("sleep", json!({"ms": 400})).retry(profile("deterministic")).limits(limits))
    };
    let told = call("100ms");
    check(told.failure(), limit("wall_time"));
    assert_eq!((told.attempts(), told.waits()), (1, vec![]));
    assert_eq!(told.failure().details()["configured"], 100);
    assert!(call("20s").outcome.is_ok());
}

/// R17 and R18: what is fatal, one attempt each although the policy repeats a timeout; its message has no argument.
#[test]
fn r17_r18_what_is_fatal_is_attempted_once() {
    let stage = Stage::new();
    let secret = "an-argument-of-mine";
    for (op, args, expected) in [
        ("fetch", json!({"url": world().elsewhere.url(&format!("/{secret}"))}), denied("host_not_granted")),
        ("panic", json!({"message": secret}), fault("trap")),
        ("exit", json!({"code": 3}), fault("exit")),
        ("eat_memory", json!({}), limit("memory")),
        ("fail", json!({"kind": "invalid_input", "message": "No."}), fault("input_invalid")),
        ("big_result", json!({"bytes": 5_000_000}), limit("payload")),
    ] {
        let told = stage.call(probe(op, args).retry(profile("deterministic")));
        check(told.failure(), expected);
        assert_eq!((told.attempts(), told.waits()), (1, vec![]), "{op}");
        assert!(!serde_json::to_string(told.failure()).unwrap().contains(secret), "{op}");
    }
    let told = stage.call(probe("recurse", json!({})).retry(profile("deterministic")));
    assert_eq!((told.attempts(), told.waits()), (1, vec![]), "recurse");
    let few = LimitRequest::parse(Some(20_000_000), None, None).unwrap();
    let told = stage.call(probe("spin", json!({})).retry(profile("deterministic")).limits(few));
    check(told.failure(), limit("fuel"));
    assert_eq!(told.attempts(), 1);
    // R17: what a tool says may pass is repeated within the budget of this profile, and of no other.
    let told = stage.call(
        probe("fail", json!({"kind": "failed_transiently", "message": "Busy."}))
            .retry(profile("deterministic")),
    );
    assert_eq!((told.attempts(), told.waits()), (3, vec![1_000, 2_000]));
}
