//! The same guest, the same GET: through the gate, and through bare wasmtime with wasmtime-wasi-http's
//! default sender, in one run. Bare means bare: no limits, no checks, no record, no JSON.
//!
//! `cargo run --release --manifest-path peers/Cargo.toml --bin default-sender`

#[path = "../../host/benches/http/load.rs"]
mod load;
#[path = "../../host/benches/http/server.rs"]
mod server;

use std::sync::Arc;

use cofferdam::Compiler;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, connector};
use load::Row;
use serde_json::json;
use server::Server;
use tokio::runtime::Builder;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker, ResourceTable, Val};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView, default_hooks};

struct Guest {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Guest {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: default_hooks(), table: &mut self.table, ctx: &mut self.http }
    }
}

/// `probe.fetch` in bare wasmtime, in its best pooled configuration.
struct Bare {
    engine: Engine,
    pre: InstancePre<Guest>,
    fetch: ComponentExportIndex,
}

impl Bare {
    fn new(component: &[u8]) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(128)
            .total_core_instances(1_024)
            .total_memories(256)
            .total_tables(512)
            .total_stacks(128)
            .linear_memory_keep_resident(4 << 20)
            .table_keep_resident(1 << 20)
            .pagemap_scan(Enabled::Auto);
        let mut config = Config::new();
        config.allocation_strategy(pool).concurrency_support(false);
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_binary(&engine, component).unwrap();
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker).unwrap();
        refuse_ours(&mut linker, &component, &engine);
        let interface = component.get_export_index(None, "cofferdam:probe/probe@0.1.0").unwrap();
        let fetch = component.get_export_index(Some(&interface), "fetch").unwrap();
        let pre = linker.instantiate_pre(&component).unwrap();
        Self { engine, pre, fetch }
    }

    /// One GET in a fresh instance.
    async fn fetch(&self, url: &str) {
        let guest =
            Guest { wasi: WasiCtx::default(), http: WasiHttpCtx::new(), table: ResourceTable::default() };
        let mut store = Store::new(&self.engine, guest);
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let fetch = instance.get_func(&mut store, self.fetch).unwrap();
        let mut results = [Val::Bool(false)];
        fetch.call_async(&mut store, &[Val::String(url.to_owned())], &mut results).await.unwrap();
        assert!(matches!(&results[0], Val::Result(Ok(Some(_)))), "{results:?}");
    }
}

/// Interfaces that only our host has (the log, call facts) are linked, and not called here.
fn refuse_ours(linker: &mut Linker<Guest>, component: &Component, engine: &Engine) {
    for (name, item) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(ours) = item.ty else { continue };
        if !name.starts_with("cofferdam:") {
            continue;
        }
        let mut instance = linker.instance(name).unwrap();
        for (function, item) in ours.exports(engine) {
            if let ComponentItem::ComponentFunc(_) = item.ty {
                instance.func_new(function, |_, _, _, _| Err(wasmtime::format_err!("not here"))).unwrap();
            }
        }
    }
}

fn main() {
    let (home, signer, server) =
        (Home::with_compiler(Compiler::in_process()), Signer::new(), Server::start());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("probe", &[server.url("")]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let probe = connector("github://cofferdam/probe@0.1.0");
    let bare = Arc::new(Bare::new(&package));

    for (threads, callers) in [(1, 1), (1, 64), (2, 1), (2, 64)] {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        let host = home.builder().concurrency(256).allow_private(server.host_port()).build().unwrap();
        let url = server.url("/");
        let ours = {
            let (probe, url) = (probe.clone(), url.clone());
            Row::new("guest GET through the gate", 1, move || {
                let (host, probe, args) = (host.clone(), probe.clone(), json!({"url": url}));
                async move { drop(host.call(&probe, "fetch", args).await.unwrap()) }
            })
        };
        let default = {
            let bare = Arc::clone(&bare);
            Row::new("bare, the default sender", 1, move || {
                let (bare, url) = (Arc::clone(&bare), url.clone());
                async move { bare.fetch(&url).await }
            })
        };
        println!("{threads} threads, {callers} callers:");
        load::rounds(&runtime, callers, vec![ours, default]);
        println!("  connections since the start: {}\n", server.connections());
    }
}
