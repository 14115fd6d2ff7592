//! A call is cancelled in each place where it can wait, by its token and by dropping it. The result is never
//! one of the nine classes, the server receives nothing more of it, and the host accepts the next call.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam::{
    AuditId, Call, Cancellation, Compiler, Error, Fallback, Host, HostBuilder, HostErrorKind as ErrorKind,
};
use cofferdam_audit::{
    AcknowledgedFinding, AuditError, AuditErrorKind, AuditLog, AuditReader, CloseCall, Entry, JournalLog,
    KeyClaim, KeyState, LogFuture, LogSettings, LogTime, OpenCall, OpenOutcome, Pruned, ResolveCall,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::{RateLimit, ResilienceSettings};
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::package::{component, manifest, pack};
use cofferdam_test_support::{Home, RecordedStep, ScriptedReply, Signer, connector, log_capture};
use serde_json::{Map, Value, json};

use crate::documents::fixture::{fetch, order, probe, profile, script};
use crate::shared_host::{begin, run, shared_host};

/// The ways to end a call from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Token,
    Drop,
}

const WAYS: [How; 2] = [How::Token, How::Drop];

/// Keeps every step, and leaves the time alone.
#[derive(Default)]
struct Steps(Mutex<Vec<RecordedStep>>);

impl Listener for Steps {
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(RecordedStep {
            audit_id: event.audit_id.as_str().to_owned(),
            seq: event.seq,
            name: event.kind.name(),
            facts: event.kind.payload().into(),
        });
    }
}

impl Steps {
    fn all(&self) -> Vec<RecordedStep> {
        self.0.lock().unwrap().clone()
    }

    /// Returns whether a call that began after the first `from` steps has reached this one.
    fn has(&self, from: usize, name: &str) -> bool {
        self.all()[from..].iter().any(|step| step.name == name)
    }
}

/// A host that runs one call at a time, in real time, so that a slot kept by a cancelled call is noticed at
/// once.
struct Narrow {
    host: Host,
    steps: Arc<Steps>,
}

impl Narrow {
    fn new() -> Self {
        let world = shared_host();
        let builder = world.home.builder().allow_private(world.upstream.host_port());
        Self::of(builder.concurrency(1))
    }

    fn of(builder: HostBuilder) -> Self {
        log_capture::catch();
        let steps = Arc::<Steps>::default();
        let host = builder.clock(Arc::new(SystemClock)).listener(Arc::clone(&steps) as _).build().unwrap();
        Self { host, steps }
    }

    /// Begins the call, ends it once it is `there` (it gets the number of steps before it), and checks what holds of
    /// every cancelled call; `attempts` of it were begun.
    #[track_caller]
    fn end(&self, call: Call, how: How, attempts: u64, there: impl Fn(usize) -> bool) {
        let from = self.steps.all().len();
        let cancellation = Cancellation::new();
        let call = if how == How::Token { call.cancelled_by(&cancellation) } else { call };
        let host = self.host.clone();
        let (outcome, is_there) = run(async {
            let task = tokio::spawn(async move { host.run(call).await });
            let patience = Instant::now() + Duration::from_secs(60);
            while !there(from) && !task.is_finished() && Instant::now() < patience {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let is_there = there(from);
            match how {
                How::Token => cancellation.cancel(),
                How::Drop => task.abort(),
            }
            (task.await, is_there)
        });
        assert!(is_there, "{how:?}: it never came so far: {outcome:?}");
        let steps: Vec<_> = self.steps.all().split_off(from);
        let id = steps[0].audit_id.clone();
        match how {
            How::Drop => assert!(outcome.unwrap_err().is_cancelled()),
            How::Token => {
                let CallResult { outcome, report } = outcome.unwrap();
                let Err(Error::Host(error)) = outcome else { panic!("an outcome: {outcome:?}") };
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                assert_eq!(error.details()["attempts"], attempts);
                assert_eq!(error.message().contains("may have had effects"), attempts > 0);
                assert_eq!((error.request_id().as_str(), report.audit_id.as_str()), (&*id, &*id));
                assert_eq!(report.attempts.len() as u64, attempts);
                let last = report.attempts.last();
                let envelope = serde_json::to_value(Error::Host(error)).unwrap();
                crate::envelope::check_host_json(&envelope);
                assert!(
                    last.is_none_or(|last| last.outcome.is_none() || last.waited_ms.is_some()),
                    "{last:?}"
                );
            }
        }
        let own: Vec<_> = steps.iter().filter(|step| step.audit_id == id).collect();
        let finals: Vec<_> = own.iter().filter(|step| step.name == "final").collect();
        assert_eq!(finals.len(), 1, "{own:?}");
        assert_eq!((own.last().unwrap().name, &finals[0].facts["status"]), ("final", &json!("cancelled")));
        assert_eq!(finals[0].facts["class"], Value::Null, "a cancellation has no class");
        assert_eq!(own.iter().filter(|step| step.name == "attempt_started").count() as u64, attempts);
        let record = log_capture::record_of(&id);
        assert_eq!((record.get("outcome"), record.get("class")), (Some("cancelled"), None));
        assert_eq!(record.get("attempts"), Some(&*attempts.to_string()));
    }

    /// The host has its place again.
    #[track_caller]
    fn is_free(&self) {
        let url = shared_host().upstream.url("/text/free");
        let value = run(self.host.run(fetch(&url))).outcome.unwrap();
        assert_eq!(value["body"], "free");
    }
}

/// Before it begins: nothing is done at all, and the token ends every call that it is given to.
#[test]
fn a_call_can_be_cancelled_before_it_begins() {
    let narrow = Narrow::new();
    let cancellation = Cancellation::new();
    cancellation.cancel();
    let (url, path) = script(&shared_host().upstream, [ScriptedReply::status(200)]);
    for _ in 0..3 {
        let CallResult { outcome, report } = run(narrow.host.run(fetch(&url).cancelled_by(&cancellation)));
        let error = crate::shared_host::refused(outcome);
        assert_eq!((error.kind(), report.attempts.len()), (ErrorKind::Cancelled, 0));
        assert!(error.message().contains("nothing was done"), "{error}");
    }
    assert_eq!(shared_host().upstream.seen(&path).len(), 0);
    // A token that is used after the call has ended changes nothing.
    let late = Cancellation::new();
    assert!(run(narrow.host.run(fetch(&url).cancelled_by(&late))).outcome.is_ok());
    late.cancel();
    narrow.is_free();
}

#[test]
fn a_queued_call_can_be_cancelled() {
    let narrow = Narrow::new();
    for how in WAYS {
        let (busy, path) = script(&shared_host().upstream, [ScriptedReply::hang()]);
        let (host, holding) = (narrow.host.clone(), Cancellation::new());
        let call = fetch(&busy).cancelled_by(&holding);
        let first = begin(async move { host.run(call).await.outcome });
        while shared_host().upstream.seen(&path).is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (url, waiting) = script(&shared_host().upstream, [ScriptedReply::status(200)]);
        narrow.end(fetch(&url), how, 0, |from| narrow.steps.has(from, "received"));
        assert_eq!(shared_host().upstream.seen(&waiting).len(), 0);
        assert!(!first.is_finished(), "who has the turn keeps it");
        holding.cancel();
        assert!(run(first).unwrap().is_err());
    }
    narrow.is_free();
}

/// A compiler that never ends, and reports its process id.
fn stuck(dir: &Path) -> (Compiler, PathBuf) {
    let pid = dir.join("compiler.pid");
    let script = format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}' && exec sleep 600", pid.display());
    (Compiler::child_with_args("/bin/sh", ["-c".to_owned(), script]), pid)
}

#[test]
fn a_call_can_be_cancelled_during_compilation() {
    let (home, signer) = (Home::new(crate::COFFERDAM), Signer::new());
    home.trust(&signer.public(), "local://test/*");
    let body =
        r#"(core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#;
    let bytes = pack(&component(body), &manifest("local://test/plain", "1.0.0"));
    run(home.install(&bytes, &signer)).unwrap();
    let (compiler, pid) = stuck(home.path());
    let narrow = Narrow::of(home.builder().compiler(compiler).without_code_cache().concurrency(1));
    for how in WAYS {
        let call = Call::new(connector("local://test/plain@1.0.0"), "run", json!({}));
        narrow.end(call, how, 0, |_| pid.exists());
        let compiler = std::fs::read_to_string(&pid).unwrap();
        let process = Path::new("/proc").join(compiler.trim());
        let patience = Instant::now() + Duration::from_secs(30);
        while process.exists() {
            assert!(Instant::now() < patience, "the compiler goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&pid).unwrap();
    }
}

/// With seven memories a call takes more than its slot of the pool: the second waits for room, and not for a turn.
#[test]
fn a_call_waiting_for_the_pool_can_be_cancelled() {
    let part = "(core module $part (memory (export \"memory\") 1))";
    let parts: String = (0..7).map(|at| format!("(core instance $p{at} (instantiate $part))")).collect();
    let body = format!(
        r#"{part} {parts}
        (core module $m (memory (export "memory") 1)
          (func (export "run") (result i32) (loop $again (br $again)) (i32.const 0)))"#
    );
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "local://test/*");
    let bytes = pack(&component(&body), &manifest("local://test/large", "1.0.0"));
    run(home.install(&bytes, &signer)).unwrap();
    let narrow = Narrow::of(home.builder().concurrency(2));
    let large = || {
        let limits = LimitRequest::parse(Some(200_000_000_000), Some("60s"), None).unwrap();
        Call::new(connector("local://test/large@1.0.0"), "run", json!({})).limits(limits)
    };
    for how in WAYS {
        let (host, holding, from) = (narrow.host.clone(), Cancellation::new(), narrow.steps.all().len());
        let call = large().cancelled_by(&holding);
        let first = begin(async move { host.run(call).await.outcome });
        while !narrow.steps.has(from, "attempt_started") {
            std::thread::sleep(Duration::from_millis(2));
        }
        // It was loaded before: it waits for pool space, without an attempt.
        let since = Mutex::new(None::<Instant>);
        narrow.end(large(), how, 0, |from| {
            let mut since = since.lock().unwrap();
            let received = narrow.steps.has(from, "received");
            received && since.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(100)
        });
        holding.cancel();
        assert!(run(first).unwrap().is_err());
    }
    // Both places and all the room are there again: two at once begin.
    for how in WAYS {
        narrow.end(large(), how, 1, |from| narrow.steps.has(from, "attempt_started"));
    }
}

#[test]
fn a_computing_guest_can_be_cancelled() {
    let narrow = Narrow::new();
    for how in WAYS {
        let limits = LimitRequest::parse(Some(200_000_000_000), Some("60s"), None).unwrap();
        let spin = probe("spin", json!({})).limits(limits);
        narrow.end(spin, how, 1, |from| narrow.steps.has(from, "attempt_started"));
        narrow.is_free();
    }
}

#[test]
fn a_waiting_guest_can_be_cancelled() {
    let narrow = Narrow::new();
    for how in WAYS {
        let sleep = probe("sleep", json!({"ms": 60_000}));
        narrow.end(sleep, how, 1, |from| narrow.steps.has(from, "attempt_started"));
        for op in ["order", "order_once"] {
            let (url, path) =
                script(&shared_host().upstream, [ScriptedReply::hang(), ScriptedReply::status(200)]);
            narrow.end(order(op, &url), how, 1, |_| !shared_host().upstream.seen(&path).is_empty());
            super::abandoned(&shared_host().upstream, &path);
            assert_eq!(shared_host().upstream.seen(&path).len(), 1, "{op}: no further attempt");
        }
        narrow.is_free();
    }
}

/// Between two attempts: the wait ends at once, and there is no second attempt.
#[test]
fn a_call_in_backoff_can_be_cancelled() {
    let narrow = Narrow::new();
    for how in WAYS {
        for name in ["standard", "deterministic"] {
            let (url, path) = script(
                &shared_host().upstream,
                [ScriptedReply::after(503, "25"), ScriptedReply::status(200)],
            );
            let begun = Instant::now();
            let call = fetch(&url).retry(profile(name));
            narrow.end(call, how, 1, |from| narrow.steps.has(from, "retry_scheduled"));
            assert!(begun.elapsed() < Duration::from_secs(25), "it did not wait to the end");
            // It has no slot while it waits, and does not release one twice.
            narrow.is_free();
            assert_eq!(shared_host().upstream.seen(&path).len(), 1, "{how:?} {name}: no further attempt");
        }
    }
}

/// A call in backoff holds no slot: another call runs meanwhile, on a host with one slot.
#[test]
fn a_call_in_backoff_frees_its_slot() {
    let narrow = Narrow::new();
    let (url, path) =
        script(&shared_host().upstream, [ScriptedReply::after(503, "25"), ScriptedReply::status(200)]);
    narrow.end(fetch(&url), How::Token, 1, |from| {
        let waits = narrow.steps.has(from, "retry_scheduled");
        if waits
            && !narrow.steps.all()[from..]
                .iter()
                .any(|step| step.name == "attempt_ended" && step.facts["status"] == "value")
        {
            let (host, free) = (narrow.host.clone(), shared_host().upstream.url("/text/meanwhile"));
            let other = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(host.run(fetch(&free))).outcome.unwrap()
            });
            assert_eq!(other.join().unwrap()["body"], "meanwhile");
        }
        waits
    });
    assert_eq!(shared_host().upstream.seen(&path).len(), 1);
}

/// A log in which the second write to open calls fails, as on a full disk.
struct FullOnce {
    log: JournalLog,
    writes: AtomicUsize,
}

/// Passes commands on to the log.
macro_rules! pass_on {
    ($($name:ident($($value:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($value: $type),*) -> $result {
            self.log.$name($($value),*)
        })*
    };
}

impl AuditLog for FullOnce {
    fn append(&self, audit_id: &AuditId, entry: Entry) -> LogFuture<()> {
        match self.writes.fetch_add(1, Ordering::SeqCst) {
            1 => Box::pin(async { Err(AuditError::new(AuditErrorKind::Full, "no room")) }),
            _ => self.log.append(audit_id, entry),
        }
    }

    pass_on! {
        open(call: OpenCall) -> LogFuture<OpenOutcome>;
        close(begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()>;
        key_state(claim: KeyClaim) -> LogFuture<KeyState>;
        resolve(audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool>;
        record(at: jiff::Timestamp, event: OperatorEvent<'static>) -> LogFuture<()>;
        time() -> LogFuture<LogTime>;
        sign() -> LogFuture<String>;
        accept(findings: Vec<AcknowledgedFinding>, user: Arc<str>) -> LogFuture<String>;
        prune(before: jiff::Timestamp, dry_run: bool, user: Arc<str>) -> LogFuture<Pruned>;
        flush() -> LogFuture<()>;
        reader() -> Result<Box<dyn AuditReader>, AuditError>;
    }
}

/// Between two tries to write the beginning of a second attempt: the log has every event of the first one, and a gap
/// in their numbers would be a finding.
#[test]
fn a_call_waiting_for_the_log_can_be_cancelled() {
    let world = shared_host();
    for how in WAYS {
        let log = JournalLog::new(world.home.path(), LogSettings::default(), Arc::new(SystemClock));
        let log = Arc::new(FullOnce { log, writes: AtomicUsize::new(0) });
        let builder = world.home.builder().allow_private(world.upstream.host_port()).concurrency(1);
        let narrow = Narrow::of(builder.audit_log(Arc::clone(&log) as _));
        let (url, path) =
            script(&world.upstream, [ScriptedReply::after(503, "0"), ScriptedReply::status(200)]);
        let call = fetch(&url).retry(profile("standard"));
        narrow.end(call, how, 1, |_| log.writes.load(Ordering::SeqCst) > 1);
        assert_eq!(world.upstream.seen(&path).len(), 1, "{how:?}: no further attempt");
        run(narrow.host.flush());
        let id = AuditId::parse(&narrow.steps.all().last().unwrap().audit_id).unwrap();
        let entries = narrow.host.audit().reader().unwrap().entries_of(&id).unwrap();
        let events: Vec<_> = entries.iter().flat_map(|entry| entry.events().unwrap()).collect();
        let numbers: Vec<_> = events.iter().map(|event| event.seq).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "{how:?}: {events:?}");
        assert_eq!(events.last().unwrap().name, "final", "{how:?}");
        narrow.is_free();
    }
}

/// In the sandbox, but before its request: nothing is sent.
#[test]
fn a_rate_limited_request_can_be_cancelled() {
    let world = shared_host();
    let limit = RateLimit::new(1, Duration::from_secs(25)).unwrap();
    for how in WAYS {
        let builder = world.home.builder().allow_private(world.upstream.host_port()).concurrency(1);
        let narrow = Narrow::of(builder.resilience(ResilienceSettings::default().with_rate(Some(limit))));
        let (url, path) = script(&world.upstream, [ScriptedReply::status(200)]);
        run(narrow.host.run(fetch(&url))).outcome.unwrap();
        narrow.end(order("order", &url), how, 1, |from| narrow.steps.has(from, "rate_delayed"));
        assert_eq!(world.upstream.seen(&path).len(), 1, "{how:?}: what waited was not sent");
        let greeting = Call::new(crate::shared_host::example("hello"), "greet", json!({"name": "Ada"}));
        assert!(run(narrow.host.run(greeting)).outcome.is_ok(), "{how:?}: the place is free");
    }
}

/// Cancels a call in the moment in which it moves to its next candidate, and records the steps.
struct AtTheHop(Arc<Steps>, Cancellation);

impl Listener for AtTheHop {
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
        if let EventKind::FallbackTriggered { .. } = event.kind {
            self.1.cancel();
        }
    }
}

/// Between two candidates, and during the second one: no further candidate is tried.
#[test]
fn a_call_between_fallbacks_can_be_cancelled() {
    let world = shared_host();
    let ask = |urls: [&str; 3]| {
        let fallback = |url: &str| {
            let args = Map::from_iter([("url".to_owned(), Value::from(url))]);
            Fallback::new(crate::shared_host::example("probe"), "fetch").with_args(args)
        };
        let call = fetch(urls[0]).retry(profile("none"));
        call.or_else(fallback(urls[1])).or_else(fallback(urls[2]))
    };
    let narrow = Narrow::new();
    for how in WAYS {
        let [a, b, c] = [ScriptedReply::status(503), ScriptedReply::hang(), ScriptedReply::status(200)]
            .map(|turn| script(&world.upstream, [turn]));
        let call = ask([&a.0, &b.0, &c.0]);
        narrow.end(call, how, 2, |_| !world.upstream.seen(&b.1).is_empty());
        let seen = [&a.1, &b.1, &c.1].map(|path| world.upstream.seen(path).len());
        assert_eq!(seen, [1, 1, 0], "{how:?}");
        narrow.is_free();
    }
    let (steps, cancellation) = (Arc::<Steps>::default(), Cancellation::new());
    let listener = Arc::new(AtTheHop(Arc::clone(&steps), cancellation.clone()));
    let builder = world.home.builder().allow_private(world.upstream.host_port());
    let host = builder.clock(Arc::new(SystemClock)).listener(listener).build().unwrap();
    let [a, b, c] = [503, 200, 200].map(|status| script(&world.upstream, [ScriptedReply::status(status)]));
    let call = ask([&a.0, &b.0, &c.0]).cancelled_by(&cancellation);
    let error = crate::shared_host::refused(run(host.run(call)).outcome);
    assert_eq!((error.kind(), &error.details()["attempts"]), (ErrorKind::Cancelled, &json!(1)));
    let seen = [&a.1, &b.1, &c.1].map(|path| world.upstream.seen(path).len());
    assert_eq!(seen, [1, 0, 0], "at the hop itself");
}

/// At any moment: calls with two attempts are ended after a random time, and in each case there is one final
/// step, no second effect, and the slot is free.
#[test]
fn a_call_can_be_cancelled_at_any_moment() {
    let narrow = Narrow::new();
    let mut seed = 0x2545_f491_u64;
    let (mut cancelled, mut well) = (0, 0);
    for round in 0..60 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let pause = Duration::from_micros(seed % 40_000);
        let (url, path) = script(
            &shared_host().upstream,
            [ScriptedReply::after(503, "0"), ScriptedReply::after(503, "0"), ScriptedReply::status(200)],
        );
        let (op, most) = if round % 2 == 0 { ("order", 3) } else { ("order_once", 1) };
        let cancellation = Cancellation::new();
        let call = order(op, &url).cancelled_by(&cancellation);
        let from = narrow.steps.all().len();
        let host = narrow.host.clone();
        let outcome = run(async {
            let task = tokio::spawn(async move { host.run(call).await.outcome });
            tokio::time::sleep(pause).await;
            cancellation.cancel();
            task.await.unwrap()
        });
        match &outcome {
            Ok(_) => well += 1,
            Err(Error::Host(error)) if error.kind() == ErrorKind::Cancelled => cancelled += 1,
            Err(Error::Failure(_)) if op == "order_once" => well += 1,
            other => panic!("{round}: {other:?}"),
        }
        let finals = narrow.steps.all().split_off(from).iter().filter(|step| step.name == "final").count();
        assert_eq!(finals, 1, "{round}");
        narrow.is_free();
        assert!(shared_host().upstream.seen(&path).len() <= most, "{round}: {op}");
    }
    assert!(cancelled > 0 && cancelled + well == 60, "{cancelled} and {well}");
}
