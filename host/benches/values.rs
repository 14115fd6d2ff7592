//! What values cost: JSON text in, a call, JSON text out, beside wasmtime's typed call of the same shape and
//! serde_json alone, for three sizes of records, strings and bytes.
//!
//! The guest gives back the list that it is given without looking at it, so that all there is to measure is
//! the way in and out. The typed call has types that are known when the host is compiled, and no limits.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam::{Compiler, ConnectorRef, Host};
use cofferdam_test_support::{Home, Signer, connector, package};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use wasmtime::component::{Component, ComponentType, InstancePre, Lift, Linker, Lower};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Store};

#[derive(ComponentType, Lower, Lift, Serialize, Deserialize, Clone)]
#[component(record)]
struct Item {
    id: u64,
    name: String,
    title: String,
    score: f64,
    active: bool,
    count: u32,
    note: Option<String>,
    kind: Kind,
}

#[derive(ComponentType, Lower, Lift, Serialize, Deserialize, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[component(name = "issue")]
    Issue,
    #[component(name = "task")]
    Task,
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

const GUEST: &str = r#"
(type $kind-def (enum "issue" "task"))
(export $kind "kind" (type $kind-def))
(type $item-def (record
  (field "id" u64) (field "name" string) (field "title" string) (field "score" float64) (field "active" bool)
  (field "count" u32) (field "note" (option string)) (field "kind" $kind)))
(export $item "item" (type $item-def))
(core module $m
  (memory (export "memory") 256)
  (global $next (mut i32) (i32.const 64))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and
      (i32.sub (i32.add (global.get $next) (local.get 2)) (i32.const 1))
      (i32.sub (i32.const 0) (local.get 2))))
    (global.set $next (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func (export "echo") (param i32 i32) (result i32)
    (i32.store (i32.const 8) (local.get 0))
    (i32.store (i32.const 12) (local.get 1))
    (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(alias core export $i "realloc" (core func $realloc))
(func (export "bytes") (param "it" (list u8)) (result (result (list u8) (error $failure)))
  (canon lift (core func $i "echo") (memory $memory) (realloc $realloc)))
(func (export "texts") (param "it" (list string)) (result (result (list string) (error $failure)))
  (canon lift (core func $i "echo") (memory $memory) (realloc $realloc)))
(func (export "items") (param "it" (list $item)) (result (result (list $item) (error $failure)))
  (canon lift (core func $i "echo") (memory $memory) (realloc $realloc)))
"#;

/// wasmtime alone: a pool, typed functions, no limits.
struct Typed {
    engine: Engine,
    pre: InstancePre<()>,
}

impl Typed {
    fn new(component: &[u8]) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.linear_memory_keep_resident(4 << 20)
            .table_keep_resident(1 << 20)
            .total_memories(64)
            .total_core_instances(64)
            .total_component_instances(64)
            .total_stacks(64)
            .pagemap_scan(Enabled::Auto);
        let mut config = Config::new();
        config.allocation_strategy(pool).concurrency_support(false);
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_binary(&engine, component).unwrap();
        let pre = Linker::new(&engine).instantiate_pre(&component).unwrap();
        Self { engine, pre }
    }

    /// Typed values in and out.
    async fn call<T: Lower + Lift + Send + Sync + 'static>(&self, op: &str, it: Vec<T>) -> Vec<T> {
        let mut store = Store::new(&self.engine, ());
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let function =
            instance.get_typed_func::<(Vec<T>,), (Result<Vec<T>, Failure>,)>(&mut store, op).unwrap();
        match function.call_async(&mut store, (it,)).await.unwrap().0 {
            Ok(it) => it,
            Err(_) => unreachable!("the guest gives back what it is given"),
        }
    }

    /// JSON text in and out.
    async fn json<T>(&self, op: &str, text: &str) -> String
    where
        T: Lower + Lift + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let it: Vec<T> = serde_json::from_str(text).unwrap();
        serde_json::to_string(&self.call(op, it).await).unwrap()
    }

    async fn base64(&self, text: &str) -> String {
        let it: String = serde_json::from_str(text).unwrap();
        let it = self.call("bytes", STANDARD.decode(it).unwrap()).await;
        serde_json::to_string(&STANDARD.encode(it)).unwrap()
    }
}

async fn through_host(host: &Host, connector: &ConnectorRef, op: &str, text: &str) -> String {
    let it: Value = serde_json::from_str(text).unwrap();
    let args = Value::Object(Map::from_iter([("it".to_owned(), it)]));
    let out = host.call(connector, op, args).await.unwrap();
    serde_json::to_string(&out).unwrap()
}

/// JSON text of about `size` bytes for an operation.
fn payload(op: &str, size: usize) -> String {
    let item = |at: usize| Item {
        id: at as u64 * 7919,
        name: format!("item-{at}"),
        title: "a short title, of some words".into(),
        score: at as f64 * 0.25,
        active: at.is_multiple_of(2),
        count: 17,
        note: at.is_multiple_of(3).then(|| "noted".into()),
        kind: if at.is_multiple_of(2) { Kind::Issue } else { Kind::Task },
    };
    match op {
        "items" => {
            let count = (size / 140).max(1);
            serde_json::to_string(&(0..count).map(item).collect::<Vec<_>>()).unwrap()
        }
        "texts" => {
            let text = |at: usize| format!("text number {at}, as short as tags and names are");
            serde_json::to_string(&(0..(size / 55).max(1)).map(text).collect::<Vec<_>>()).unwrap()
        }
        _ => {
            let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
            serde_json::to_string(&STANDARD.encode(bytes)).unwrap()
        }
    }
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "local://bench/*");
    let component = package::component(GUEST);
    let packed = package::pack(&component, &package::manifest("local://bench/values", "1.0.0"));
    runtime.block_on(home.install(&packed, &signer)).unwrap();
    let host = home.builder().concurrency(64).build().unwrap();
    let connector = connector("local://bench/values@1.0.0");
    let typed = Typed::new(&packed);

    println!("JSON text -> call -> JSON text, us, medians of interleaved rounds:");
    println!("  shape        bytes   serde_json        typed    Host::call     /typed  /serde_json");
    for op in ["items", "texts", "bytes"] {
        for size in [100, 10_000, 1_000_000] {
            // `cargo bench --bench values -- items/1000000` for one of them.
            let name = format!("{op}/{size}");
            if std::env::args().skip(1).any(|arg| !arg.starts_with('-') && !name.contains(&arg)) {
                continue;
            }
            let text = payload(op, size);
            let rounds = if size > 100_000 { 15 } else { 61 };
            let calls = (200_000 / size).clamp(1, 200) as u32;
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..rounds {
                runtime.block_on(async {
                    let start = Instant::now();
                    for _ in 0..calls {
                        let value: Value = serde_json::from_str(&text).unwrap();
                        std::hint::black_box(serde_json::to_string(&value).unwrap());
                    }
                    times[0].push(start.elapsed() / calls);
                    let start = Instant::now();
                    for _ in 0..calls {
                        std::hint::black_box(match op {
                            "items" => typed.json::<Item>(op, &text).await,
                            "texts" => typed.json::<String>(op, &text).await,
                            _ => typed.base64(&text).await,
                        });
                    }
                    times[1].push(start.elapsed() / calls);
                    let start = Instant::now();
                    for _ in 0..calls {
                        std::hint::black_box(through_host(&host, &connector, op, &text).await);
                    }
                    times[2].push(start.elapsed() / calls);
                });
            }
            let [serde, typed, ours] = times.map(median);
            println!(
                "  {op:<8} {:>9} {serde:>12.1} {typed:>12.1} {ours:>13.1} {:>10.2} {:>12.2}",
                text.len(),
                ours / typed,
                ours / serde
            );
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
