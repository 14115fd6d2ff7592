//! Files that cost far more than they weigh: refused before they are compiled, or by the compile worker.

#![expect(clippy::cast_possible_truncation, reason = "the generators write bytes of numbers")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam::{COMPILE_WORKER_ARG, CompileLimits, Error, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Home, InstallAccepted as _, package};

use crate::COFFERDAM;
use crate::envelope::check_host_error;
use crate::shared_host::run;

#[path = "../host/model/src/package/bombs_tests.rs"]
pub(crate) mod generators;

/// The memory that this process has now, in KiB; its peak is taken from here on.
fn memory_from_here() -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    memory("VmRSS:")
}

fn memory(which: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The mechanism that stops a bomb: the scan of its bytes, the validator, or the bounds of the compile worker.
#[derive(Debug, Clone, Copy)]
enum By {
    Scan,
    Validation,
    /// Parsing in the worker, which is ended.
    Parser,
    /// Compiling in the worker, which is ended.
    Worker,
}

/// The worker's bounds for the bombs that only it stops: too small for any of them.
const CPU_TIME: Duration = Duration::from_secs(3);

/// Every bomb of the catalogue.
fn catalogue() -> [(&'static str, Vec<u8>, By); 16] {
    [
        ("ten times ten times .. instances, in under a kilobyte", generators::instances(9, 10), By::Scan),
        ("the same side by side", generators::aliased_instances(9, 10), By::Scan),
        ("20,000 sections, one in the other", generators::nested_sections(20_000), By::Scan),
        ("20,000 types, one in the other", generators::nested_types(20_000), By::Scan),
        ("a type of two to the thirtieth", generators::tuples(30), By::Validation),
        ("lists of lists", generators::lists(200), By::Validation),
        ("a million imports", generators::imports(1_000_000, 8), By::Scan),
        ("a name of 100 KB", generators::imports(1, 100_000), By::Validation),
        ("a million functions", generators::functions(1_000_000), By::Scan),
        ("a function of 1.4 MB of ifs", generators::many_ifs(280_000), By::Scan),
        ("half a million blocks in a function", generators::nested_blocks(500_000), By::Scan),
        ("a constant that is a sum of 20,000 ones", generators::long_constant(20_000), By::Scan),
        ("a type of a million parts, 3,000 times", generators::many_lifts(3_000), By::Parser),
        (
            "types of a hundred thousand parts, compared 470 times in one section",
            generators::many_comparisons(470),
            By::Parser,
        ),
        ("the square of 100,000 loads", generators::quadratic_function(100_000), By::Worker),
        ("170,000 ifs", generators::many_ifs(170_000), By::Worker),
    ]
}

/// A bomb that gets as far as the worker is a connector otherwise: it has an operation.
fn within_a_connector(bomb: &[u8], by: By) -> Vec<u8> {
    match by {
        By::Worker => ticking(bomb),
        By::Scan | By::Validation | By::Parser => bomb.to_vec(),
    }
}

/// A connector with the core module of `bomb` in it as well.
pub(crate) fn ticking(bomb: &[u8]) -> Vec<u8> {
    [&package::quiet(), bomb.get(8..).unwrap()].concat()
}

#[test]
fn an_install_refuses_every_bomb_cheaply() {
    // In a separate process: in this one the cost could not be separated from that of other tests.
    let test = "bombs::alone_every_bomb_is_refused_within_its_budget";
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by the test above, alone in a process"]
fn alone_every_bomb_is_refused_within_its_budget() {
    let home = Home::new(COFFERDAM);
    let limits = CompileLimits::default().cpu_time(CPU_TIME).unwrap();
    let host = home.builder().compile_limits(limits).build().unwrap();
    let manifest = package::manifest("github://acme/bomb", "1.0.0");
    for (what, bomb, by) in catalogue() {
        let bytes = package::pack_unchecked(&within_a_connector(&bomb, by), &manifest);
        let size = bytes.len() as u64 / 1024;
        let (disk, before) = (home.snapshot(), memory_from_here());
        let outcome = run(host.install_accepted(bytes, None, InstallOptions::default().allow_unsigned()));
        let Err(Error::Host(error)) = outcome else { panic!("{what}: {outcome:?}") };
        check_host_error(&error);
        let grown = memory("VmHWM:").saturating_sub(before);
        eprintln!("{what}: {size} KiB, {grown} KiB more in this process: {error}");
        let by_worker = error.details().get("bound").is_some();
        let expected = match by {
            By::Scan => error.kind() == HostErrorKind::CompileRefused && !by_worker,
            By::Validation => error.kind() == HostErrorKind::Validation,
            By::Parser | By::Worker => error.kind() == HostErrorKind::CompileRefused && by_worker,
        };
        if matches!(by, By::Scan) {
            let (details, amount) = (error.details(), |key: &str| error.details()[key].as_u64().unwrap());
            assert_eq!(details["limit"], "compile", "{what}");
            assert!(amount("used") > amount("configured"), "{what}: {details:?}");
        }
        assert!(expected, "{what}: {error} {:?}", error.details());
        assert!(grown < 16 * 1024 + 2 * size, "{what}: {size} KiB cost this process {grown} KiB");
        assert_eq!(home.snapshot(), disk, "{what}");
    }
}

/// A request to the compile worker: 1 GiB, 20 seconds, and bytes that were not checked before.
fn request(bytes: &[u8]) -> Vec<u8> {
    let task = 2u64.to_le_bytes(); // compile it as it is
    let confined = 1u64.to_le_bytes();
    let (memory, cpu_seconds, debugging) = ((1u64 << 30).to_le_bytes(), 20u64.to_le_bytes(), [0; 8]);
    [b"coffcmp5", &memory[..], &cpu_seconds, &task, &confined, &debugging, bytes].concat()
}

/// The compile worker's result for them.
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
    let bytes = request(bytes);
    // The worker may end before it has read everything.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let mut code = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut code).unwrap();
    feeder.join().unwrap();
    (child.wait().unwrap(), code.len())
}

#[test]
fn a_bomb_in_the_worker_ends_only_the_worker() {
    let bomb = generators::instances(9, 10);
    assert!(bomb.len() < 1_000, "{} bytes", bomb.len());
    let (status, code) = worker(&bomb);
    assert!(!status.success() && code == 0, "{status}, {code} bytes of code");
    let ended = status.signal().is_some() || status.code() == Some(101);
    assert!(ended, "by its limits, not because the component is invalid: {status}");
}

#[test]
fn the_worker_reports_compile_errors() {
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
