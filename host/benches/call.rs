//! A warm call through the whole host, beside the bare wasmtime floor of the same component, in one run.
//!
//! The floor is what wasmtime itself costs: the best pooled configuration, `InstancePre`, the same typed
//! function, a fresh store and instance per call, and nothing else: no limits, no JSON, no checks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::time::{Duration, Instant};

use cofferdam::{Compiler, ConnectorRef, Host};
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, connector};
use criterion::Criterion;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, InstancePre, Lift, Linker, Lower, ResourceTable,
};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

#[derive(ComponentType, Lower, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "the type of the guest")]
enum Tone {
    #[component(name = "formal")]
    Formal,
    #[component(name = "warm")]
    Warm,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
struct Greeting {
    text: String,
    length: u32,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
struct Upstream {
    status: u16,
    code: Option<String>,
    #[component(name = "retry-after-ms")]
    retry_after_ms: Option<u64>,
    detail: Option<String>,
}

#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "the type of the guest")]
enum Phase {
    #[component(name = "dns")]
    Dns,
    #[component(name = "connect")]
    Connect,
    #[component(name = "tls")]
    Tls,
    #[component(name = "send")]
    Send,
    #[component(name = "response")]
    Response,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
struct Network {
    phase: Option<Phase>,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
struct Input {
    field: Option<String>,
    message: String,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
struct Failed {
    code: Option<String>,
    message: String,
    transient: bool,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
#[allow(dead_code, reason = "the type of the guest")]
enum Failure {
    #[component(name = "upstream")]
    Upstream(Upstream),
    #[component(name = "network")]
    Network(Network),
    #[component(name = "invalid-input")]
    InvalidInput(Input),
    #[component(name = "failed")]
    Failed(Failed),
}

#[derive(Default)]
struct Bare {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Bare {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

struct Floor {
    engine: Engine,
    pre: InstancePre<Bare>,
    greet: ComponentExportIndex,
}

impl Floor {
    fn new(component: &[u8]) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(64)
            .total_core_instances(256)
            .total_memories(128)
            .total_tables(256)
            .total_stacks(64)
            .linear_memory_keep_resident(4 << 20)
            .table_keep_resident(1 << 20)
            .pagemap_scan(Enabled::Auto);
        let mut config = Config::new();
        config.allocation_strategy(pool).concurrency_support(false);
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_binary(&engine, component).unwrap();
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        let interface = component.get_export_index(None, "cofferdam:hello/hello@0.1.0").unwrap();
        let greet = component.get_export_index(Some(&interface), "greet").unwrap();
        let pre = linker.instantiate_pre(&component).unwrap();
        Self { engine, pre, greet }
    }

    async fn call(&self) -> Greeting {
        let mut store = Store::new(&self.engine, Bare::default());
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let greet = instance
            .get_typed_func::<(&str, Option<Tone>), (Result<Greeting, Failure>,)>(&mut store, self.greet)
            .unwrap();
        match greet.call_async(&mut store, ("Ada", None)).await.unwrap().0 {
            Ok(greeting) => greeting,
            Err(_) => unreachable!("the guest greets"),
        }
    }
}

async fn through_host(host: &Host, connector: &ConnectorRef) -> Value {
    host.call(connector, "greet", json!({"name": "Ada"})).await.unwrap()
}

/// The median of pairs measured in turn, so that a machine that slows down slows both.
fn ratio(
    runtime: &Runtime,
    floor: &Floor,
    host: &Host,
    connector: &ConnectorRef,
) -> (Duration, Duration, f64) {
    const CALLS: u32 = 500;
    const ROUNDS: usize = 31;
    let mut rounds: Vec<(Duration, Duration)> = (0..ROUNDS)
        .map(|_| {
            runtime.block_on(async {
                let start = Instant::now();
                for _ in 0..CALLS {
                    std::hint::black_box(floor.call().await);
                }
                let bare = start.elapsed() / CALLS;
                let start = Instant::now();
                for _ in 0..CALLS {
                    std::hint::black_box(through_host(host, connector).await);
                }
                (bare, start.elapsed() / CALLS)
            })
        })
        .collect();
    rounds.sort_by(|a, b| {
        (a.1.as_secs_f64() / a.0.as_secs_f64()).total_cmp(&(b.1.as_secs_f64() / b.0.as_secs_f64()))
    });
    let (bare, whole) = rounds[ROUNDS / 2];
    (bare, whole, whole.as_secs_f64() / bare.as_secs_f64())
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("hello", &[]);
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let host = home.builder().concurrency(64).build().unwrap();
    let connector = connector("github://cofferdam/hello@0.1.0");
    let floor = Floor::new(&package);
    runtime.block_on(async {
        assert_eq!(floor.call().await.text, "Good day, Ada.");
        assert_eq!(through_host(&host, &connector).await["text"], "Good day, Ada.");
    });

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("warm call of hello");
    group.bench_function("wasmtime floor", |b| b.to_async(&runtime).iter(|| floor.call()));
    group.bench_function("Host::call", |b| b.to_async(&runtime).iter(|| through_host(&host, &connector)));
    group.finish();
    criterion.final_summary();

    let (bare, whole, ratio) = ratio(&runtime, &floor, &host, &connector);
    println!("\nwarm call of hello, medians of interleaved rounds:");
    println!("  wasmtime floor {:>8.2} us", bare.as_secs_f64() * 1e6);
    println!("  Host::call     {:>8.2} us", whole.as_secs_f64() * 1e6);
    println!("  ratio          {ratio:>8.2}");
}
