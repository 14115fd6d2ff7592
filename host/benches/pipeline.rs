//! The pipeline's overhead for a call that succeeds at once: the whole call less its run in the sandbox, call by call;
//! and the cost of its decisions.
//!
//! The sandbox's part is what lies between the steps `attempt_started` and `attempt_ended` of the same call. The
//! listener that takes the two times costs a call two looks at the clock.
//!
//! It also has the cost of rules for approvals to calls that need none: the same call by two hosts in turns, one of which has 20
//! rules for other calls.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod floor;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use cofferdam::{ApprovalPolicy, Call, CallResult, Compiler, ConnectorRef, Host};
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_core::failure::FailureCause;
use cofferdam_core::rng::SystemRng;
use cofferdam_egress::resilience::{ResilienceSettings, RetryContext, RetryProfile, decide};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, connector};
use criterion::Criterion;
use floor::{Features, Floor, micros};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const CALLS: usize = 5_000;
const ROUNDS: usize = 9;

/// When the last attempt began and ended, in nanoseconds since the start.
#[derive(Default)]
struct Span {
    began: AtomicU64,
    ended: AtomicU64,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Span {
    fn last(&self) -> Duration {
        Duration::from_nanos(self.ended.load(Ordering::Relaxed) - self.began.load(Ordering::Relaxed))
    }
}

impl Listener for Span {
    fn event(&self, event: &Event<'_>) {
        let at = match event.kind {
            EventKind::AttemptStarted { .. } => &self.began,
            EventKind::AttemptEnded { .. } => &self.ended,
            _ => return,
        };
        at.store(u64::try_from(START.elapsed().as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

async fn greet(host: &Host, hello: &ConnectorRef) {
    let call = Call::new(hello.clone(), "greet", json!({"name": "Ada"}));
    let CallResult { outcome, report } = host.run(call).await;
    let greeting: Value = outcome.unwrap();
    std::hint::black_box((greeting, report));
}

/// The wholes and the sandbox's parts of as many calls, one after the other.
fn samples(runtime: &Runtime, host: &Host, span: &Span, hello: &ConnectorRef) -> [Vec<Duration>; 2] {
    runtime.block_on(async {
        let (mut whole, mut run) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
        for _ in 0..CALLS {
            let start = Instant::now();
            greet(host, hello).await;
            whole.push(start.elapsed());
            run.push(span.last());
        }
        [whole, run]
    })
}

/// A policy of 20 rules, none of which is for the benchmark's call.
fn rules_for_others() -> ApprovalPolicy {
    let rule = |n: usize| {
        format!(
            "[[approvals.rules]]\nconnector = \"github://other/c{n}\"\noperations = [\"drop\"]\nask = true\n"
        )
    };
    ApprovalPolicy::parse("config.toml", &(0..20).map(rule).collect::<String>()).unwrap()
}

fn at_percent(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    micros(samples[samples.len() * percent / 100])
}

fn moment(cause: FailureCause, attempts: u32) -> RetryContext {
    let now = Instant::now();
    RetryContext {
        cause,
        retriable: true,
        idempotent: true,
        sent_unkeyed: false,
        retry_after: None,
        attempts,
        candidate: 0,
        now,
        deadline: now + Duration::from_secs(30),
    }
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("hello", &[]);
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let span = Arc::new(Span::default());
    let (heard, listener) = (home.builder_alone().concurrency(64), Arc::clone(&span));
    let heard = heard.listener(listener).build().unwrap();
    let alone = home.builder_alone().concurrency(64).build().unwrap();
    let ruled = home.builder_alone().concurrency(64).approval_policy(rules_for_others()).build().unwrap();
    let hello = connector("github://cofferdam/hello@0.1.0");
    let floor = Floor::new(&package, &floor::best(), Features::default());
    runtime.block_on(greet(&heard, &hello));
    runtime.block_on(greet(&alone, &hello));
    runtime.block_on(greet(&ruled, &hello));

    let (settings, standard) = (ResilienceSettings::default(), RetryProfile::named("standard").unwrap());
    let name = ConnectorName::parse("github://cofferdam/hello").unwrap();
    let again = moment(FailureCause::Unavailable, 1);
    let no_more = moment(FailureCause::Unavailable, 4);
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("pipeline");
    group.bench_function("a warm call, nobody listens", |b| {
        b.to_async(&runtime).iter(|| greet(&alone, &hello));
    });
    group.bench_function("decide: again", |b| b.iter(|| decide(&standard, &again, &SystemRng)));
    group.bench_function("decide: no more", |b| b.iter(|| decide(&standard, &no_more, &SystemRng)));
    group.bench_function("plan", |b| b.iter(|| settings.plan(&name, None)));
    group.finish();
    criterion.final_summary();

    let mut parts: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let [mut whole, mut run] = samples(&runtime, &heard, &span, &hello);
        let mut added: Vec<Duration> =
            whole.iter().zip(&run).map(|(whole, run)| whole.saturating_sub(*run)).collect();
        for (part, samples) in parts.iter_mut().zip([&mut whole, &mut run, &mut added]) {
            part.push(at_percent(samples, 50));
        }
    }
    println!("\na warm call of hello, medians of {CALLS} calls, the median of {ROUNDS} rounds:");
    for (part, name) in parts.iter_mut().zip(["the whole call", "its run in the sandbox", "the pipeline"]) {
        part.sort_by(f64::total_cmp);
        println!("  {name:<24} {:>8.2} us", part[ROUNDS / 2]);
    }

    let calls = |host: &Host| {
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..CALLS / 10 {
                greet(host, &hello).await;
            }
        });
        start.elapsed() / u32::try_from(CALLS / 10).unwrap()
    };
    let medians =
        floor::interleaved(ROUNDS * 5, &mut [Box::new(|| calls(&alone)), Box::new(|| calls(&ruled))]);
    println!("\na call that needs no approval, medians of interleaved rounds:");
    println!("  without a rule           {:>8.2} us", micros(medians[0]));
    println!("  with 20 rules for others {:>8.2} us", micros(medians[1]));

    let count = |work: &mut dyn FnMut()| measure(work).count_total;
    println!("\nallocations:");
    println!("  a warm call            {:>6}", count(&mut || runtime.block_on(greet(&alone, &hello))));
    println!("  with 20 rules          {:>6}", count(&mut || runtime.block_on(greet(&ruled, &hello))));
    println!("  the wasmtime floor     {:>6}", count(&mut || _ = runtime.block_on(floor.call())));
    println!("  a plan                 {:>6}", count(&mut || drop(settings.plan(&name, None))));
    println!(
        "  a decision             {:>6}",
        count(&mut || {
            std::hint::black_box(decide(&standard, &again, &SystemRng));
        })
    );
}
