//! The one wasmtime `Engine` of a process: the accepted WebAssembly features, and the allocation of
//! instances.

use std::num::NonZeroUsize;

use cofferdam_core::limits;
use cofferdam_model::package::FEATURES;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, WasmBacktraceDetails};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, io, random};
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi_http::p2::bindings::{LinkOptions, http};

use super::hostcalls;
use super::hostcalls::http_types::HasHttp;
use super::hostcalls::random::HasRandom;
use super::pool_quota::PoolCapacity;
use super::store_data::StoreData;

/// Memory that a pool slot keeps after a call, so that the next one need not fault it in again. The
/// price is memory kept after bursts: slots x this.
const KEEP_MEMORY: usize = 1024 * 1024;
const KEEP_TABLE: usize = 256 * 1024;

/// Everything that compiled code depends on; the worker that compiles and the host that runs share it.
pub(super) fn config(debugging: GuestDebugging) -> Config {
    let mut config = Config::new();
    // Limits. Epochs stay off: fuel that yields, and a deadline checked at every poll, cost half as much.
    config.consume_fuel(true);
    config.max_wasm_stack(limits::STACK_BYTES);
    // The proposals that packages are validated with, and no others: package/features.rs gives the reason for
    // each.
    config.wasm_features(!FEATURES, false);
    config.wasm_features(FEATURES, true);
    // Needed by wasmtime itself: the module that it puts between two composed components imports the memories
    // of both, and its compiler panics without this. A connector's own modules are still limited to one
    // memory each, since the validator has this proposal off.
    config.wasm_multi_memory(true);
    config.concurrency_support(false);
    // A trap's backtrace carries the guest's own names, and the environment can widen it: keep it out unless the
    // embedder asks for it.
    let (details, frames) = match debugging {
        GuestDebugging::Off => (WasmBacktraceDetails::Disable, None),
        GuestDebugging::On => (WasmBacktraceDetails::Enable, Some(MAX_FRAMES)),
    };
    config.wasm_backtrace_details(details);
    config.wasm_backtrace_max_frames(frames);
    config
}

/// The most functions of a guest that are named after a trap.
const MAX_FRAMES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(49);

/// The choice whether traps name the functions and the source lines of the guest. Compiled code is for one or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum GuestDebugging {
    #[default]
    Off,
    On,
}

/// The allocation of instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllocationStrategy {
    /// From a pool of slots: 10 us an instance.
    Pool,
    /// One by one: 40 us, if the pool's address space is not available.
    OnDemand,
}

/// Creates the engine, with a pool of `slots` if the machine allows it.
pub(super) fn new(slots: u32, debugging: GuestDebugging) -> wasmtime::Result<(Engine, AllocationStrategy)> {
    let mut pool = PoolingAllocationConfig::new();
    let totals = PoolCapacity::for_slots(slots);
    pool.total_component_instances(slots)
        .total_core_instances(totals.core_instances)
        .total_memories(totals.memories)
        .total_tables(totals.tables)
        .total_stacks(slots)
        .max_memory_size(usize::try_from(limits::LimitCeilings::default().memory()).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(KEEP_MEMORY)
        .table_keep_resident(KEEP_TABLE)
        // If the kernel has the ioctl (6.7), only dirty pages are reset; otherwise this is a no-op.
        .pagemap_scan(Enabled::Auto);
    let mut pooled = config(debugging);
    pooled.allocation_strategy(pool);
    match Engine::new(&pooled) {
        Ok(engine) => Ok((engine, AllocationStrategy::Pool)),
        Err(error) => {
            tracing::warn!(reason = %error, "no room for a pool of instances; allocating on demand");
            Ok((Engine::new(&config(debugging))?, AllocationStrategy::OnDemand))
        }
    }
}

struct HostIo;

impl HasData for HostIo {
    type Data<'a> = &'a mut ResourceTable;
}

pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<StoreData>> {
    let mut linker = Linker::new(engine);
    let l = &mut linker;
    io::error::add_to_linker::<StoreData, HostIo>(l, |s| s.ctx().table)?;
    io::poll::add_to_linker::<StoreData, HostIo>(l, |s| s.ctx().table)?;
    io::streams::add_to_linker::<StoreData, HostIo>(l, |s| s.ctx().table)?;
    clocks::wall_clock::add_to_linker::<StoreData, WasiClocks>(l, StoreData::clocks)?;
    clocks::monotonic_clock::add_to_linker::<StoreData, WasiClocks>(l, StoreData::clocks)?;
    random::random::add_to_linker::<StoreData, HasRandom>(l, hostcalls::random::random_budget)?;
    random::insecure::add_to_linker::<StoreData, HasRandom>(l, hostcalls::random::random_budget)?;
    random::insecure_seed::add_to_linker::<StoreData, WasiRandom>(l, |s| s.ctx().ctx.random())?;
    cli::exit::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::environment::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::stdin::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::stdout::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::stderr::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::terminal_input::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::terminal_output::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::terminal_stdin::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::terminal_stdout::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    cli::terminal_stderr::add_to_linker::<StoreData, WasiCli>(l, StoreData::cli)?;
    filesystem::types::add_to_linker::<StoreData, WasiFilesystem>(l, StoreData::filesystem)?;
    filesystem::preopens::add_to_linker::<StoreData, WasiFilesystem>(l, StoreData::filesystem)?;
    http::outgoing_handler::add_to_linker::<StoreData, HasHttp>(l, StoreData::http_types)?;
    http::types::add_to_linker::<StoreData, HasHttp>(
        l,
        &LinkOptions::default().into(),
        StoreData::http_types,
    )?;
    l.instance("cofferdam:connector/types@0.1.0")?;
    hostcalls::connector::link_call(&mut l.instance("cofferdam:connector/call@0.1.0")?)?;
    hostcalls::connector::link_credential(&mut l.instance("cofferdam:connector/credential@0.1.0")?)?;
    hostcalls::log::link(&mut l.instance("cofferdam:connector/log@0.1.0")?)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn packages_are_validated_with_the_engines_features() {
        let (engine, _) = new(2, GuestDebugging::Off).unwrap();
        let expected = FEATURES.union(wasmparser::WasmFeatures::MULTI_MEMORY);
        assert_eq!(engine.get_wasm_features(), expected);
        assert_eq!(
            Engine::new(&config(GuestDebugging::Off)).unwrap().get_wasm_features(),
            expected,
            "the compile worker's"
        );
    }
}
