//! The key of a call without an outcome: cancelled or dropped, before or after its possible effect.

use std::time::Duration;

use cofferdam::{Cancellation, HostErrorKind};

use super::{count, fetch, host, not_run, post, reported};
use crate::shared_host::{begin, refused, run};

/// Ends the call once the server has received its request.
fn ended(call: cofferdam::Call, path: &str, drops: bool) {
    let (host, cancellation, before) = (host(), Cancellation::new(), count(path));
    let call = call.cancelled_by(&cancellation);
    let running = begin(async move {
        let outcome = host.run(call).await.outcome;
        host.flush().await;
        outcome
    });
    while count(path) == before {
        std::thread::sleep(Duration::from_millis(10));
    }
    match drops {
        true => {
            running.abort();
            assert!(run(running).is_err_and(|error| error.is_cancelled()));
        }
        false => {
            cancellation.cancel();
            assert_eq!(refused(run(running).unwrap()).kind(), HostErrorKind::Cancelled);
        }
    }
}

#[test]
fn a_possible_effect_is_not_repeated() {
    for (path, drops) in [("/hang/cancelled?post", false), ("/hang/dropped?post", true)] {
        ended(post(path), path, drops);
        for _ in 0..2 {
            let error =
                not_run(&host(), post(path), HostErrorKind::OutcomeUnknown, "may have had its effect");
            assert!(error.hint().unwrap().contains("recover skip audit-"), "{error}");
        }
        assert_eq!(count(path), 1);
    }
}

#[test]
fn a_cancelled_idempotent_call_is_repeated() {
    for (path, drops) in [("/hang/cancelled?fetch", false), ("/hang/dropped?fetch", true)] {
        ended(fetch(path), path, drops);
        // It hangs again, which is to say that it ran.
        ended(fetch(path), path, drops);
        let wall = cofferdam::LimitRequest::parse(None, Some("300ms"), None).unwrap();
        let (outcome, report) = reported(&host(), fetch(path).limits(wall));
        assert!(outcome.is_err() && report.replayed.is_none() && report.attempts.len() == 1);
        assert_eq!(count(path), 3);
    }
}

#[test]
fn a_call_that_never_began_frees_its_key() {
    let path = "/text/unbegun?key";
    let cancellation = Cancellation::new();
    cancellation.cancel();
    let error = refused(run(host().run(post(path).cancelled_by(&cancellation))).outcome);
    assert_eq!(error.kind(), HostErrorKind::Cancelled);
    run(host().run(post(path))).outcome.unwrap();
    assert_eq!(count(path), 1);
}

#[test]
fn a_timeout_mid_request_is_unknown_and_listed() {
    let path = "/hang/cut-off?post";
    let wall = || cofferdam::LimitRequest::parse(None, Some("400ms"), None).unwrap();
    let (outcome, report) = reported(&host(), post(path).limits(wall()));
    let failure = crate::shared_host::failed(outcome);
    assert_eq!((failure.code(), failure.retriable(), count(path)), ("wall_time", false, 1));
    let error =
        not_run(&host(), post(path).limits(wall()), HostErrorKind::OutcomeUnknown, "may have had its effect");
    assert!(error.hint().unwrap().contains(report.audit_id.as_str()), "{error}");
    let listed = host().incomplete().unwrap();
    let it = listed.iter().find(|it| it.audit_id == report.audit_id).unwrap();
    assert_eq!((it.resumable, it.reason, it.may_have_sent), (false, "effect_unknown", true), "{it:?}");
    // The operator has looked, and it is not there: the key is free.
    let skip = cofferdam_runtime::flow::SkipRequest {
        actor: "ada".into(),
        reason: "looked".into(),
        frees_key: true,
    };
    run(host().skip(&report.audit_id, skip)).unwrap();
    let (again, _) = reported(&host(), post(path).limits(wall()));
    assert_eq!((crate::shared_host::failed(again).code(), count(path)), ("wall_time", 2));
}
