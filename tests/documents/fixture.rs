//! The fixture of the documents' tables: a host with its own clock, calls with their complete results, and
//! rows.

use std::ops::RangeInclusive;
use std::sync::Arc;

use cofferdam::{Call, Error, Failure, Host, HostBuilder, Report};
use cofferdam_core::rng::SeededRng;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::{
    Home, InstallAccepted as _, ManualClock, RecordedStep, ScriptedReply, Signer, Upstream, package,
};
use serde_json::{Value, json};

use crate::shared_host::{example, run, shared_host};

/// A host over the shared home, with its own clock and random source. It reaches the shared server.
pub(crate) struct Stage {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) host: Host,
}

/// A call, and all that became of it.
pub(crate) struct CallRecord {
    pub(crate) outcome: Result<Value, Error>,
    pub(crate) report: Report,
    pub(crate) steps: Vec<RecordedStep>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(more: impl FnOnce(HostBuilder) -> HostBuilder) -> Self {
        let clock = ManualClock::new();
        let world = shared_host();
        let builder = world.home.builder_at(&clock).allow_private(world.upstream.host_port());
        let builder = builder.allow_private(format!("localhost:{}", world.closed_port));
        let builder = builder.rng(Arc::new(SeededRng::new(7)));
        Self { host: more(builder).build().unwrap(), clock }
    }

    /// Makes the call; the steps are its own.
    pub(crate) fn call(&self, call: Call) -> CallRecord {
        told(&self.host, &self.clock, call)
    }
}

/// A separate home, with one server, for special manifests and hosts.
pub(crate) struct SeparateHome {
    pub(crate) upstream: Upstream,
    pub(crate) clock: Arc<ManualClock>,
    host: Option<Host>,
    home: Home,
    signer: Signer,
}

impl SeparateHome {
    /// `more` sees everything but the host.
    pub(crate) fn new(more: impl FnOnce(HostBuilder, &Self) -> HostBuilder) -> Self {
        let (home, signer) = (Home::new(crate::COFFERDAM), Signer::new());
        home.trust(&signer.public(), "github://cofferdam/*");
        let (upstream, clock) = (Upstream::start(), ManualClock::new());
        let mut own = Self { upstream, clock, host: None, home, signer };
        let builder = own.home.builder_at(&own.clock).allow_private(own.upstream.host_port());
        let builder = builder.rng(Arc::new(SeededRng::new(7)));
        own.host = Some(more(builder, &own).build().unwrap());
        own
    }

    /// The probe's manifest, with the server as its only host.
    pub(crate) fn manifest(&self) -> String {
        package::with_hosts(&package::guest_manifest("probe"), &[self.upstream.grant()])
    }

    /// Installs the probe with this manifest.
    pub(crate) fn install(&self, manifest: &str) {
        let bytes = package::pack(&package::guest("probe"), manifest);
        let signature = self.signer.sign(&bytes);
        run(self.host().install_accepted(bytes, Some(signature), Default::default())).unwrap();
    }

    pub(crate) fn host(&self) -> &Host {
        self.host.as_ref().unwrap()
    }

    /// Makes the call; the steps are its own.
    pub(crate) fn call(&self, call: Call) -> CallRecord {
        told(self.host(), &self.clock, call)
    }
}

/// Makes the call on `host`, whose steps `clock` records.
pub(crate) fn told(host: &Host, clock: &ManualClock, call: Call) -> CallRecord {
    let CallResult { outcome, report } = run(host.run(call));
    let is_own = |step: &RecordedStep| step.audit_id == report.audit_id.as_str();
    let steps = clock.steps().into_iter().filter(is_own).collect();
    CallRecord { outcome, report, steps }
}

impl CallRecord {
    /// The failure that it has to have.
    #[track_caller]
    pub(crate) fn failure(&self) -> &Failure {
        match &self.outcome {
            Err(Error::Failure(failure)) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }

    /// The waits that were announced, in milliseconds.
    pub(crate) fn waits(&self) -> Vec<u64> {
        let waits = self.steps.iter().filter(|step| step.name == "retry_scheduled");
        waits.map(|step| step.facts["delay_ms"].as_u64().unwrap()).collect()
    }

    /// The names of its steps.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.steps.iter().map(|step| step.name).collect()
    }

    pub(crate) fn attempts(&self) -> usize {
        self.report.attempts.len()
    }
}

/// A call of the probe.
pub(crate) fn probe(op: &str, args: Value) -> Call {
    Call::new(example("probe"), op, args)
}

/// Gets a URL, which may be repeated.
pub(crate) fn fetch(url: &str) -> Call {
    probe("fetch", json!({"url": url}))
}

/// Posts to a URL under one label; the operation's name decides whether it may be repeated.
pub(crate) fn order(op: &str, url: &str) -> Call {
    probe(op, json!({"url": url, "body": "one", "labels": ["only"]}))
}

/// The built-in profile of this name.
pub(crate) fn profile(name: &str) -> Arc<RetryProfile> {
    RetryProfile::named(name).unwrap()
}

/// A URL of `upstream` at a unique path, which is answered by `turns`.
pub(crate) fn script(
    upstream: &Upstream,
    turns: impl IntoIterator<Item = ScriptedReply>,
) -> (String, String) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = format!("/scripted/{}/", NUMBER.fetch_add(1, Ordering::Relaxed));
    (upstream.script(&path, turns), path)
}

/// One row: the outcome of a request that always gets this answer.
pub(crate) struct Row {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) retriable: bool,
    pub(crate) waits: &'static [RangeInclusive<u64>],
}

/// A row without a second attempt.
pub(crate) const fn once(status: u16, code: &'static str, retriable: bool) -> Row {
    Row { status, code, retriable, waits: &[] }
}

/// A row that is repeated after these waits, in milliseconds.
pub(crate) const fn repeated(status: u16, code: &'static str, waits: &'static [RangeInclusive<u64>]) -> Row {
    Row { status, code, retriable: true, waits }
}

/// Walks the rows with the profile: class, code, attempts, waits, and the server's own count.
#[track_caller]
pub(crate) fn walk(stage: &Stage, upstream: &Upstream, name: &str, rows: &[Row]) {
    for row in rows {
        let shown = format!("{name}: {}", row.status);
        let (url, path) = script(upstream, [ScriptedReply::status(row.status)]);
        let told = stage.call(fetch(&url).retry(profile(name)));
        let failure = told.failure();
        crate::envelope::check(failure, crate::envelope::upstream(row.code, row.retriable));
        assert_eq!(failure.details()["status"], row.status, "{shown}");
        within(&told.waits(), row.waits, &shown);
        assert_eq!(told.attempts(), row.waits.len() + 1, "{shown}");
        assert_eq!(upstream.seen(&path).len(), row.waits.len() + 1, "{shown}");
        assert_eq!(told.report.retried() as usize, row.waits.len(), "{shown}");
        let stopped = failure.details().get("retry_stopped").and_then(Value::as_str);
        assert_eq!(stopped, (!row.waits.is_empty()).then_some("max_attempts"), "{shown}");
        let retried = failure.details().get("retried").and_then(Value::as_u64);
        assert_eq!(retried, (!row.waits.is_empty()).then_some(row.waits.len() as u64), "{shown}");
        assert!(told.report.attempts.iter().all(|attempt| &*attempt.profile == name), "{shown}");
    }
}

/// Each wait lies in its range, and there are as many.
#[track_caller]
pub(crate) fn within(waits: &[u64], ranges: &[RangeInclusive<u64>], shown: &str) {
    let fits =
        waits.len() == ranges.len() && waits.iter().zip(ranges).all(|(wait, range)| range.contains(wait));
    assert!(fits, "{shown}: {waits:?} are not {ranges:?}");
}
