//! From nothing to the printed value: `cofferdam call` as a process, against a bare wasmtime program that
//! maps the same component's code, instantiates it and calls it; and what a loaded connector holds in memory.
//!
//! The bare program is this benchmark, started again with an argument: it checks nothing, limits nothing,
//! and trusts the file. Medians and ratios of runs that fallback, since times on a shared machine wander.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    unsafe_code,
    reason = "a benchmark; the bare program trusts the file it maps"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam::{Compiler, Host};
use cofferdam_test_support::package::{example_package, guest};
use cofferdam_test_support::{Home, Signer, connector};
use serde_json::json;
use wasmtime::component::{Component, Linker, ResourceTable, Val};
use wasmtime::{Config, Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

const COFFERDAM: &str = env!("CARGO_BIN_EXE_cofferdam");
const ROUNDS: usize = 40;
/// Connectors that are loaded at once, to tell what one more holds.
const COPIES: usize = 24;

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

fn engine() -> Engine {
    let mut config = Config::new();
    config.concurrency_support(false);
    Engine::new(&config).unwrap()
}

/// The bare program: maps the code, instantiates it, calls `greet`, prints what it says.
fn bare(code: &Path) {
    let engine = engine();
    // SAFETY: this benchmark wrote the file just now.
    let component = unsafe { Component::deserialize_file(&engine, code) }.unwrap();
    let mut linker = Linker::<Bare>::new(&engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker).unwrap();
    linker.instance("cofferdam:connector/types@0.1.0").unwrap();
    let mut store = Store::new(&engine, Bare::default());
    let instance = linker.instantiate(&mut store, &component).unwrap();
    let interface = component.get_export_index(None, "cofferdam:hello/hello@0.1.0").unwrap();
    let greet = component.get_export_index(Some(&interface), "greet").unwrap();
    let greet = instance.get_func(&mut store, greet).unwrap();
    let mut results = [Val::Bool(false)];
    greet.call(&mut store, &[Val::String("Ada".into()), Val::Option(None)], &mut results).unwrap();
    println!("{results:?}");
}

fn timed(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn processes(home: &Home, code: &Path, reference: &str) {
    let this = std::env::current_exe().unwrap();
    let call = || {
        let mut command = Command::new(COFFERDAM);
        command.args(["call", reference, "greet", r#"{"name": "Ada"}"#, "--home"]).arg(home.path());
        timed(&mut command)
    };
    let nothing = || timed(Command::new(COFFERDAM).arg("--version"));
    let floor = || timed(Command::new(&this).arg("__bare").arg(code));
    let (mut ours, mut bare, mut empty) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(call());
        bare.push(floor());
        empty.push(nothing());
    }
    let (ours, bare, empty) = (median(ours), median(bare), median(empty));
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!("a process, code on disk:  cofferdam call {ours:.2?}, bare wasmtime {bare:.2?}: {ratio:.2}x");
    println!("                          cofferdam --version, which loads nothing: {empty:.2?}");
    let mut compiling = Vec::new();
    for _ in 0..ROUNDS / 8 {
        std::fs::remove_dir_all(home.path().join("cache")).unwrap();
        compiling.push(call());
    }
    println!("a process, nothing kept:  cofferdam call {:.2?}", median(compiling));
}

/// One load in a process that runs already: everything but the process itself.
fn loads(home: &Home, code: &Path, reference: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (connector, engine) = (connector(reference), engine());
    let (mut ours, mut mapped, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    let bytes = std::fs::read(code).unwrap();
    for _ in 0..ROUNDS {
        let host = home.host();
        let start = Instant::now();
        runtime.block_on(host.verify(&connector)).unwrap();
        ours.push(start.elapsed());
        let start = Instant::now();
        // SAFETY: this benchmark wrote the file, and the bytes are those of the file.
        drop(unsafe { Component::deserialize_file(&engine, code) }.unwrap());
        mapped.push(start.elapsed());
        let start = Instant::now();
        // SAFETY: as above.
        drop(unsafe { Component::deserialize(&engine, &bytes) }.unwrap());
        copied.push(start.elapsed());
    }
    let (ours, mapped, copied) = (median(ours), median(mapped), median(copied));
    println!(
        "a verified load:          {ours:.2?} (bare: mapped {mapped:.2?}, copied from memory {copied:.2?})"
    );
}

/// Resident memory: anonymous, and of files.
fn resident() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    [of("RssAnon:"), of("RssFile:")]
}

/// The memory of each of several loaded connectors; run in a process of its own.
fn memory(how: &str, place: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let host = Host::builder().home(place).compiler(Compiler::child(COFFERDAM)).build().unwrap();
    let engine = engine();
    let mut held = Vec::new();
    let mut load = |copy: usize| match how {
        "host" => {
            let reference = connector(&format!("github://cofferdam/hello@0.1.{copy}"));
            runtime.block_on(host.call(&reference, "greet", json!({"name": "Ada"}))).unwrap();
        }
        // SAFETY: this benchmark wrote the file.
        "mapped" => held.push(unsafe { Component::deserialize_file(&engine, place) }.unwrap()),
        // SAFETY: as above.
        _ => held.push(unsafe { Component::deserialize(&engine, std::fs::read(place).unwrap()) }.unwrap()),
    };
    // The first brings what all of them share.
    load(0);
    let before = resident();
    (1..=COPIES).for_each(&mut load);
    let after = resident();
    let each = |at: usize| after[at].saturating_sub(before[at]) / COPIES as u64;
    println!("{how:>9}: {} KiB of its own, {} KiB of files", each(0), each(1));
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "__bare", code] => return bare(Path::new(code)),
        [_, "__memory", how, place] => return memory(how, Path::new(place)),
        _ => {}
    }
    let (home, signer, scratch) = (Home::new(COFFERDAM), Signer::new(), tempfile::tempdir().unwrap());
    home.trust(&signer.public(), "github://cofferdam/*");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let component = guest("hello");
    let package = example_package(&component, "hello", &[]);
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let code = scratch.path().join("hello.cwasm");
    std::fs::write(&code, engine().precompile_component(&component).unwrap()).unwrap();
    let reference = "github://cofferdam/hello@0.1.0";
    println!(
        "hello: a component of {} KB, {} KB of code",
        component.len() / 1000,
        std::fs::metadata(&code).unwrap().len() / 1000
    );
    loads(&home, &code, reference);
    processes(&home, &code, reference);

    println!("memory of one more loaded connector, of the same component:");
    let manifest = cofferdam_test_support::package::guest_manifest("hello");
    for copy in 1..=COPIES {
        let manifest = manifest.replace("version = \"0.1.0\"", &format!("version = \"0.1.{copy}\""));
        let package = cofferdam_test_support::package::pack(&component, &manifest);
        runtime.block_on(home.install(&package, &signer)).unwrap();
    }
    let this = std::env::current_exe().unwrap();
    for (how, place) in [("host", home.path()), ("mapped", code.as_path()), ("copied", code.as_path())] {
        let status = Command::new(&this).arg("__memory").arg(how).arg(place).status().unwrap();
        assert!(status.success());
    }
}
