//! One key, one effect: the result of a call whose idempotency key was used before, in one process and in
//! several.
//!
//! The effect is a request that a real server counts.

mod cancelled;
mod clock;
mod command;
mod concurrent;
mod minted;

use std::sync::Arc;
use std::time::Duration;

use cofferdam::{Call, Error, Host, HostBuilder, HostError, HostErrorKind, Report};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_runtime::call::CallResult;
use cofferdam_runtime::call::OnKeyConflict;
use cofferdam_test_support::{ManualClock, connector};
use serde_json::{Value, json};

use crate::shared_host::{example, failed, refused, run, shared_host};

/// A separate host over the shared home, with further configuration.
fn host_with(configure: impl FnOnce(HostBuilder) -> HostBuilder) -> Host {
    let world = shared_host();
    configure(world.home.builder().allow_private(world.upstream.host_port())).build().unwrap()
}

fn host() -> Host {
    host_with(|builder| builder)
}

/// Posts to a path of the server, which is not to be repeated, under a key of the path's own.
fn post(path: &str) -> Call {
    let args = json!({"url": shared_host().upstream.url(path), "body": "b"});
    Call::new(example("probe"), "post", args).idempotency_key(key(path))
}

/// Gets a path of the server, once for each call, under a key of the path's own.
fn fetch(path: &str) -> Call {
    let call = Call::new(example("probe"), "fetch", json!({"url": shared_host().upstream.url(path)}));
    call.idempotency_key(key(path)).retry(RetryProfile::named("none").unwrap())
}

fn key(path: &str) -> String {
    path.chars().filter(|c| *c != ':').collect()
}

fn count(path: &str) -> usize {
    shared_host().upstream.seen(path).len()
}

fn reported(host: &Host, call: Call) -> (Result<Value, Error>, Report) {
    let CallResult { outcome, report } = run(host.run(call));
    (outcome, report)
}

/// The error of a call that nothing was run for.
#[track_caller]
fn not_run(host: &Host, call: Call, kind: HostErrorKind, words: &str) -> HostError {
    let (outcome, report) = reported(host, call);
    let error = refused(outcome);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(words), "{error}");
    assert!(report.attempts.is_empty() && report.replayed.is_none());
    error
}

#[test]
fn a_value_is_replayed_in_the_same_bytes() {
    let path = "/text/again?value";
    let first = host();
    let (value, report) = reported(&first, post(path));
    let value = value.unwrap();
    assert_eq!((report.attempts.len(), &report.replayed), (1, &None));
    let of = report.audit_id;
    for host in [first.clone(), host()] {
        let (again, report) = reported(&host, post(path));
        assert_eq!(again.unwrap(), value);
        assert_eq!((report.replayed, report.attempts.len()), (Some(of.clone()), 0));
        assert_ne!(report.audit_id, of, "the replaying call has a record of its own");
        let text = run(host.run_text(post(path))).outcome.unwrap();
        assert_eq!(text, serde_json::to_string(&value).unwrap());
    }
    // The connector's later state does not matter: nothing of it is needed.
    let other = Call::from_text(
        connector("github://cofferdam/probe@9.9.9"),
        "post",
        format!(
            r#" {{"body": "\u0062", "url": {}, "none": null}} "#,
            json!(shared_host().upstream.url(path))
        ),
    );
    assert_eq!(reported(&first, other.idempotency_key(key(path))).0.unwrap(), value);
    assert_eq!(count(path), 1);
}

#[test]
fn a_final_failure_is_replayed_byte_for_byte() {
    for (path, call) in [
        ("/status/404?again", fetch as fn(&str) -> Call),
        ("/status/403?again", post),
        // That a service may be back later does not make it safe to post again.
        ("/status/503?again", post),
        ("/drop?again", post),
    ] {
        let first = failed(run(host().run(call(path))).outcome);
        assert!(!first.retriable(), "{path}: {first}");
        let is_said = first.message().contains("stands under its idempotency key");
        assert_eq!(is_said, first.code() == "auth", "what seems to help does not, under this key: {first}");
        let (again, report) = reported(&host(), call(path));
        let again = failed(again);
        assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&first).unwrap());
        assert_eq!((again.cause(), again.operator_notes()), (first.cause(), first.operator_notes()));
        assert_eq!(report.replayed.as_ref(), Some(first.audit_id()));
        assert_eq!(count(path), 1, "{path}");
    }
}

#[test]
fn a_transient_failure_does_not_settle_its_key() {
    let path = "/flaky/2/key";
    for n in 1..=2 {
        assert!(failed(run(host().run(fetch(path))).outcome).retriable());
        assert_eq!(count(path), n);
    }
    let value = run(host().run(fetch(path))).outcome.unwrap();
    let (again, report) = reported(&host(), fetch(path));
    assert_eq!((again.unwrap(), report.replayed.is_some(), count(path)), (value, true, 3));
}

/// A failure that the caller or the operator can mend is not kept under its key, unless an effect could happen twice.
#[test]
fn a_failure_that_can_be_mended_frees_its_key() {
    for (path, fuel) in
        [("/status/401", None), ("/status/403", None), ("/status/402", None), ("/text/x", Some(100))]
    {
        let path = format!("{path}?mended");
        for call in [fetch(&path), post(&path)] {
            let is_repeated = call.op() == "fetch" || fuel.is_some();
            let call = call.limits(cofferdam::LimitRequest::parse(fuel, None, None).unwrap());
            let call = call.clone().idempotency_key(format!("mended-{}-{path}", call.op()));
            let run = || reported(&host(), call.clone());
            let (first, _) = run();
            let (again, report) = run();
            assert_eq!(report.replayed.is_none(), is_repeated, "{path}");
            assert_eq!(failed(first).code(), failed(again).code());
        }
    }
}

#[test]
fn a_rejected_call_leaves_its_key_free() {
    let path = "/text/refused?key";
    let wrong =
        Call::new(example("probe"), "post", json!({"url": shared_host().upstream.url(path), "body": 1}));
    not_run(&host(), wrong.idempotency_key(key(path)), HostErrorKind::Validation, "do not fit");
    let unknown = Call::from_text(example("probe"), "post", "no JSON").idempotency_key(key(path));
    not_run(&host(), unknown, HostErrorKind::Validation, "do not fit");
    run(host().run(post(path))).outcome.unwrap();
    assert_eq!(count(path), 1);
}

#[test]
fn another_call_with_the_same_key_is_refused() {
    let path = "/text/other?key";
    let host = host();
    run(host.run(post(path))).outcome.unwrap();
    let url = shared_host().upstream.url(path);
    let with = |op: &str, args: Value| Call::new(example("probe"), op, args).idempotency_key(key(path));
    for call in [
        with("post", json!({"url": url, "body": "c"})),
        with("fetch", json!({"url": url})),
        with("post", json!({"url": url})),
        post(path).identity("slack", "work"),
        post(path).actor("somebody else"),
        post(path).step_of("notify", "one"),
        Call::new(example("hello"), "post", json!({"url": url, "body": "b"})).idempotency_key(key(path)),
    ] {
        let error = not_run(&host, call, HostErrorKind::IdempotencyConflict, "another call");
        assert!(error.details().contains_key("call"));
    }
    assert_eq!(count(path), 1);
    run(host.run(post(path).actor("host"))).outcome.unwrap();
}

#[test]
fn an_outcome_expires_when_the_operator_says() {
    let path = "/text/ttl?key";
    let clock = ManualClock::new();
    let world = shared_host();
    let builder = world.home.builder_at(&clock).allow_private(world.upstream.host_port());
    let host = builder.key_ttl(Duration::from_secs(3_600)).build().unwrap();
    run(host.run(post(path))).outcome.unwrap();
    clock.skip(Duration::from_secs(3_000));
    assert!(reported(&host, post(path)).1.replayed.is_some());
    clock.skip(Duration::from_secs(1_200));
    // Given with another call now, it is that one's.
    let other = Call::new(example("probe"), "fetch", json!({"url": world.upstream.url(path)}));
    let (outcome, report) = reported(&host, other.idempotency_key(key(path)));
    assert!(outcome.is_ok() && report.replayed.is_none());
    assert_eq!(count(path), 2);
    not_run(&host, post(path), HostErrorKind::IdempotencyConflict, "another call");
    let names: Vec<_> = clock.steps().into_iter().map(|step| step.name).collect();
    assert_eq!(names[5..8], ["received", "replayed", "final"]);
}

#[test]
fn a_key_holds_even_without_stored_results() {
    let path = "/text/kept?key";
    let host = host_with(|builder| builder.keep_results(false));
    run(host.run(post(path))).outcome.unwrap();
    let error = not_run(&host, post(path), HostErrorKind::OutcomeUnknown, "not kept");
    assert!(error.hint().unwrap().contains("audit show"), "{error}");
    assert_eq!(count(path), 1);
}

#[test]
fn a_running_key_is_refused_or_waited_for() {
    let path = "/slow/1500/running";
    let host = Arc::new(host());
    let running = {
        let (host, call) = (Arc::clone(&host), post(path));
        crate::shared_host::begin(async move { host.run(call).await.outcome })
    };
    while count(path) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let refuse = post(path).if_running(OnKeyConflict::Refuse);
    let error = not_run(&host, refuse, HostErrorKind::InProgress, "still running");
    assert_eq!(error.kind(), HostErrorKind::InProgress);
    let short = cofferdam::LimitRequest::parse(None, Some("100ms"), None).unwrap();
    not_run(&host, post(path).limits(short), HostErrorKind::InProgress, "was over");
    let (outcome, report) = reported(&host, post(path));
    assert_eq!(outcome.unwrap(), run(running).unwrap().unwrap());
    assert!(report.replayed.is_some());
    assert_eq!(count(path), 1);
}
