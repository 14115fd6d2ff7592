//! A warm call through the whole host, beside the bare wasmtime floor of the same component, in one run.
//!
//! The floor is what wasmtime itself costs: the best pooled configuration, `InstancePre`, the same typed
//! function, a fresh store and instance per call, and nothing else: no limits, no JSON, no checks.
//!
//! It also has the floor in turns with calls of the host, whose code leaves little of wasmtime's in the processor's caches:
//! so much wasmtime takes within a call.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod floor;

use std::time::{Duration, Instant};

use cofferdam::{Compiler, ConnectorRef, Host};
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, connector};
use criterion::Criterion;
use floor::{Features, Floor, interleaved, micros};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const CALLS: u32 = 500;
const ROUNDS: usize = 31;

async fn through_host(host: &Host, connector: &ConnectorRef) -> Value {
    host.call(connector, "greet", json!({"name": "Ada"})).await.unwrap()
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("hello", &[]);
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let host = home.builder_alone().concurrency(64).build().unwrap();
    let connector = connector("github://cofferdam/hello@0.1.0");
    let floor = Floor::new(&package, &floor::best(), Features::default());
    runtime.block_on(async {
        assert_eq!(floor.call().await, 14);
        assert_eq!(through_host(&host, &connector).await["text"], "Good day, Ada.");
    });

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("warm call of hello");
    group.bench_function("wasmtime floor", |b| b.to_async(&runtime).iter(|| floor.call()));
    group.bench_function("Host::call", |b| b.to_async(&runtime).iter(|| through_host(&host, &connector)));
    group.finish();
    criterion.final_summary();

    let bare = || {
        runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..CALLS {
                std::hint::black_box(floor.call().await);
            }
            start.elapsed() / CALLS
        })
    };
    let whole = || {
        runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..CALLS {
                std::hint::black_box(through_host(&host, &connector).await);
            }
            start.elapsed() / CALLS
        })
    };
    let in_turns = || {
        runtime.block_on(async {
            let mut bare = Duration::ZERO;
            for _ in 0..CALLS {
                std::hint::black_box(through_host(&host, &connector).await);
                let start = Instant::now();
                std::hint::black_box(floor.call().await);
                bare += start.elapsed();
            }
            bare / CALLS
        })
    };
    let medians = interleaved(ROUNDS, &mut [Box::new(bare), Box::new(whole), Box::new(in_turns)]);
    let [bare, whole, in_turns] = [0, 1, 2].map(|row| micros(medians[row]));
    println!("\nwarm call of hello, medians of interleaved rounds:");
    println!("  wasmtime floor                      {bare:>8.2} us");
    println!("  Host::call                          {whole:>8.2} us");
    println!("  ratio                               {:>8.2}", whole / bare);
    println!("  wasmtime floor, each after a call   {in_turns:>8.2} us");
}
