//! The circuit breaker through the real pipeline: a real guest, a real server that counts, time that is skipped.

#[path = "breaker/concurrent.rs"]
mod concurrent;
#[path = "breaker/files.rs"]
mod files;
#[path = "breaker/fixture.rs"]
mod fixture;
#[path = "breaker/processes.rs"]
mod processes;

use std::time::Duration;

use cofferdam::{Call, FailureClass};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::RetryProfile;
use serde_json::json;

use crate::shared_host::{begin, example, failed, run};
use fixture::{Stage, stage};

/// A blocked request fails with the class of the circuit's cause, and with all its details.
#[test]
fn an_open_circuit_fails_fast_with_its_cause() {
    let stage = stage();
    let first = stage.fails("/status/503/first");
    assert_eq!(stage.count("/status/503/first"), 3, "three attempts are one visit");
    assert_eq!(first.details()["retry_stopped"], "max_attempts");

    let second = stage.is_refused("/status/503/second", "open");
    assert_eq!(stage.count("/status/503/second"), 0, "nothing was sent");
    assert_eq!(second.class(), FailureClass::ExternalApiError);
    assert!(second.retriable());
    let details = second.details();
    assert_eq!(details["host"], stage.upstream.host_port());
    assert_eq!((&details["status"], &details["request_sent"]), (&json!(503), &json!(false)));
    assert!(!details.contains_key("retried"), "an open circuit is never waited for: {details:?}");
    let circuit = details["circuit"].as_object().unwrap();
    let keys: Vec<_> = circuit.keys().map(String::as_str).collect();
    assert_eq!(keys, ["state", "opened_at", "retry_after_ms", "cause_code", "cause_audit_id"]);
    assert_eq!(circuit["cause_code"], "unavailable");
    assert_eq!(circuit["cause_audit_id"], first.audit_id().as_str());
    assert!((1..=30_000).contains(&circuit["retry_after_ms"].as_u64().unwrap()), "{circuit:?}");
    assert_eq!(details["retry_after_ms"], circuit["retry_after_ms"], "where every failure has it");
    circuit["opened_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(stage.changes(), [("closed".into(), "open".into(), json!("unavailable"))]);
}

#[test]
fn a_circuit_without_a_response_is_a_network_error() {
    let stage = stage();
    assert_eq!(stage.fails("/drop").class(), FailureClass::NetworkError);
    let refused = stage.is_refused("/text/a", "open");
    assert_eq!(refused.class(), FailureClass::NetworkError);
    assert!(!refused.details().contains_key("status"));
    stage.skip(30);
    // A truncated body is not a good response, whatever its head said.
    assert_eq!(stage.fails("/early-close").class(), FailureClass::NetworkError);
    stage.is_refused("/text/a", "open");
}

/// An operation that must not be repeated was refused before anything of it was sent.
#[test]
fn calls_blocked_by_a_circuit_are_retriable() {
    let stage = stage();
    stage.fails("/status/503");
    let post = stage.call("post", json!({"url": stage.upstream.url("/text/a"), "body": "once"}));
    let refused = failed(stage.run(post));
    assert_eq!(refused.code(), "circuit_open");
    assert!(refused.retriable());
    assert_eq!(stage.count("/text"), 0);
}

/// Each category with its cooldown, the probe and its result, through the pipeline.
#[test]
fn the_call_after_the_cooldown_is_the_probe() {
    let stage = stage();
    for (path, closed_for, code) in [
        ("/status/503", 30, "unavailable"),
        ("/status/500", 30, "unavailable"),
        ("/status/408", 30, "timeout"),
        ("/status/429", 30, "rate_limited"),
        ("/status/429?retry_after=200", 170, "rate_limited"),
        ("/drop", 30, "network_error"),
    ] {
        let call = stage.fetch(path).retry(RetryProfile::named("failover").unwrap());
        failed(stage.run(call.limits(LimitRequest::parse(None, Some("5m"), None).unwrap())));
        assert_eq!(stage.state(), "open", "{path}");
        let refused = stage.is_refused("/text/no", "open");
        assert_eq!(refused.details()["circuit"]["cause_code"], code);
        let wait = refused.details()["circuit"]["retry_after_ms"].as_u64().unwrap();
        assert!(wait <= closed_for * 1000, "{path}: {wait} ms");
        stage.skip(closed_for - 20);
        stage.is_refused("/text/no", "open");
        stage.skip(20);
        assert_eq!(stage.state(), "half_open", "{path}");
        let before = stage.count("/status/503/probe");
        assert!(failed(stage.run(stage.fetch("/status/503/probe"))).code() == "unavailable");
        assert_eq!(stage.count("/status/503/probe") - before, 1, "the probe is one attempt");
        stage.is_refused("/text/no", "open");
        stage.skip(30);
        stage.answers();
        assert_eq!(stage.circuit(), None, "{path}: nothing is left of it");
    }
    assert_eq!(stage.count("/text/no"), 0);
    let changes = stage.changes();
    let words: Vec<_> = changes.iter().map(|(from, to, _)| (from.as_str(), to.as_str())).collect();
    let round = [
        ("closed", "open"),
        ("open", "half_open"),
        ("half_open", "open"),
        ("open", "half_open"),
        ("half_open", "closed"),
    ];
    assert_eq!(words, round.repeat(6));
}

/// A call that holds the probe reports why it is not attempted again.
#[test]
fn a_probe_is_not_retried() {
    let stage = stage();
    stage.fails("/status/503");
    stage.skip(30);
    let probe = stage.fails("/status/503/probe");
    assert_eq!(probe.details()["retry_stopped"], "circuit_open");
    assert_eq!(stage.count("/status/503/probe"), 1);
}

/// Failures that the host did not cause leave the circuit unchanged: denials, limits, the guest's own errors.
#[test]
fn denials_limits_and_guest_errors_do_not_count() {
    let stage = stage();
    let quick = LimitRequest::parse(None, Some("700ms"), None).unwrap();
    let fuel = LimitRequest::parse(Some(5_000_000), None, None).unwrap();
    let url = |path: &str| stage.upstream.url(path);
    let persist = json!({"first": url("/text/a"), "denied": "http://denied.test/", "after": url("/text/b"), "times": 3});
    for (call, class) in [
        (stage.call("fetch", json!({"url": "http://denied.test/"})), FailureClass::CapabilityDenied),
        (stage.call("persist", persist), FailureClass::CapabilityDenied),
        (stage.fetch("/hang").limits(quick), FailureClass::ResourceLimitExceeded),
        (stage.call("spin", json!({})).limits(fuel), FailureClass::ResourceLimitExceeded),
        (stage.fetch("/bytes/20000000"), FailureClass::ResourceLimitExceeded),
        (stage.call("panic", json!({"message": "no"})), FailureClass::ConnectorRuntimeError),
        (stage.fetch("/status/400"), FailureClass::ExternalApiError),
        (stage.fetch("/status/403"), FailureClass::ExternalApiError),
        (stage.fetch("/status/404"), FailureClass::ExternalApiError),
        (stage.fetch("/status/409"), FailureClass::ExternalApiError),
    ] {
        let failure = failed(stage.run(call));
        assert_eq!(failure.class(), class, "{failure}");
        assert_eq!(stage.circuit(), None, "{failure}");
    }
    assert!(stage.changes().is_empty());
    stage.answers();
}

/// A probe whose result does not count decides nothing, and lets the next one try.
#[test]
fn an_inconclusive_probe_leaves_the_circuit_half_open() {
    let stage = stage();
    stage.fails("/status/503");
    stage.skip(30);
    let quick = LimitRequest::parse(None, Some("500ms"), None).unwrap();
    let failure = failed(stage.run(stage.fetch("/hang").limits(quick)));
    assert_eq!(failure.class(), FailureClass::ResourceLimitExceeded);
    assert_eq!(stage.state(), "half_open");
    stage.answers();
    assert_eq!(stage.state(), "closed");
    let told: Vec<_> = stage.changes().into_iter().map(|(from, to, _)| format!("{from} {to}")).collect();
    assert_eq!(
        told,
        ["closed open", "open half_open", "half_open open", "open half_open", "half_open closed"]
    );
}

/// A probe's failure names no retry delay: the circuit decides when the next probe is sent.
#[test]
fn a_failed_probe_promises_no_retry_delay() {
    let stage = stage();
    stage.fails("/status/503");
    stage.skip(31);
    let failure = stage.fails("/status/503/probe");
    assert_eq!(failure.details()["retry_stopped"], "circuit_open");
    assert!(!failure.details().contains_key("retry_after_ms"), "{failure}");
    assert_eq!(stage.count("/status/503/probe"), 1);
}

/// 401 and 402 concern a credential: a refused call without one blocks no other call.
#[test]
fn calls_without_a_credential_block_no_others() {
    let stage = stage();
    assert_eq!(stage.fails("/status/401").code(), "auth");
    assert_eq!(stage.fails("/status/402").code(), "payment_required");
    assert_eq!(stage.count("/status/402"), 1, "and it is not retried");
    stage.answers();
    assert_eq!(stage.circuit(), None);
}

/// A connector that waits for a moment only has learned nothing about the host.
#[test]
fn a_guest_timeout_does_not_count_against_the_host() {
    let stage = stage();
    let args =
        json!({"url": stage.upstream.url("/slow/400"), "body": "x", "labels": ["a"], "patience_ms": 1});
    assert_eq!(failed(stage.run(stage.call("order", args))).code(), "timeout");
    assert_eq!(stage.circuit(), None);
    stage.answers();
}

/// Without a breaker in the profile or the configuration there is no circuit, and an open one stops no call.
#[test]
fn without_a_breaker_no_circuit_is_kept() {
    let stage = stage();
    let standard =
        |path: &str| Call::new(example("probe"), "fetch", json!({"url": stage.upstream.url(path)}));
    for _ in 0..2 {
        assert_eq!(failed(stage.run(standard("/status/401"))).code(), "auth");
        assert_eq!(failed(stage.run(standard("/status/503"))).code(), "unavailable");
    }
    assert_eq!(stage.circuit(), None);
    stage.fails("/status/503");
    stage.run(standard("/text/a")).unwrap();
    stage.is_refused("/text/b", "open");
}

/// The third failed call within a minute opens it.
#[test]
fn the_windowed_breaker_counts_calls() {
    let stage = stage();
    let windowed = |stage: &Stage, path: &str| {
        let call = stage.fetch(path).retry(RetryProfile::named("failover-windowed").unwrap());
        failed(stage.run(call))
    };
    for expected in ["closed", "closed", "open"] {
        assert_eq!(windowed(&stage, "/status/503/windowed").code(), "unavailable");
        assert_eq!(stage.state(), expected);
    }
    assert_eq!(stage.count("/status/503/windowed"), 3);
    let refused = windowed(&stage, "/status/503/windowed");
    let wait = refused.details()["circuit"]["retry_after_ms"].as_u64().unwrap();
    assert!((60_000..=90_000).contains(&wait), "30 s before two minutes are over: {wait}");
}

/// A retry finds the circuit opened by others: the candidate stops with its own failure.
#[test]
fn a_circuit_opened_by_others_stops_retries() {
    let stage = stage();
    let others = Stage {
        upstream: stage.upstream,
        clock: stage.clock.clone(),
        host: stage.host.clone(),
        own_home: None,
    };
    // The wait that this call announces is skipped; the wait of the machine is what is left of it for the others.
    let slow = cofferdam_test_support::ManualClock::new();
    let host = stage
        .home()
        .builder()
        .listener(slow.clone())
        .clock(std::sync::Arc::new(cofferdam_core::clock::SystemClock));
    let host = host.allow_private(stage.upstream.host_port()).build().unwrap();
    let call = stage.fetch("/status/503/mine");
    let failure = run(async {
        let mine = tokio::spawn(async move { host.run(call).await.outcome });
        while slow.waits_ms().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        failed(others.host.run(others.fetch("/status/503/theirs")).await.outcome);
        failed(mine.await.unwrap())
    });
    assert_eq!(failure.code(), "unavailable");
    assert_eq!(failure.details()["retry_stopped"], "circuit_open");
    assert_eq!(stage.count("/status/503/mine"), 1);
}

#[test]
fn a_host_that_hangs_opens_its_circuit() {
    let stage = stage();
    let hangs = |path: &'static str, call: Call, skipped: u64| {
        let (host, before) = (stage.host.clone(), stage.count(path));
        let running = begin(async move { host.run(call).await.outcome });
        while stage.count(path) == before {
            std::thread::sleep(Duration::from_millis(5));
        }
        stage.clock.skip(Duration::from_secs(skipped));
        assert_eq!(failed(run(running).unwrap()).code(), "wall_time");
    };
    // A call with almost no time says nothing about the host.
    let soon = LimitRequest::parse(None, Some("500ms"), None).unwrap();
    hangs("/hang/soon", stage.fetch("/hang/soon").limits(soon), 0);
    assert_eq!(stage.state(), "closed");
    hangs("/hang/wall", stage.fetch("/hang/wall"), 31);
    let refused = stage.is_refused("/text/a", "open");
    assert_eq!(refused.class(), FailureClass::NetworkError, "like a host whose time to answer was over");
    assert_eq!(refused.details()["circuit"]["cause_code"], "network_error");
}
