//! C21 and 4A-11: a call is cancelled in each place where it can wait, by its token and by dropping it. It is never one
//! of the nine classes, the server sees nothing more of it, and the host takes the next call.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam::{
    Call, Cancellation, Compiler, Error, Fallback, Host, HostBuilder, HostErrorKind as ErrorKind,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::{RateLimit, ResilienceSettings};
use cofferdam_test_support::package::{component, manifest, pack};
use cofferdam_test_support::{Home, Kept, Signer, Turn, connector, records};
use serde_json::{Map, Value, json};

use crate::documents::stage::{fetch, order, probe, profile, script};
use crate::world::{begin, run, world};

/// How a call is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Token,
    Drop,
}

const WAYS: [How; 2] = [How::Token, How::Drop];

/// Keeps every step, and leaves the time alone.
#[derive(Default)]
struct Steps(Mutex<Vec<Kept>>);

impl Listener for Steps {
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(Kept {
            audit_id: event.audit_id.as_str().to_owned(),
            seq: event.seq,
            name: event.kind.name(),
            facts: event.kind.payload(),
        });
    }
}

impl Steps {
    fn all(&self) -> Vec<Kept> {
        self.0.lock().unwrap().clone()
    }

    /// Whether a call that began after the first `from` steps has come to this one.
    fn has(&self, from: usize, name: &str) -> bool {
        self.all()[from..].iter().any(|step| step.name == name)
    }
}

/// A host that runs one call at a time, in real time, so that what a cancelled call keeps is missed at once.
struct Narrow {
    host: Host,
    steps: Arc<Steps>,
}

impl Narrow {
    fn new() -> Self {
        let world = world();
        let builder = world.home.builder().allow_private(world.upstream.host_port());
        Self::of(builder.concurrency(1))
    }

    fn of(builder: HostBuilder) -> Self {
        records::catch();
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
            let task = tokio::spawn(async move { host.run_reported(call).await });
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
                let (outcome, report) = outcome.unwrap();
                let Err(Error::Host(error)) = outcome else { panic!("an outcome: {outcome:?}") };
                assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::Cancelled, 130));
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
        assert_eq!((own.last().unwrap().name, &finals[0].facts["outcome"]), ("final", &json!("cancelled")));
        assert_eq!(finals[0].facts["class"], Value::Null, "a cancellation has no class");
        assert_eq!(own.iter().filter(|step| step.name == "attempt_started").count() as u64, attempts);
        let record = records::record_of(&id);
        assert_eq!((record.get("outcome"), record.get("class")), (Some("cancelled"), None));
        assert_eq!(record.get("attempts"), Some(&*attempts.to_string()));
    }

    /// The host has its place again.
    #[track_caller]
    fn is_free(&self) {
        let url = world().upstream.url("/text/free");
        let value = run(self.host.run(fetch(&url))).unwrap();
        assert_eq!(value["body"], "free");
    }
}

/// Before it begins: nothing is done at all, and the token ends every call that it is given to.
#[test]
fn before_it_begins() {
    let narrow = Narrow::new();
    let cancellation = Cancellation::new();
    cancellation.cancel();
    let (url, path) = script(&world().upstream, [Turn::status(200)]);
    for _ in 0..3 {
        let (outcome, report) = run(narrow.host.run_reported(fetch(&url).cancelled_by(&cancellation)));
        let error = crate::world::refused(outcome);
        assert_eq!((error.kind(), report.attempts.len()), (ErrorKind::Cancelled, 0));
        assert!(error.message().contains("nothing was done"), "{error}");
    }
    assert_eq!(world().upstream.seen(&path).len(), 0);
    // A token that is used after the call has ended changes nothing.
    let late = Cancellation::new();
    assert!(run(narrow.host.run(fetch(&url).cancelled_by(&late))).is_ok());
    late.cancel();
    narrow.is_free();
}

#[test]
fn in_line_for_its_turn() {
    let narrow = Narrow::new();
    for how in WAYS {
        let (busy, path) = script(&world().upstream, [Turn::hang()]);
        let (host, holding) = (narrow.host.clone(), Cancellation::new());
        let call = fetch(&busy).cancelled_by(&holding);
        let first = begin(async move { host.run(call).await });
        while world().upstream.seen(&path).is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (url, waiting) = script(&world().upstream, [Turn::status(200)]);
        narrow.end(fetch(&url), how, 0, |from| narrow.steps.has(from, "received"));
        assert_eq!(world().upstream.seen(&waiting).len(), 0);
        assert!(!first.is_finished(), "who has the turn keeps it");
        holding.cancel();
        assert!(run(first).unwrap().is_err());
    }
    narrow.is_free();
}

/// A compiler that never ends, and says which process it is.
fn stuck(dir: &Path) -> (Compiler, PathBuf) {
    let pid = dir.join("compiler.pid");
    let script = format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}' && exec sleep 600", pid.display());
    (Compiler::child_with_args("/bin/sh", ["-c".to_owned(), script]), pid)
}

#[test]
fn while_it_is_compiled() {
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
fn while_it_waits_for_room() {
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
        let first = begin(async move { host.run(call).await });
        while !narrow.steps.has(from, "attempt_started") {
            std::thread::sleep(Duration::from_millis(2));
        }
        // It was loaded before: what it waits for, without an attempt, is room.
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
fn while_the_guest_computes() {
    let narrow = Narrow::new();
    for how in WAYS {
        let limits = LimitRequest::parse(Some(200_000_000_000), Some("60s"), None).unwrap();
        let spin = probe("spin", json!({})).limits(limits);
        narrow.end(spin, how, 1, |from| narrow.steps.has(from, "attempt_started"));
        narrow.is_free();
    }
}

#[test]
fn while_the_guest_waits_for_time_or_for_an_answer() {
    let narrow = Narrow::new();
    for how in WAYS {
        let sleep = probe("sleep", json!({"ms": 60_000}));
        narrow.end(sleep, how, 1, |from| narrow.steps.has(from, "attempt_started"));
        for op in ["order", "order_once"] {
            let (url, path) = script(&world().upstream, [Turn::hang(), Turn::status(200)]);
            narrow.end(order(op, &url), how, 1, |_| !world().upstream.seen(&path).is_empty());
            super::abandoned(&world().upstream, &path);
            assert_eq!(world().upstream.seen(&path).len(), 1, "{op}: no further attempt");
        }
        narrow.is_free();
    }
}

/// Between two attempts: the wait ends at once, and there is no second attempt.
#[test]
fn while_it_waits_to_try_again() {
    let narrow = Narrow::new();
    for how in WAYS {
        for name in ["standard", "deterministic"] {
            let (url, path) = script(&world().upstream, [Turn::after(503, "25"), Turn::status(200)]);
            let begun = Instant::now();
            let call = fetch(&url).retry(profile(name));
            narrow.end(call, how, 1, |from| narrow.steps.has(from, "retry_scheduled"));
            assert!(begun.elapsed() < Duration::from_secs(25), "it did not wait to the end");
            // Its turn is not its any more while it waits, and is not given back twice.
            narrow.is_free();
            assert_eq!(world().upstream.seen(&path).len(), 1, "{how:?} {name}: no further attempt");
        }
    }
}

/// A turn is not kept while a call waits to try again: another call runs meanwhile, on a host with one place.
#[test]
fn a_call_that_waits_to_try_again_leaves_its_turn_to_others() {
    let narrow = Narrow::new();
    let (url, path) = script(&world().upstream, [Turn::after(503, "25"), Turn::status(200)]);
    narrow.end(fetch(&url), How::Token, 1, |from| {
        let waits = narrow.steps.has(from, "retry_scheduled");
        if waits
            && !narrow.steps.all()[from..]
                .iter()
                .any(|step| step.name == "attempt_ended" && step.facts["status"] == "value")
        {
            let (host, free) = (narrow.host.clone(), world().upstream.url("/text/meanwhile"));
            let other = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(host.run(fetch(&free))).unwrap()
            });
            assert_eq!(other.join().unwrap()["body"], "meanwhile");
        }
        waits
    });
    assert_eq!(world().upstream.seen(&path).len(), 1);
}

/// In the sandbox, but before its request: nothing is sent.
#[test]
fn while_its_request_waits_for_a_turn_under_a_rate_limit() {
    let world = world();
    let limit = RateLimit::new(1, Duration::from_secs(25)).unwrap();
    for how in WAYS {
        let builder = world.home.builder().allow_private(world.upstream.host_port()).concurrency(1);
        let narrow = Narrow::of(builder.resilience(ResilienceSettings::default().with_rate(Some(limit))));
        let (url, path) = script(&world.upstream, [Turn::status(200)]);
        run(narrow.host.run(fetch(&url))).unwrap();
        narrow.end(order("order", &url), how, 1, |from| narrow.steps.has(from, "rate_delayed"));
        assert_eq!(world.upstream.seen(&path).len(), 1, "{how:?}: what waited was not sent");
        let greeting = Call::new(crate::world::example("hello"), "greet", json!({"name": "Ada"}));
        assert!(run(narrow.host.run(greeting)).is_ok(), "{how:?}: the place is free");
    }
}

/// Cancels a call in the moment in which it goes on to its next candidate, and keeps the steps.
struct AtTheHop(Arc<Steps>, Cancellation);

impl Listener for AtTheHop {
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
        if let EventKind::FallbackTriggered { .. } = event.kind {
            self.1.cancel();
        }
    }
}

/// Between two candidates, and while the second one is asked: nobody else is.
#[test]
fn on_the_way_along_a_chain() {
    let world = world();
    let ask = |urls: [&str; 3]| {
        let alternate = |url: &str| {
            let args = Map::from_iter([("url".to_owned(), Value::from(url))]);
            Fallback::new(crate::world::example("probe"), "fetch").with_args(args)
        };
        let call = fetch(urls[0]).retry(profile("none"));
        call.or_else(alternate(urls[1])).or_else(alternate(urls[2]))
    };
    let narrow = Narrow::new();
    for how in WAYS {
        let [a, b, c] =
            [Turn::status(503), Turn::hang(), Turn::status(200)].map(|turn| script(&world.upstream, [turn]));
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
    let [a, b, c] = [503, 200, 200].map(|status| script(&world.upstream, [Turn::status(status)]));
    let call = ask([&a.0, &b.0, &c.0]).cancelled_by(&cancellation);
    let error = crate::world::refused(run(host.run(call)));
    assert_eq!((error.kind(), &error.details()["attempts"]), (ErrorKind::Cancelled, &json!(1)));
    let seen = [&a.1, &b.1, &c.1].map(|path| world.upstream.seen(path).len());
    assert_eq!(seen, [1, 0, 0], "at the hop itself");
}

/// At any moment at all: calls with two attempts are ended after a while that chance says, and in each case there is
/// one final step, no second effect, and the place is free.
#[test]
fn at_any_moment_whatever() {
    let narrow = Narrow::new();
    let mut seed = 0x2545_f491_u64;
    let (mut cancelled, mut well) = (0, 0);
    for round in 0..60 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let pause = Duration::from_micros(seed % 40_000);
        let (url, path) =
            script(&world().upstream, [Turn::after(503, "0"), Turn::after(503, "0"), Turn::status(200)]);
        let (op, most) = if round % 2 == 0 { ("order", 3) } else { ("order_once", 1) };
        let cancellation = Cancellation::new();
        let call = order(op, &url).cancelled_by(&cancellation);
        let from = narrow.steps.all().len();
        let host = narrow.host.clone();
        let outcome = run(async {
            let task = tokio::spawn(async move { host.run(call).await });
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
        assert!(world().upstream.seen(&path).len() <= most, "{round}: {op}");
    }
    assert!(cancelled > 0 && cancelled + well == 60, "{cancelled} and {well}");
}
