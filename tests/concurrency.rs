//! Concurrent calls: a thousand waiting on the network, spinning guests among others, a full host.

use std::time::Duration;

use cofferdam::{Call, Compiler, Host, HostErrorKind};
use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::package::{component, guest_package, manifest, pack};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, Upstream, connector, process};
use serde_json::json;
use tokio::task::JoinSet;

use crate::shared_host::{example, failed, refused, run, shared_host};

/// A separate host with the probe, because these tests depend on its concurrency.
fn host(concurrency: u32, upstream: &Upstream) -> (Home, Host) {
    let home = Home::with_compiler(Compiler::in_process());
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("probe", &[upstream.grant()]);
    let host = home.builder().concurrency(concurrency).allow_private(upstream.host_port()).build().unwrap();
    run(host.install_accepted(package.clone(), Some(signer.sign(&package)), Default::default())).unwrap();
    (home, host)
}

fn within(op: &str, args: serde_json::Value, wall_time: &str) -> Call {
    let limits = LimitRequest::parse(Some(200_000_000_000), Some(wall_time), None).unwrap();
    Call::new(example("probe"), op, args).limits(limits)
}

/// 1,000 requests reach the server before it has answered any, so all calls are in flight at once. Their memory
/// is bounded, and no call has a thread.
#[test]
fn one_process_holds_a_thousand_waiting_calls() {
    const CALLS: usize = 1_000;
    process::raise_open_files();
    let upstream = Upstream::start();
    let (_home, host) = host(1_000, &upstream);
    let fetch = |path: &str| {
        let (host, call) = (host.clone(), within("fetch", json!({"url": upstream.url(path)}), "300s"));
        async move { host.run(call).await.outcome }
    };
    run(fetch("/text/warm")).unwrap();
    let (memory, threads) = (process::resident_bytes(), process::threads());
    run(async {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            calls.spawn(fetch("/hang"));
        }
        while upstream.seen("/hang").len() < CALLS {
            let ended = calls.try_join_next();
            assert!(ended.is_none(), "a call ended before it was answered: {ended:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let each = process::resident_bytes().saturating_sub(memory) / CALLS as u64;
        // About 100 KiB were measured, both ends of the connection included.
        assert!(each < 512 * 1024, "{each} bytes for each waiting call");
        // The rest of the test binary runs meanwhile: there must not be a thread for each call.
        assert!(process::threads() < threads + 100, "{} threads, {threads} before", process::threads());
        calls.shutdown().await;
    });
    run(fetch("/text/after")).unwrap();
}

/// On two threads, 64 guests that never yield by themselves, and one that only sleeps: all are ended by
/// their own deadlines, and none by another's.
#[test]
fn spinning_guests_do_not_delay_other_deadlines() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // A separate host, so that no call waits in the queue.
    let host = shared_host().home.builder().concurrency(66).build().unwrap();
    runtime.block_on(async {
        let mut calls = JoinSet::new();
        for guest in 0..66 {
            let (op, args) = if guest < 64 { ("spin", json!({})) } else { ("sleep", json!({"ms": 60_000})) };
            let (host, call) = (host.clone(), within(op, args, "1s"));
            calls.spawn(async move { host.run(call).await.outcome });
        }
        while let Some(ended) = calls.join_next().await {
            let failure = failed(ended.unwrap());
            assert_eq!(failure.details()["limit"], "wall_time");
            // The measured times are milliseconds. A loaded machine gets a margin; a host whose guests wait for
            // one another needs 32 times as long.
            let used = failure.details()["used"].as_u64().unwrap();
            assert!((1_000..8_000).contains(&used), "{used} ms");
        }
    });
}

/// One running call and 64 queued ones: the next is refused as busy, which is neither a failure of the
/// connector nor a denial, and the queued ones run in turn.
#[test]
fn a_full_host_queues_and_then_reports_busy() {
    let upstream = Upstream::start();
    let (_home, host) = host(1, &upstream);
    run(async {
        let first = host.run(within("fetch", json!({"url": upstream.url("/hang")}), "60s"));
        let mut first = Box::pin(first);
        while upstream.seen("/hang").is_empty() {
            assert!(!advance(&mut first).await, "nobody answers it");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut line: Vec<_> =
            (0..64).map(|_| Box::pin(host.run(within("sleep", json!({"ms": 1}), "60s")))).collect();
        for call in &mut line {
            assert!(!advance(call).await, "it waits for its turn");
        }
        let refused = refused(host.run(within("sleep", json!({"ms": 1}), "60s")).await.outcome);
        assert_eq!(refused.kind(), HostErrorKind::Busy);
        drop(first);
        for call in line {
            call.await.outcome.unwrap();
        }
    });
}

/// With the maximum number of memories per call, two calls need more than the pool of two slots: they take
/// turns, although each has a slot, and neither is refused.
#[test]
fn large_calls_wait_for_pool_space() {
    let part = "(core module $part (memory (export \"memory\") 1))";
    let parts: String = (0..7).map(|at| format!("(core instance $p{at} (instantiate $part))")).collect();
    let body = format!(
        r#"{part} {parts}
        (core module $m (memory (export "memory") 1)
          (func (export "run") (result i32) (local $n i32)
            (local.set $n (i32.const 10000000))
            (loop $again (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
            (i32.const 0)))"#
    );
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "local://test/*");
    let bytes = pack(&component(&body), &manifest("local://test/large", "1.0.0"));
    let host = home.builder().concurrency(2).build().unwrap();
    run(host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default())).unwrap();
    run(async {
        let mut calls = JoinSet::new();
        for _ in 0..12 {
            let (host, large) = (host.clone(), connector("local://test/large@1.0.0"));
            calls.spawn(async move { host.call(&large, "run", json!({})).await });
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap().unwrap();
        }
    });
}

/// Polls once and returns whether it is ready.
async fn advance<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready()))
        .await
}

/// A queued call waits no longer than the call may run, and an action no longer than its own time. The caller
/// has given up by then, and a late run would overlap with its next request.
#[test]
fn queueing_counts_towards_the_wall_time() {
    let upstream = Upstream::start();
    let (_home, host) = host(1, &upstream);
    let long = {
        let (host, call) = (host.clone(), within("fetch", json!({"url": upstream.url("/hang")}), "60s"));
        crate::shared_host::begin(async move { host.run(call).await.outcome })
    };
    while upstream.seen("/hang").is_empty() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let url = upstream.url("/text/late");
    let error = refused(run(host.run(within("fetch", json!({"url": url}), "200ms"))).outcome);
    assert_eq!(error.kind(), HostErrorKind::Busy);
    assert!(error.message().contains("Nothing was run"), "{error}");
    assert!(!long.is_finished(), "it was busy all the time");
    long.abort();
    assert_eq!(upstream.seen("/text/late").len(), 0);
}
