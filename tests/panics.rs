//! A panic in the host's own code, in a gate: the call fails as the host's fault, and the process continues.
//!
//! The causes are real: a clock and a resolver that the embedder supplies, and that panic.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cofferdam::{Call, Error, FailureBoundary, FailureClass, Host};
use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_egress::egress::{Resolve, ResolveError};
use cofferdam_test_support::{Home, Signer, log_capture, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{Expected, check};
use crate::shared_host::{example, failed, run};

/// The host's own fault.
const INTERNAL: Expected = Expected {
    class: FailureClass::ConnectorRuntimeError,
    boundary: FailureBoundary::Runtime,
    retriable: false,
    code: "internal",
};

/// A clock that panics when it is read for the n-th time since it was armed.
#[derive(Default)]
struct Fragile {
    reads: AtomicU64,
    panics_at: AtomicU64,
}

impl Fragile {
    fn arm(&self, read: u64) {
        self.reads.store(0, Ordering::SeqCst);
        self.panics_at.store(read, Ordering::SeqCst);
    }
}

impl Clock for Fragile {
    fn now(&self) -> Instant {
        let read = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        assert_ne!(read, self.panics_at.load(Ordering::SeqCst), "the clock is broken");
        SystemClock.now()
    }

    fn timestamp(&self) -> jiff::Timestamp {
        SystemClock.timestamp()
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        SystemClock.sleep_until(deadline)
    }
}

/// A resolver that panics on demand.
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

/// A host of the example `probe`, which may reach one name.
fn host(configure: impl FnOnce(cofferdam::HostBuilder) -> cofferdam::HostBuilder) -> (Home, Host) {
    log_capture::catch();
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let bytes = package::guest_package("probe", &["http://service.test:80".to_owned()]);
    run(home.install(&bytes, &signer)).unwrap();
    let host = configure(home.builder()).build().unwrap();
    (home, host)
}

/// The outcome of a call in a separate task, like in a server. None if the task panicked.
fn served(host: &Host, op: &str, args: Value) -> Option<Result<Value, Error>> {
    let (host, call) = (host.clone(), Call::new(example("probe"), op, args));
    run(async move { tokio::spawn(async move { host.run(call).await.outcome }).await }).ok()
}

#[test]
fn a_panicking_clock_does_not_break_the_next_call() {
    let clock = Arc::new(Fragile::default());
    let (_home, host) = host(|builder| builder.clock(Arc::clone(&clock) as Arc<dyn Clock>));
    let works = |read: u64| {
        clock.arm(0);
        let facts = served(&host, "call_info", json!({})).expect("no panic").unwrap();
        assert_eq!(facts["attempt"], 1, "after a panic at reading {read}");
        clock.reads.load(Ordering::SeqCst)
    };
    works(0);
    let readings = works(0);
    let mut in_the_guest = 0;
    for read in 1..=readings {
        clock.arm(read);
        let outcome = served(&host, "call_info", json!({}));
        // Before and after the guest runs a panic is the task's, as that of any library; while it runs it is
        // the call's.
        if let Some(Err(error)) = outcome {
            let failure = failed(Err(error));
            check(&failure, INTERNAL);
            let record = log_capture::record_of(failure.audit_id().as_str());
            assert!(record.get("notes").unwrap().contains("the clock is broken"), "{record:?}");
            in_the_guest += 1;
        }
        works(read);
    }
    assert!(in_the_guest > 0, "none of {readings} readings was in a gate");
}

#[test]
fn a_panic_in_the_http_gate_ends_only_the_call() {
    let resolver = Arc::new(Rotten::default());
    let (_home, host) = host(|builder| builder.resolver(Arc::clone(&resolver) as Arc<dyn Resolve>));
    let fetch = || served(&host, "fetch", json!({"url": "http://service.test/"})).expect("no panic");
    for _ in 0..3 {
        resolver.0.store(true, Ordering::SeqCst);
        let failure = failed(fetch());
        check(&failure, INTERNAL);
        let seen = serde_json::to_string(&failure).unwrap();
        assert!(!seen.contains("broken"), "{seen}");
        assert!(failure.operator_notes().join("; ").contains("panic: "), "{:?}", failure.operator_notes());
        resolver.0.store(false, Ordering::SeqCst);
        assert_eq!(failed(fetch()).class(), FailureClass::NetworkError);
    }
}
