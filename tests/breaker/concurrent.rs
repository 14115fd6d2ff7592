//! Many tasks at one circuit: one of them probes the host, and after any end of it the next one can.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam::Cancellation;
use cofferdam_egress::egress::{Resolve, ResolveError};
use cofferdam_egress::resilience::RetryProfile;
use serde_json::json;
use tokio::task::JoinSet;

use super::fixture::{NAMED, stage, stage_with};
use crate::cancellation::abandoned;
use crate::shared_host::{failed, run};

const CALLS: usize = 200;

/// 200 concurrent calls at a half-open circuit send one request.
#[test]
fn one_of_many_calls_probes_a_half_open_circuit() {
    let stage = stage_with(|builder| builder.concurrency(256));
    stage.fails("/status/503");
    stage.skip(30);
    run(async {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let (host, call) = (stage.host.clone(), stage.fetch("/hang/probe"));
            calls.spawn(async move { host.run(call).await.outcome });
        }
        // The server does not answer the probe; all other calls are refused at once.
        for _ in 1..CALLS {
            let failure = failed(calls.join_next().await.unwrap().unwrap());
            assert_eq!(failure.code(), "circuit_open");
            assert_eq!(failure.details()["circuit"]["state"], "half_open");
            assert_eq!(failure.details()["circuit"]["retry_after_ms"], 1000);
        }
        while stage.count("/hang/probe") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!((calls.len(), stage.count("/hang/probe")), (1, 1));
        // The one that holds the probe is dropped: the next one tries.
        calls.shutdown().await;
    });
    assert_eq!(stage.count("/hang/probe"), 1);
    stage.answers();
    assert_eq!(stage.state(), "closed");
}

/// As many calls fail at once at a closed circuit: it opens once, for one of them. Their profile repeats none of
/// them: the clock jumps ahead by each wait, and the waits of all calls are longer than a circuit is open.
#[test]
fn concurrent_failures_open_the_circuit_once() {
    let stage = stage_with(|builder| builder.concurrency(256));
    run(async {
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            let profile = RetryProfile::named("failover-windowed").unwrap();
            let (host, call) = (stage.host.clone(), stage.fetch("/status/503").retry(profile));
            calls.spawn(async move { host.run(call).await.outcome });
        }
        let mut opened_by = Vec::new();
        let mut refused = Vec::new();
        while let Some(ended) = calls.join_next().await {
            let failure = failed(ended.unwrap());
            match failure.code() {
                "circuit_open" => refused.push(failure.details()["circuit"]["cause_audit_id"].clone()),
                _ => opened_by.push(json!(failure.audit_id().as_str())),
            }
        }
        assert!(refused.iter().all(|audit_id| opened_by.contains(audit_id)), "{refused:?} {opened_by:?}");
    });
    let opened = stage.changes();
    assert!(
        opened.iter().all(|(from, to, _)| (from.as_str(), to.as_str()) == ("closed", "open")),
        "{opened:?}"
    );
    assert_eq!(opened.len(), 1, "{opened:?}");
}

/// Cancelled in either way, the probe is released at once.
#[test]
fn a_cancelled_probe_lets_the_next_one_try() {
    let stage = stage();
    stage.fails("/status/503");
    stage.skip(30);
    for (way, path) in ["/hang/token", "/hang/dropped"].into_iter().enumerate() {
        run(async {
            let cancellation = Cancellation::new();
            let (host, call) = (stage.host.clone(), stage.fetch(path).cancelled_by(&cancellation));
            let probe = tokio::spawn(async move { host.run(call).await.outcome });
            while stage.count(path) == 0 {
                assert!(!probe.is_finished(), "{:?}", probe.await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let refused = failed(stage.host.run(stage.fetch("/text/a")).await.outcome);
            assert_eq!(refused.details()["circuit"]["state"], "half_open");
            match way {
                0 => cancellation.cancel(),
                _ => probe.abort(),
            }
            drop(probe.await);
        });
        abandoned(stage.upstream, path);
        assert_eq!(stage.state(), "half_open", "a cancellation is no failure of the host");
    }
    assert_eq!(stage.count("/text"), 0);
    stage.answers();
    assert_eq!(stage.state(), "closed");
}

/// A resolver that finds nothing, or panics.
#[derive(Default)]
struct Rotten(AtomicBool);

impl Resolve for Rotten {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<std::net::IpAddr>, ResolveError>> + Send + 'a>> {
        assert!(!self.0.load(Ordering::SeqCst), "the resolver is broken");
        Box::pin(async { Err(ResolveError::NotFound) })
    }
}

#[test]
fn a_probe_that_panics_lets_the_next_one_try() {
    let resolver = Arc::new(Rotten::default());
    let stage = stage_with(|builder| builder.resolver(Arc::clone(&resolver) as Arc<dyn Resolve>));
    let fetch = || failed(stage.run(stage.call("fetch", json!({"url": format!("http://{NAMED}/")}))));
    assert_eq!(fetch().code(), "dns_not_found");
    assert_eq!(fetch().code(), "circuit_open");
    stage.skip(30);
    for _ in 0..3 {
        resolver.0.store(true, Ordering::SeqCst);
        assert_eq!(fetch().code(), "internal");
        assert_eq!(stage.circuit_at(NAMED).unwrap().state, "half_open");
    }
    resolver.0.store(false, Ordering::SeqCst);
    assert_eq!(fetch().code(), "dns_not_found", "the next one tries");
    assert_eq!(fetch().code(), "circuit_open", "and has told");
}
