//! Dropping a call ends it: the guest, its request, and the record says so.

#[path = "cancellation/moments.rs"]
mod moments;

use std::time::{Duration, Instant};

use cofferdam_test_support::{Upstream, records};
use serde_json::json;

use crate::world::{example, run, world};

/// Waits until the server has noticed that whoever asked for `path` went away.
#[track_caller]
pub(crate) fn abandoned(upstream: &Upstream, path: &str) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !upstream.seen(path).iter().any(|seen| seen.abandoned) {
        assert!(Instant::now() < patience, "the request to {path} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_dropped_call_ends_its_request_and_is_recorded_as_cancelled() {
    let world = world();
    let url = world.upstream.url("/hang/cancelled");
    run(async {
        let host = world.host.clone();
        let task =
            tokio::spawn(async move { host.call(&example("probe"), "fetch", json!({"url": url})).await });
        while world.upstream.seen("/hang/cancelled").is_empty() {
            assert!(!task.is_finished(), "the call ended by itself: {:?}", task.await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
    abandoned(&world.upstream, "/hang/cancelled");
    let cancelled = records::records(|record| {
        record.get("outcome") == Some("cancelled")
            && record.get("op") == Some("fetch")
            && record.get("connector") == Some("github://cofferdam/probe@0.1.0")
    });
    assert!(!cancelled.is_empty());
    assert!(cancelled.iter().all(|record| record.get("class").is_none()), "a cancellation is not a failure");
    assert_eq!(
        world.value("probe", "fetch", json!({"url": world.upstream.url("/text/after")}))["body"],
        "after"
    );
}

#[test]
fn a_dropped_call_that_spins_frees_its_place() {
    let world = world();
    run(async {
        let probe = example("probe");
        for _ in 0..40 {
            let call = world.host.call(&probe, "spin", json!({}));
            let ended = tokio::time::timeout(Duration::from_millis(10), call).await;
            assert!(ended.is_err(), "it was to be dropped: {ended:?}");
        }
        world.host.call(&example("hello"), "greet", json!({"name": "Ada"})).await.unwrap();
    });
}
