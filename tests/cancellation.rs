//! Dropping a call ends it and its request, and is logged.

#[path = "cancellation/wait_points.rs"]
mod wait_points;

use std::time::{Duration, Instant};

use cofferdam_test_support::{Upstream, log_capture};
use serde_json::json;

use crate::shared_host::{example, run, shared_host};

/// Waits until the server has noticed that the client of `path` disconnected.
#[track_caller]
pub(crate) fn abandoned(upstream: &Upstream, path: &str) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !upstream.seen(path).iter().any(|seen| seen.abandoned) {
        assert!(Instant::now() < patience, "the request to {path} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_dropped_call_is_logged_as_cancelled() {
    let world = shared_host();
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
    let cancelled = log_capture::records(|record| {
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
fn a_dropped_spinning_call_frees_its_slot() {
    let world = shared_host();
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
