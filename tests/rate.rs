//! The operator's rate limits, through real calls to a real server.

use std::sync::Arc;
use std::time::Duration;

use cofferdam::{Call, Host};
use cofferdam_core::clock::Clock;
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::{RateLimit, ResilienceSettings};
use cofferdam_runtime::call::AttemptOutcome;
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::{ManualClock, log_capture};
use serde_json::json;

use crate::envelope::{check, limit};
use crate::shared_host::{example, failed, run, shared_host};

/// A host over the shared home with a separate clock, and these settings.
fn host(settings: ResilienceSettings) -> (Host, Arc<ManualClock>) {
    let (world, clock) = (shared_host(), ManualClock::new());
    let builder = world.home.builder_at(&clock).resilience(settings);
    (builder.allow_private(world.upstream.host_port()).build().unwrap(), clock)
}

fn a_minute(requests: u32) -> RateLimit {
    RateLimit::new(requests, Duration::from_secs(60)).unwrap()
}

fn five_minutes() -> LimitRequest {
    LimitRequest::parse(None, Some("5m"), None).unwrap()
}

/// The waits for turns that were announced, in milliseconds.
fn delays(clock: &ManualClock) -> Vec<u64> {
    let steps = clock.steps();
    let delayed = steps.iter().filter(|step| step.name == "rate_delayed");
    delayed.map(|step| step.facts["delay_ms"].as_u64().unwrap()).collect()
}

fn fetch(guest: &str, path: &str) -> Call {
    Call::new(example(guest), "fetch", json!({"url": shared_host().upstream.url(path)}))
}

#[test]
fn the_rate_limit_delays_only_its_own_connector() {
    let (host, clock) = host(ResilienceSettings::default().with_rate(a_minute(30)));
    let url = shared_host().upstream.url("/text/per-minute");
    let calls =
        Call::new(example("probe"), "fetch_many", json!({"url": url, "times": 64})).limits(five_minutes());
    let before = clock.now();
    run(host.run(calls)).outcome.unwrap();
    // Thirty at once, and then one each two seconds, however long each takes.
    assert!(clock.now() - before >= Duration::from_secs((64 - 30) * 2), "{:?}", clock.now() - before);
    assert_eq!(shared_host().upstream.seen("/text/per-minute").len(), 64);
    let delays = delays(&clock);
    assert!(!delays.is_empty() && delays.iter().all(|delay| *delay <= 2_000), "{delays:?}");
    let steps = clock.steps().len();
    let args = json!({"owner": "octocat", "repo": "rate", "title": "Not limited with the other"});
    drop(run(host.run(Call::new(example("github-issues"), "create_issue", args))).outcome);
    assert!(clock.steps()[steps..].iter().all(|step| step.name != "rate_delayed"), "it has its own");
}

#[test]
fn each_request_of_a_burst_waits_separately() {
    let (host, clock) = host(ResilienceSettings::default().with_rate(a_minute(6).with_burst(1).unwrap()));
    let url = shared_host().upstream.url("/text/paced");
    let statuses = Call::new(example("probe"), "fetch_many", json!({"url": url, "times": 3}));
    assert_eq!(run(host.run(statuses)).outcome.unwrap(), json!([200, 200, 200]));
    let delays = delays(&clock);
    assert_eq!(delays.len(), 2, "{delays:?}");
    assert!(
        delays.iter().all(|delay| (1..=10_000).contains(delay)),
        "a sixth of a minute at most: {delays:?}"
    );
    let steps = clock.steps();
    let names: Vec<_> = steps.iter().map(|step| step.name).collect();
    let expected =
        ["received", "admitted", "attempt_started", "rate_delayed", "rate_delayed", "attempt_ended", "final"];
    assert_eq!(names, expected, "told while the attempt runs");
    assert_eq!(steps[3].facts["host"], shared_host().upstream.host_port());
}

#[test]
fn a_call_that_cannot_wait_is_told_the_delay() {
    log_capture::catch();
    let probe = example("probe").name().clone();
    let hourly = RateLimit::new(1, Duration::from_secs(3_600)).unwrap();
    let (host, clock) = host(ResilienceSettings::default().with_rate_for(probe, hourly));
    run(host.run(fetch("probe", "/text/hourly"))).outcome.unwrap();
    let CallResult { outcome, report } = run(host.run(fetch("probe", "/text/hourly")));
    let failure = failed(outcome);
    check(&failure, limit("host_rate_limit"));
    assert_eq!(shared_host().upstream.seen("/text/hourly").len(), 1);
    let details = failure.details();
    assert_eq!((&details["limit"], &details["configured"]), (&json!("rate"), &json!(1)));
    let after = details["retry_after_ms"].as_u64().unwrap();
    assert!((1..=3_600_000).contains(&after), "{after}");
    assert_eq!((&details["used"], &details["period_ms"]), (&json!(1), &json!(3_600_000)));
    assert!(failure.message().contains("rate limit of 1 request in 1 h is used up"), "{}", failure.message());
    let [attempt] = &report.attempts[..] else { panic!("once: {report:?}") };
    let Some(AttemptOutcome::Failure { request_sent, .. }) = attempt.outcome else { panic!("{attempt:?}") };
    assert!(!request_sent, "nothing left");
    assert_eq!((clock.waits_ms(), delays(&clock)), (vec![], vec![]), "it did not wait, and is not retried");
    // It consumed no other call's turn.
    clock.skip(Duration::from_millis(after));
    run(host.run(fetch("probe", "/text/hourly"))).outcome.unwrap();
}

#[test]
fn the_deadline_of_the_call_bounds_the_wait() {
    let (host, clock) = host(ResilienceSettings::default().with_rate(a_minute(1)));
    run(host.run(fetch("probe", "/text/bounded"))).outcome.unwrap();
    let within = |time: &str| {
        let limits = LimitRequest::parse(None, Some(time), None).unwrap();
        run(host.run(fetch("probe", "/text/bounded").limits(limits))).outcome
    };
    check(&failed(within("5s")), limit("host_rate_limit"));
    assert_eq!(within("2m").unwrap()["body"], "bounded");
    assert_eq!(delays(&clock).len(), 1);
}

#[test]
fn concurrent_calls_get_a_turn_each() {
    let (host, clock) = host(ResilienceSettings::default().with_rate(a_minute(60).with_burst(1).unwrap()));
    run(async {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let host = host.clone();
            calls.spawn(async move {
                host.run(fetch("probe", "/text/many").limits(five_minutes())).await.outcome
            });
        }
        for outcome in calls.join_all().await {
            outcome.unwrap();
        }
    });
    assert_eq!(shared_host().upstream.seen("/text/many").len(), 20);
    assert!(delays(&clock).len() <= 19, "whoever waited waited once: {:?}", delays(&clock));
}
