//! Files that cost far more than they weigh: refused before they are compiled, or by the compile worker.

#![expect(clippy::cast_possible_truncation, reason = "the generators write bytes of numbers")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use cofferdam::{COMPILE_WORKER_ARG, Error, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Home, package};

use crate::COFFERDAM;
use crate::envelope::check_host_error;
use crate::world::run;

#[expect(dead_code, reason = "the host's own tests use the others")]
#[path = "../host/src/package/bombs.rs"]
mod generators;

/// The most memory this process ever had, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Every bomb of the catalogue, with whether the scan of its bytes finds it, in no time, or only the worker
/// that compiles it, within its bounds.
fn catalogue() -> [(&'static str, Vec<u8>, bool); 13] {
    [
        ("ten times ten times .. instances, in under a kilobyte", generators::instances(9, 10), true),
        ("the same side by side", generators::aliased_instances(9, 10), true),
        ("20,000 sections, one in the other", generators::nested_sections(20_000), true),
        ("20,000 types, one in the other", generators::nested_types(20_000), true),
        ("a type of two to the thirtieth", generators::tuples(30), true),
        ("lists of lists", generators::lists(200), true),
        ("a million imports", generators::imports(1_000_000, 8), true),
        ("a name of 100 KB", generators::imports(1, 100_000), true),
        ("a million functions", generators::functions(1_000_000), true),
        ("a function of 1.4 MB of ifs", generators::many_ifs(280_000), true),
        ("half a million blocks in a function", generators::nested_blocks(500_000), true),
        ("the square of 100,000 loads", generators::quadratic_function(100_000), true),
        ("half the largest function of blocks", generators::nested_blocks(120_000), false),
    ]
}

#[test]
fn an_install_refuses_every_bomb_without_paying_for_it() {
    let home = Home::new(COFFERDAM);
    let host = home.host();
    let manifest = package::manifest("github://acme/bomb", "1.0.0");
    for (what, bomb, _) in catalogue() {
        // Some cannot even be packed by us: what a stranger made looks like this.
        let bytes =
            [&bomb[..], &section("cofferdam:manifest", &manifest), &section("cofferdam:docs", "{}")].concat();
        let (size, before, disk) = (bytes.len() as u64 / 1024, peak_memory(), home.snapshot());
        let outcome = run(host.install(bytes, None, InstallOptions::default().allow_unsigned()));
        let Err(Error::Host(error)) = outcome else { panic!("{what}: {outcome:?}") };
        check_host_error(&error);
        let kinds = [HostErrorKind::CompileRefused, HostErrorKind::Validation];
        assert!(kinds.contains(&error.kind()), "{what}: {error}");
        let grown = peak_memory() - before;
        assert!(grown < 64 * 1024 + 8 * size, "{what}: {size} KiB cost this process {grown} KiB");
        assert_eq!(home.snapshot(), disk, "{what}");
    }
}

fn section(name: &str, content: &str) -> Vec<u8> {
    use wasm_encoder::ComponentSection;
    let mut bytes = Vec::new();
    let data = content.as_bytes();
    wasm_encoder::CustomSection { name: name.into(), data: data.into() }.append_to_component(&mut bytes);
    bytes
}

/// What the compile worker makes of bytes that nobody looked at before.
fn worker(bytes: &[u8]) -> (std::process::ExitStatus, usize) {
    let mut child = Command::new(COFFERDAM)
        .arg(COMPILE_WORKER_ARG)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    // The worker may end before it has read everything.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let mut code = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut code).unwrap();
    feeder.join().unwrap();
    (child.wait().unwrap(), code.len())
}

#[test]
fn a_bomb_that_reaches_the_worker_ends_the_worker_and_yields_no_code() {
    let bomb = generators::instances(9, 10);
    assert!(bomb.len() < 1_000, "{} bytes", bomb.len());
    let (status, code) = worker(&bomb);
    assert!(!status.success() && code == 0, "{status}, {code} bytes of code");
    let ended = status.signal().is_some() || status.code() == Some(70);
    assert!(ended, "by its limits, not because the component is invalid: {status}");
}

#[test]
fn the_worker_compiles_what_is_good_and_says_so_of_what_is_not() {
    let (status, code) = worker(&package::quiet());
    assert!(status.success() && code > 0, "{status}");
    let (status, code) = worker(b"not wasm");
    assert_eq!((status.code(), code), (Some(65), 0));
}

#[test]
fn text_is_never_compiled_and_neither_is_native_code() {
    let (status, _) = worker(b"(component)");
    assert_eq!(status.code(), Some(65));
    let (status, _) = worker(&fs::read(COFFERDAM).unwrap()[..4096]);
    assert_eq!(status.code(), Some(65));
}
