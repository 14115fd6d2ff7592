//! The cost of each safety feature: per call, one after the other on bare wasmtime, and per second of a
//! guest's computing; and the cost of other choices in the engine's configuration.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod floor;

use std::time::{Duration, Instant};

use cofferdam::Compiler;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, connector};
use criterion::Criterion;
use floor::{Features, Floor, best, interleaved, micros, pooled};
use serde_json::json;
use tokio::runtime::Runtime;
use wasmtime::component::{Component, Linker, TypedFunc};
use wasmtime::{Config, Enabled, Engine, Store};

const CALLS: u32 = 200;
const ROUNDS: usize = 41;

fn main() {
    let runtime = Runtime::new().unwrap();
    let package = guest_package("hello", &[]);
    per_call(&runtime, &package);
    computing(&runtime);
}

/// The ladder and the roads not taken, each a fresh store and instance a call.
fn per_call(runtime: &Runtime, package: &[u8]) {
    let none = Features::default();
    let fuel = Features { fuel: true, ..none };
    let limits = Features { limits: true, ..fuel };
    let hook = Features { hook: true, ..limits };
    let deadline = Features { deadline: true, ..hook };
    let dynamic = Features { dynamic: true, ..deadline };
    let mut zeroing = best();
    zeroing.async_stack_zeroing(true);
    let rows: Vec<(&str, Floor)> = [
        ("floor: typed, fresh instance, best pool", best(), none),
        ("+ fuel that yields", best(), fuel),
        ("+ memory, transfer and handle limits", best(), limits),
        ("+ hook at each crossing", best(), hook),
        ("+ deadline at each poll, timer", best(), deadline),
        ("+ dynamic values", best(), dynamic),
        (
            "not taken: on-demand instances",
            {
                let mut c = Config::new();
                c.concurrency_support(false);
                c
            },
            none,
        ),
        ("not taken: pool defaults (madvise)", pooled(|_| {}), none),
        (
            "not taken: pool, 1 MiB kept by memset",
            pooled(|pool| {
                pool.linear_memory_keep_resident(1 << 20)
                    .table_keep_resident(256 << 10)
                    .pagemap_scan(Enabled::No);
            }),
            none,
        ),
        (
            "ours: pool, 1 MiB kept, dirty pages only",
            pooled(|pool| {
                pool.linear_memory_keep_resident(1 << 20)
                    .table_keep_resident(256 << 10)
                    .pagemap_scan(Enabled::Auto);
            }),
            none,
        ),
        ("not taken: stacks zeroed", zeroing, none),
    ]
    .into_iter()
    .map(|(name, config, features)| (name, Floor::new(package, &config, features)))
    .collect();

    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    runtime.block_on(home.install(package, &signer)).unwrap();
    let host = home.builder_alone().concurrency(64).build().unwrap();
    let hello = connector("github://cofferdam/hello@0.1.0");

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("safety per call");
    for (name, floor) in &rows {
        group.bench_function(*name, |b| b.to_async(runtime).iter(|| floor.call()));
    }
    group.finish();

    let mut timed: Vec<Box<dyn FnMut() -> Duration>> = Vec::new();
    for (_, floor) in &rows {
        timed.push(Box::new(move || {
            runtime.block_on(async {
                let start = Instant::now();
                for _ in 0..CALLS {
                    std::hint::black_box(floor.call().await);
                }
                start.elapsed() / CALLS
            })
        }));
    }
    timed.push(Box::new(|| {
        runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..CALLS {
                std::hint::black_box(host.call(&hello, "greet", json!({"name": "Ada"})).await.unwrap());
            }
            start.elapsed() / CALLS
        })
    }));
    let medians = interleaved(ROUNDS, &mut timed);
    let bare = micros(medians[0]);
    println!("\nper call of hello (us, and against the floor), medians of {ROUNDS} interleaved rounds:");
    let names = rows.iter().map(|(name, _)| *name).chain(["the whole of Host::call"]);
    for (name, median) in names.zip(&medians) {
        println!("  {name:<44} {:>7.2}  {:>5.2}x", micros(*median), micros(*median) / bare);
    }
}

/// Two ways to compute: straight through, and branch by branch over memory.
const STRAIGHT: &str = r#"(component (core module $m
  (func (export "run") (param $n i32) (result i32) (local $x i64)
    (local.set $x (i64.const 88172645463325252))
    (loop $again
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
      (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
      (local.set $x (i64.mul (local.get $x) (i64.const 2685821657736338717)))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (i32.wrap_i64 (local.get $x))))
  (core instance $i (instantiate $m))
  (func (export "run") (param "n" u32) (result u32) (canon lift (core func $i "run"))))"#;

const BRANCHY: &str = r#"(component (core module $m
  (memory 2)
  (func $step (param $at i32) (result i32)
    (if (result i32) (i32.and (i32.load8_u (local.get $at)) (i32.const 1))
      (then (i32.store8 (local.get $at) (i32.add (i32.load8_u (local.get $at)) (i32.const 3))) (i32.const 7))
      (else (i32.store8 (local.get $at) (i32.add (i32.load8_u (local.get $at)) (i32.const 1))) (i32.const 5))))
  (func (export "run") (param $n i32) (result i32) (local $at i32)
    (loop $again
      (local.set $at (i32.and (i32.add (local.get $at) (call $step (local.get $at))) (i32.const 65535)))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (local.get $at)))
  (core instance $i (instantiate $m))
  (func (export "run") (param "n" u32) (result u32) (canon lift (core func $i "run"))))"#;

struct Computing {
    store: Store<()>,
    run: TypedFunc<(u32,), (u32,)>,
    rounds: u32,
}

impl Computing {
    fn new(runtime: &Runtime, wat: &str, rounds: u32, fuel: Option<u64>, epochs: bool) -> Self {
        let mut config = best();
        config.consume_fuel(fuel.is_some()).epoch_interruption(epochs);
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_binary(&engine, &wat::parse_str(wat).unwrap()).unwrap();
        let mut store = Store::new(&engine, ());
        if let Some(every) = fuel {
            store.set_fuel(u64::MAX).unwrap();
            store.fuel_async_yield_interval(Some(every)).unwrap();
        }
        if epochs {
            store.set_epoch_deadline(1_000_000);
        }
        let instance =
            runtime.block_on(Linker::new(&engine).instantiate_async(&mut store, &component)).unwrap();
        let run = instance.get_typed_func(&mut store, "run").unwrap();
        Self { store, run, rounds }
    }

    fn time(&mut self, runtime: &Runtime) -> Duration {
        let start = Instant::now();
        std::hint::black_box(runtime.block_on(self.run.call_async(&mut self.store, (self.rounds,))).unwrap());
        start.elapsed()
    }
}

fn computing(runtime: &Runtime) {
    println!("\nper second of a guest's computing, medians of {ROUNDS} interleaved rounds:");
    for (name, wat, rounds) in [("straight", STRAIGHT, 4_000_000), ("branchy", BRANCHY, 4_000_000)] {
        let kinds = [
            ("no metering", None, false),
            ("fuel, yield every 1M (ours)", Some(1_000_000), false),
            ("fuel, yield every 10k", Some(10_000), false),
            ("epochs", None, true),
            ("fuel and epochs", Some(1_000_000), true),
        ];
        let mut guests: Vec<Computing> = kinds
            .iter()
            .map(|(_, fuel, epochs)| Computing::new(runtime, wat, rounds, *fuel, *epochs))
            .collect();
        let mut timed: Vec<Box<dyn FnMut() -> Duration>> = Vec::new();
        for guest in &mut guests {
            timed.push(Box::new(move || guest.time(runtime)));
        }
        let medians = interleaved(ROUNDS, &mut timed);
        drop(timed);
        for ((kind, ..), median) in kinds.iter().zip(&medians) {
            let ratio = median.as_secs_f64() / medians[0].as_secs_f64();
            println!("  {name:<9} {kind:<28} {:>8.2} ms  {ratio:>5.2}x", median.as_secs_f64() * 1e3);
        }
    }
}
