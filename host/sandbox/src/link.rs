//! The host functions that a guest can reach: exactly this list.
//!
//! `std` for `wasm32-wasip2` and our own world need these and no others. Interfaces are linked one by one, so
//! that a new version of wasmtime cannot widen the surface. Arguments, environment and files are available to
//! link against and empty. Sockets are missing, except for components whose manifest names them, and disabled
//! for those (`gates/sockets.rs`).

use wasmtime::Engine;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, io, random};
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi_http::p2::bindings::{LinkOptions, http};

use super::gates;
use super::gates::http_types::HasHttp;
use super::gates::random::HasRandom;
use super::state::StoreData;

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
    random::random::add_to_linker::<StoreData, HasRandom>(l, gates::random::of)?;
    random::insecure::add_to_linker::<StoreData, HasRandom>(l, gates::random::of)?;
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
    gates::call::link(&mut l.instance("cofferdam:connector/call@0.1.0")?)?;
    gates::credential::link(&mut l.instance("cofferdam:connector/credential@0.1.0")?)?;
    gates::log::link(&mut l.instance("cofferdam:connector/log@0.1.0")?)?;
    Ok(linker)
}
