//! Calls without a key of their caller: what only the host's own key keeps from happening twice is repeated under that
//! key alone, and by the same call.

use cofferdam::Cancellation;
use cofferdam_core::failure::{AuditId, FailureClass};
use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::ScriptedReply;

use super::*;
use crate::documents::fixture::script;
use crate::shared_host::begin;

/// Posts once to a path of the server, with the key of the call.
fn order(path: &str) -> Call {
    let args = json!({"url": shared_host().upstream.url(path), "body": "b", "labels": ["only"]});
    Call::new(example("probe"), "order", args).retry(RetryProfile::named("none").unwrap())
}

#[test]
fn a_minted_key_repeats_the_same_call() {
    let path = "/flaky/2/same-call";
    let (first, report) = reported(&host(), order(path));
    let (first, key) = (failed(first), report.audit_id);
    assert!(!first.retriable() && report.attempts[0].relies_on_key, "{first}");
    assert_eq!(first.details()["repeat_with_key"], key.as_str());
    for part in [first.message(), first.details()["suggestion"].as_str().unwrap()] {
        assert!(part.contains("idempotency key"), "{part}");
    }
    let stored = host().replay(&key).unwrap().outcome.unwrap_err();
    assert_eq!(serde_json::to_string(&stored).unwrap(), serde_json::to_string(&first).unwrap());
    // From now on it is a call with a key, like any other.
    let again = || reported(&host(), order(path).idempotency_key(key.as_str()));
    let second = failed(again().0);
    assert!(second.retriable() && !second.details().contains_key("repeat_with_key"), "{second}");
    let value = again().0.unwrap();
    let (replayed, report) = again();
    assert_eq!((replayed.unwrap(), report.replayed.is_some()), (value, true));
    let seen = shared_host().upstream.seen(path);
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys, vec![format!("{key}:only"); 3]);
}

#[test]
fn a_call_that_was_cut_off_names_its_key() {
    let path = "/slow/1500/minted-slow";
    let limits = |time| LimitRequest::parse(None, Some(time), None).unwrap();
    let failure = failed(reported(&host(), order(path).limits(limits("500ms"))).0);
    let key = failure.audit_id().as_str();
    assert_eq!((failure.class(), failure.retriable()), (FailureClass::ResourceLimitExceeded, false));
    assert_eq!(failure.details()["repeat_with_key"], key, "{failure}");
    assert!(failure.message().contains("`--wall-time`") && failure.message().contains(key), "{failure}");
    reported(&host(), order(path).limits(limits("20s")).idempotency_key(key)).0.unwrap();
    let seen = shared_host().upstream.seen(path);
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys, vec![format!("{key}:only"); 2]);
    let read = Call::new(example("probe"), "fetch", json!({"url": shared_host().upstream.url("/slow/1500")}));
    let read = failed(reported(&host(), read.limits(limits("500ms"))).0);
    assert!(!read.details().contains_key("repeat_with_key"), "{read}");
}

/// No key makes it safe to repeat such a call, so the failure names none.
#[test]
fn a_cut_off_call_that_must_not_be_repeated_warns() {
    let path = "/hang/warned";
    let limits = LimitRequest::parse(None, Some("400ms"), None).unwrap();
    let args = json!({"url": shared_host().upstream.url(path), "body": "b"});
    let failure = failed(reported(&host(), Call::new(example("probe"), "post", args).limits(limits)).0);
    let details = failure.details();
    assert_eq!((failure.code(), details.get("repeat_with_key")), ("wall_time", None), "{failure}");
    assert!(failure.message().contains("may have had its effect"), "{failure}");
    assert!(details["suggestion"].as_str().unwrap().contains("Look at the service"), "{failure}");
}

#[test]
fn a_cancelled_call_names_its_key() {
    let (_, path) = script(&shared_host().upstream, [ScriptedReply::hang(), ScriptedReply::status(200)]);
    let cancellation = Cancellation::new();
    let (host_of_first, call) = (host(), order(&path).cancelled_by(&cancellation));
    let running = begin(async move { host_of_first.run(call).await.outcome });
    while count(&path) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    cancellation.cancel();
    let error = refused(run(running).unwrap());
    let key = error.details()["repeat_with_key"].as_str().unwrap();
    assert_eq!((error.kind(), key), (HostErrorKind::Cancelled, error.request_id().as_str()));
    assert!(error.hint().unwrap().contains(key), "{error}");
    reported(&host(), order(&path).idempotency_key(key)).0.unwrap();
    let seen = shared_host().upstream.seen(&path);
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys, vec![format!("{key}:only"); 2]);
}

#[test]
fn a_minted_key_is_for_its_own_call_alone() {
    let path = "/status/503?own-call";
    let key = failed(reported(&host(), order(path)).0).audit_id().to_string();
    let other = "/status/503?another-call";
    for call in [order(other), order(path).actor("somebody else"), fetch(path)] {
        let call = call.idempotency_key(&key);
        let error = not_run(&host(), call, HostErrorKind::IdempotencyConflict, "for another call");
        assert!(!error.hint().unwrap().contains("give another key"), "{error}");
    }
    // No failure names these keys.
    let read =
        Call::new(example("probe"), "fetch", json!({"url": shared_host().upstream.url("/drop?minted")}));
    let read = failed(reported(&host(), read.retry(RetryProfile::named("none").unwrap())).0);
    assert!(read.retriable() && !read.details().contains_key("repeat_with_key"), "{read}");
    let (value, done) = reported(&host(), order("/text/done-call"));
    value.unwrap();
    for key in [read.audit_id(), &done.audit_id, &AuditId::mint()] {
        let call = order("/text/done-call").idempotency_key(key.as_str());
        let error = not_run(&host(), call, HostErrorKind::Validation, "No failure that is stored");
        assert!(error.hint().unwrap().contains("look at the service"), "{error}");
    }
    let call = order("/text/done-call").idempotency_key("audit-mine");
    not_run(&host(), call, HostErrorKind::Validation, "begins like one");
    assert_eq!((count(path), count(other), count("/text/done-call")), (1, 0, 1));
}

#[test]
fn an_outcome_that_is_not_kept_names_no_key() {
    let forgetful = host_with(|builder| builder.keep_results(false));
    let failure = failed(reported(&forgetful, order("/status/503?minted-forgotten")).0);
    assert!(!failure.retriable() && !failure.details().contains_key("repeat_with_key"), "{failure}");
    assert!(failure.details()["suggestion"].as_str().unwrap().starts_with("Look at the service"));
    let given = order("/status/503?minted-given").idempotency_key("minted-given");
    assert!(failed(reported(&forgetful, given).0).retriable());
}

#[test]
fn a_chain_is_repeated_under_the_minted_key() {
    let (first, second) = ("/flaky/1/minted-chain", "/flaky/2/minted-chain");
    let call = || {
        let other = json!({"url": shared_host().upstream.url(second)}).as_object().unwrap().clone();
        order(first).or_else(cofferdam::Fallback::new(example("probe"), "order").with_args(other))
    };
    let failure = failed(reported(&host(), call()).0);
    let key = failure.audit_id().as_str();
    assert_eq!((failure.retriable(), &failure.details()["repeat_with_key"]), (false, &json!(key)));
    reported(&host(), call().idempotency_key(key)).0.unwrap();
    let sent = |path: &str| {
        let seen = shared_host().upstream.seen(path);
        seen.iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sent(first), vec![format!("{key}:only"); 2]);
    assert_eq!(sent(second), [format!("{key}~1:only")]);
}
