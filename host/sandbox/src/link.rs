//! The host functions that a guest can reach: this list, and nothing beside it.
//!
//! Exactly what `std` for `wasm32-wasip2` and our own world need. Interfaces are linked one by one, so
//! that a new version of wasmtime cannot widen the surface: arguments, environment and files are there
//! to link against and empty; sockets are not there at all, but for components whose manifest names them, and
//! shut for those (`gates/sockets.rs`).

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
use super::state::State;

struct Io;

impl HasData for Io {
    type Data<'a> = &'a mut ResourceTable;
}

pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    let l = &mut linker;
    io::error::add_to_linker::<State, Io>(l, |s| s.ctx().table)?;
    io::poll::add_to_linker::<State, Io>(l, |s| s.ctx().table)?;
    io::streams::add_to_linker::<State, Io>(l, |s| s.ctx().table)?;
    clocks::wall_clock::add_to_linker::<State, WasiClocks>(l, State::clocks)?;
    clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(l, State::clocks)?;
    random::random::add_to_linker::<State, HasRandom>(l, gates::random::of)?;
    random::insecure::add_to_linker::<State, HasRandom>(l, gates::random::of)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(l, |s| s.ctx().ctx.random())?;
    cli::exit::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::environment::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stdin::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stdout::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stderr::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(l, State::cli)?;
    filesystem::types::add_to_linker::<State, WasiFilesystem>(l, State::filesystem)?;
    filesystem::preopens::add_to_linker::<State, WasiFilesystem>(l, State::filesystem)?;
    http::outgoing_handler::add_to_linker::<State, HasHttp>(l, State::http_types)?;
    http::types::add_to_linker::<State, HasHttp>(l, &LinkOptions::default().into(), State::http_types)?;
    l.instance("cofferdam:connector/types@0.1.0")?;
    gates::call::link(&mut l.instance("cofferdam:connector/call@0.1.0")?)?;
    gates::credential::link(&mut l.instance("cofferdam:connector/credential@0.1.0")?)?;
    gates::log::link(&mut l.instance("cofferdam:connector/log@0.1.0")?)?;
    Ok(linker)
}
