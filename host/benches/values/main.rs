//! The cost of values: JSON text in, a call, JSON text out, against wasmtime's typed call of the same shape and
//! serde_json alone, for three sizes of records, strings and bytes.
//!
//! The guest gives back the list that it is given without looking at it, so that all there is to measure is
//! the way in and out. The typed call has types that are known when the host is compiled, and no limits.
//!
//! `cargo bench --bench values -- items/1000000` for one of them, `-- table` for the ratios alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod guest;
mod typed;
mod types;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cofferdam::{Call, Compiler, ConnectorRef, Host};
use cofferdam_test_support::{Home, Signer, connector, package};
use criterion::{Criterion, Throughput};
use guest::{GUEST, payload};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use typed::Typed;

/// The ways from JSON text to JSON text, in the order of [`Bench::way`].
const WAYS: [&str; 4] = ["serde_json", "typed", "Host::call", "Host::run_text"];

/// The measured variants.
struct Bench {
    host: Host,
    connector: ConnectorRef,
    typed: Typed,
}

impl Bench {
    async fn way(&self, way: usize, op: &str, text: &str) -> String {
        match way {
            0 => serde_json::to_string(&serde_json::from_str::<Value>(text).unwrap()).unwrap(),
            1 => self.typed.text(op, text).await,
            2 => {
                let it: Value = serde_json::from_str(text).unwrap();
                let args = Value::Object(Map::from_iter([("it".to_owned(), it)]));
                serde_json::to_string(&self.host.call(&self.connector, op, args).await.unwrap()).unwrap()
            }
            _ => {
                let args = format!("{{\"it\":{text}}}");
                let call = Call::from_text(self.connector.clone(), op, args);
                self.host.run_text(call).await.outcome.unwrap()
            }
        }
    }

    /// The median of each way in microseconds, measured in turn so that a machine that slows down slows all.
    fn row(&self, runtime: &Runtime, op: &str, size: usize) -> [f64; 4] {
        let text = payload(op, size);
        let rounds = if size > 100_000 { 15 } else { 61 };
        let calls = (200_000 / size).clamp(1, 200) as u32;
        let mut times = WAYS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (way, times) in times.iter_mut().enumerate() {
                runtime.block_on(async {
                    let start = Instant::now();
                    for _ in 0..calls {
                        black_box(self.way(way, op, &text).await);
                    }
                    times.push(start.elapsed() / calls);
                });
            }
        }
        times.map(median)
    }
}

fn cases() -> impl Iterator<Item = (&'static str, usize)> {
    ["items", "texts", "bytes"].into_iter().flat_map(|op| [100, 10_000, 1_000_000].map(|size| (op, size)))
}

fn groups(criterion: &mut Criterion, runtime: &Runtime, bench: &Bench) {
    for (op, size) in cases() {
        let text = payload(op, size);
        let mut group = criterion.benchmark_group(format!("values/{op}/{size}"));
        group.sample_size(10).throughput(Throughput::Bytes(text.len() as u64));
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
        for (way, name) in WAYS.into_iter().enumerate() {
            group.bench_function(name, |b| b.to_async(runtime).iter(|| bench.way(way, op, &text)));
        }
        group.finish();
    }
}

fn table(runtime: &Runtime, bench: &Bench) {
    println!(
        "\nJSON text -> call -> JSON text, us, medians of interleaved rounds; ratios of run_text, and of call:"
    );
    println!(
        "  shape      size   serde_json      typed       call   run_text   /typed  /serde_json   call/typed"
    );
    for (op, size) in cases() {
        let name = format!("table/values/{op}/{size}");
        if std::env::args().skip(1).any(|arg| !arg.starts_with('-') && !name.contains(&arg)) {
            continue;
        }
        let [serde, typed, call, text] = bench.row(runtime, op, size);
        println!(
            "  {op:<6} {size:>8} {serde:>12.1} {typed:>10.1} {call:>10.1} {text:>10.1} {:>8.2} {:>12.2} {:>12.2}",
            text / typed,
            text / serde,
            call / typed,
        );
    }
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "local://bench/*");
    let component = package::component(GUEST);
    let packed = package::pack(&component, &package::manifest("local://bench/values", "1.0.0"));
    runtime.block_on(home.install(&packed, &signer)).unwrap();
    let host = home.builder_alone().concurrency(64).build().unwrap();
    let bench =
        Bench { host, connector: connector("local://bench/values@1.0.0"), typed: Typed::new(&packed) };
    for op in ["items", "texts", "bytes"] {
        let text = payload(op, 1_000);
        for (way, name) in WAYS.into_iter().enumerate() {
            assert_eq!(runtime.block_on(bench.way(way, op, &text)), text, "{op} by {name}");
        }
    }
    let mut criterion = Criterion::default().configure_from_args();
    groups(&mut criterion, &runtime, &bench);
    criterion.final_summary();
    table(&runtime, &bench);
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
