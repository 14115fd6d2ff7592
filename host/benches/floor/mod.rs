//! Bare wasmtime calling `hello`: the floor that the host is measured against, and the same with one
//! safety feature after the other, so that each has a price.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a benchmark"
)]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, InstancePre, Lift, Linker, Lower, ResourceTable, Val,
};
use wasmtime::{
    CallHook, CallHookHandler, Config, Enabled, Engine, PoolingAllocationConfig, Store, StoreContextMut,
    StoreLimits, StoreLimitsBuilder,
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

#[derive(ComponentType, Lower, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
enum Tone {
    #[component(name = "formal")]
    Formal,
    #[component(name = "warm")]
    Warm,
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Greeting {
    text: String,
    length: u32,
}

#[derive(ComponentType, Lift)]
#[component(record)]
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
struct Network {
    phase: Option<Phase>,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Input {
    field: Option<String>,
    message: String,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Failed {
    code: Option<String>,
    message: String,
    transient: bool,
    detail: Option<String>,
}

/// `cofferdam:connector/types.failure`, as a type.
#[derive(ComponentType, Lift)]
#[component(variant)]
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

/// The features that are switched on in addition to the bare call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Features {
    /// Fuel, with a yield every million.
    pub fuel: bool,
    /// A limiter, bounds on transfers and handles.
    pub limits: bool,
    /// An async hook at each crossing between guest and host.
    pub hook: bool,
    /// A deadline checked at each poll, and a timer.
    pub deadline: bool,
    /// Values as `Val` instead of typed.
    pub dynamic: bool,
}

pub struct Bare {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: StoreLimits,
}

impl WasiView for Bare {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

struct Hook;

#[wasmtime_wasi::async_trait]
impl CallHookHandler<Bare> for Hook {
    async fn handle_call_event(&self, _: StoreContextMut<'_, Bare>, _: CallHook) -> wasmtime::Result<()> {
        std::hint::black_box(Instant::now());
        Ok(())
    }
}

/// The best pooled configuration of wasmtime, and nothing that limits a guest.
pub fn best() -> Config {
    pooled(|pool| {
        pool.linear_memory_keep_resident(4 << 20).table_keep_resident(1 << 20).pagemap_scan(Enabled::Auto);
    })
}

/// A pool of 64 instances, otherwise as `tune` says.
pub fn pooled(tune: impl FnOnce(&mut PoolingAllocationConfig)) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(64)
        .total_core_instances(512)
        .total_memories(128)
        .total_tables(256)
        .total_stacks(64);
    tune(&mut pool);
    let mut config = Config::new();
    config.allocation_strategy(pool).concurrency_support(false);
    config
}

/// `hello.greet`, called through bare wasmtime.
pub struct Floor {
    engine: Engine,
    pre: InstancePre<Bare>,
    greet: ComponentExportIndex,
    features: Features,
}

impl Floor {
    pub fn new(component: &[u8], config: &Config, features: Features) -> Self {
        let mut config = config.clone();
        config.consume_fuel(features.fuel);
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_binary(&engine, component).unwrap();
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        let interface = component.get_export_index(None, "cofferdam:hello/hello@0.1.0").unwrap();
        let greet = component.get_export_index(Some(&interface), "greet").unwrap();
        let pre = linker.instantiate_pre(&component).unwrap();
        Self { engine, pre, greet, features }
    }

    /// One call in a fresh store and instance; the length of what it says.
    pub async fn call(&self) -> usize {
        let limits = StoreLimitsBuilder::new().memory_size(64 << 20).trap_on_grow_failure(true).build();
        let bare = Bare { wasi: WasiCtx::default(), table: ResourceTable::default(), limits };
        let mut store = Store::new(&self.engine, bare);
        if self.features.limits {
            store.limiter(|bare| &mut bare.limits);
            store.set_hostcall_fuel(16 << 20);
            store.set_max_component_handles(1_000);
        }
        if self.features.fuel {
            store.set_fuel(30_000_000_000).unwrap();
            store.fuel_async_yield_interval(Some(1_000_000)).unwrap();
        }
        if self.features.hook {
            store.call_hook_async(Hook);
        }
        let work = self.work(&mut store);
        if !self.features.deadline {
            return work.await;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut work = pin!(work);
        let mut timer = Box::pin(tokio::time::sleep_until(deadline.into()));
        poll_fn(|cx| {
            assert!(Instant::now() < deadline);
            match work.as_mut().poll(cx) {
                Poll::Pending => timer.as_mut().poll(cx).map(|()| 0),
                ready => ready,
            }
        })
        .await
    }

    async fn work(&self, store: &mut Store<Bare>) -> usize {
        let instance = self.pre.instantiate_async(&mut *store).await.unwrap();
        if self.features.dynamic {
            let greet = instance.get_func(&mut *store, self.greet).unwrap();
            let args = [Val::String("Ada".into()), Val::Option(None)];
            let mut results = [Val::Bool(false)];
            greet.call_async(store, &args, &mut results).await.unwrap();
            return match &results {
                [Val::Result(Ok(Some(value)))] => match &**value {
                    Val::Record(fields) => fields.len(),
                    _ => panic!("greet returns a record"),
                },
                _ => panic!("the guest greets"),
            };
        }
        let greet = instance
            .get_typed_func::<(&str, Option<Tone>), (Result<Greeting, Failure>,)>(&mut *store, self.greet)
            .unwrap();
        match greet.call_async(store, ("Ada", None)).await.unwrap().0 {
            Ok(greeting) => greeting.text.len().max(greeting.length as usize),
            Err(_) => panic!("the guest greets"),
        }
    }
}

/// Medians of rounds in which every row has its turn, so that a machine that slows down slows all of them.
/// Each row runs itself some times and says how long one took.
pub fn interleaved<'a>(rounds: usize, rows: &mut [Box<dyn FnMut() -> Duration + 'a>]) -> Vec<Duration> {
    let mut samples: Vec<Vec<Duration>> = rows.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for _ in 0..rounds {
        for (row, samples) in rows.iter_mut().zip(&mut samples) {
            samples.push(row());
        }
    }
    samples
        .into_iter()
        .map(|mut row| {
            row.sort();
            row.get(row.len() / 2).copied().unwrap_or_default()
        })
        .collect()
}

pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
