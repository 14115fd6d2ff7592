//! The error handling standard (003): retryable and fatal failures, and its waits without jitter, which are the
//! profile `deterministic`.

use cofferdam_core::limits::LimitRequest;
use cofferdam_runtime::call::AttemptOutcome;
use cofferdam_test_support::ScriptedReply;
use serde_json::json;

use super::fixture::{Stage, fetch, once, probe, profile, repeated, script, walk};
use crate::envelope::{check, denied, fault, limit, network};
use crate::shared_host::shared_host;

/// Exactly one and two seconds between three attempts: a replay waits as long.
const WAITS: [std::ops::RangeInclusive<u64>; 2] = [1_000..=1_000, 2_000..=2_000];

#[test]
fn deterministic_profile_status_table() {
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
        // For a reader of the status alone, a refusal of the content is one of these.
        once(422, "bad_request", false),
    ];
    walk(&Stage::new(), &shared_host().upstream, "deterministic", &rows);
}

/// The transport, and the events of each wait.
#[test]
fn a_broken_transport_is_retried_with_events() {
    let stage = Stage::new();
    let (url, path) = script(&shared_host().upstream, [ScriptedReply::hang_up()]);
    let told = stage.call(fetch(&url).retry(profile("deterministic")));
    check(told.failure(), network("closed", true));
    assert_eq!((told.waits(), shared_host().upstream.seen(&path).len()), (vec![1_000, 2_000], 3));
    let waits: Vec<_> = told.steps.iter().filter(|step| step.name == "retry_scheduled").collect();
    for (number, step) in (1..).zip(&waits) {
        assert_eq!(step.facts["retry"], json!(number));
        assert_eq!((&step.facts["of"], &step.facts["profile"]), (&json!(2), &json!("deterministic")));
        assert_eq!((&step.facts["class"], &step.facts["code"]), (&json!("network_error"), &json!("closed")));
    }
    assert_eq!(waits.len(), 2);
    assert!(told.steps.iter().map(|step| step.seq).eq(1..=told.steps.len() as u32), "none is missing");
}

/// A failed attempt's usage is recorded like a successful one's.
#[test]
fn a_failed_attempts_usage_is_recorded() {
    let stage = Stage::new();
    let (url, _) = script(
        &shared_host().upstream,
        [ScriptedReply::status(503), ScriptedReply::hang_up(), ScriptedReply::status(200)],
    );
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

/// An exceeded cap is reported, never repeated, and raised by the caller explicitly.
#[test]
fn a_wall_time_limit_can_be_raised_by_the_caller() {
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

/// Fatal failures have one attempt each although the policy repeats timeouts; their messages contain no
/// argument.
#[test]
fn fatal_failures_are_attempted_once() {
    let stage = Stage::new();
    let secret = "an-argument-of-mine";
    for (op, args, expected) in [
        (
            "fetch",
            json!({"url": shared_host().elsewhere.url(&format!("/{secret}"))}),
            denied("host_not_granted"),
        ),
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
    // A failure that a tool calls transient is repeated within the budget of this profile, and of no other.
    let told = stage.call(
        probe("fail", json!({"kind": "failed_transiently", "message": "Busy."}))
            .retry(profile("deterministic")),
    );
    assert_eq!((told.attempts(), told.waits()), (3, vec![1_000, 2_000]));
}
