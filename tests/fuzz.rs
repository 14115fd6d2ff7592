//! Random and mutated components through all steps: open, install, load, call. A separate process runs them, so
//! that a crash, a hang or an abort is a result and does not end the tests.
//!
//! Every case is generated from a number that a failure prints. `COFFERDAM_FUZZ_CASE=connector:17` runs only
//! that one and prints its result, and `COFFERDAM_FUZZ_ROUNDS=100` makes a longer run.
//! `docs/contributing/testing.md` has the rest.

mod generate;
mod mutate;
mod random;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam::{Call, Compiler, ConnectorRef, Error, Host, InstallOptions};
use cofferdam_core::limits::LimitRequest;
use cofferdam_model::package::Package;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, connector, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{check_host_error, check_json};
use crate::shared_host::run;
use random::Random;

/// The kinds of components, each with its weight.
const KINDS: [(&str, u64); 6] = [
    ("component", 500),
    ("holding-component", 80),
    ("connector", 150),
    ("mutated-hostile", 250),
    ("mutated-hello", 50),
    ("bytes", 300),
];

/// Components up to this size are compiled in this process; larger ones go to a worker, as always.
const SMALL: usize = 64 * 1024;

/// No round of cases may need more; a whole run is seconds.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// The peak memory of the process, in KiB: an engine, its pool, and the limit of one case.
const PEAK: u64 = 256 * 1024;

#[test]
fn no_component_brings_the_host_down() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("case");
    let rounds = env("COFFERDAM_FUZZ_ROUNDS").and_then(|rounds| rounds.parse().ok()).unwrap_or(1_u32);
    let said = dir.path().join("stderr");
    // A single case is run in order to see its result.
    let stderr = match env("COFFERDAM_FUZZ_CASE") {
        Some(_) => Stdio::inherit(),
        None => fs::File::create(&said).unwrap().into(),
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["fuzz::another_process", "--exact", "--ignored", "--nocapture"])
        .env("COFFERDAM_FUZZ_STATE", &state)
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if started.elapsed() > HANGS_AFTER * rounds {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let case = fs::read_to_string(&state).unwrap_or_default();
    if !status.is_some_and(|status| status.success()) {
        let said = fs::read_to_string(&said).unwrap_or_default();
        let how = status.map_or_else(|| "hung".to_owned(), |status| status.to_string());
        panic!("{how} at COFFERDAM_FUZZ_CASE={case}\n{said}");
    }
}

/// Runs the cases in a separate process.
#[test]
#[ignore = "run by the test above, as a process of its own"]
fn another_process() {
    let Some(state) = env("COFFERDAM_FUZZ_STATE") else { return };
    let bench = Bench::new();
    let rounds = env("COFFERDAM_FUZZ_ROUNDS").and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let only = env("COFFERDAM_FUZZ_CASE");
    let mut reached = Reached::default();
    for (kind, times) in KINDS {
        let started = Instant::now();
        for case in 0..times * rounds {
            let name = format!("{kind}:{case}");
            if only.as_ref().is_some_and(|only| !name.starts_with(only.as_str())) {
                continue;
            }
            fs::write(&state, &name).unwrap();
            bench.try_case(kind, case, &mut reached);
            if case % 50 == 0 {
                bench.still_serves();
            }
        }
        eprintln!("{kind}: {:?} {reached:?}", started.elapsed());
    }
    bench.still_serves();
    let peak = peak_memory();
    eprintln!("peak {peak} KiB");
    assert!(peak < PEAK, "the host needed {peak} KiB");
    if only.is_none() {
        reached.enough();
    }
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The steps that the cases reached: a generator whose components are all refused at once tests only the first
/// check.
#[derive(Debug, Default)]
struct Reached {
    cases: u32,
    opened: u32,
    installed: u32,
    values: u32,
    failures: u32,
}

impl Reached {
    fn enough(&self) {
        assert!(self.opened > 100 && self.installed > 60, "{self:?}");
        assert!(self.values > 15 && self.failures > 15, "{self:?}");
    }
}

/// Two hosts, one that compiles in place, and something that always has to work.
struct Bench {
    here: Home,
    workers: Home,
    hosts: [Host; 2],
    signer: Signer,
    good: ConnectorRef,
    hostile: Vec<Vec<u8>>,
    hello: Vec<u8>,
    talks: bool,
}

impl Bench {
    fn new() -> Self {
        let (here, workers) = (Home::with_compiler(Compiler::in_process()), Home::new(COFFERDAM));
        let signer = Signer::new();
        for home in [&here, &workers] {
            for scheme in ["github", "local"] {
                home.trust(&signer.public(), &format!("{scheme}://fuzz/*"));
                home.trust(&signer.public(), &format!("{scheme}://cofferdam/*"));
            }
        }
        let quiet = package::pack(&package::quiet(), &package::manifest("local://fuzz/good", "1.0.0"));
        for home in [&here, &workers] {
            run(home.install(&quiet, &signer)).unwrap();
        }
        let manifest = package::manifest("local://fuzz/it", "1.0.0");
        let hostile = package::hostile_names().into_iter();
        let hostile =
            hostile.map(|name| package::pack(&package::component(&package::hostile_text(&name)), &manifest));
        Self {
            hosts: [here.host(), workers.host()],
            here,
            workers,
            signer,
            good: connector("local://fuzz/good@1.0.0"),
            hostile: hostile.collect(),
            hello: package::guest_package("hello", &[]),
            talks: env("COFFERDAM_FUZZ_CASE").is_some(),
        }
    }

    /// The result of a case, printed if it is run alone.
    fn say(&self, error: &dyn std::fmt::Display) {
        if self.talks {
            eprintln!("{error}");
        }
    }

    fn still_serves(&self) {
        for host in &self.hosts {
            assert_eq!(run(host.call(&self.good, "run", json!({}))).unwrap(), Value::Null);
        }
    }

    fn try_case(&self, kind: &str, case: u64, reached: &mut Reached) {
        let seed = kind.bytes().fold(case, |seed, byte| seed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        let mut random = Random::new(seed);
        let manifest = package::manifest("local://fuzz/it", "1.0.0");
        let packed = |component: Option<Vec<u8>>| component.map(|component| packed(&component, &manifest));
        let bytes = match kind {
            "component" => packed(generate::any_component(&mut random)),
            "holding-component" => packed(generate::holding_any_component(&mut random)),
            "connector" => packed(generate::connector(&mut random)),
            "mutated-hostile" => {
                let original = random.one(&self.hostile).clone();
                Some(mutate::mutated(&original, &mut random))
            }
            "mutated-hello" => Some(mutate::mutated(&self.hello, &mut random)),
            _ => {
                let count = random.below(4_000);
                Some([&b"\0asm\x0d\0\x01\0"[..], &random.bytes(count)].concat())
            }
        };
        let Some(bytes) = bytes else { return };
        reached.cases += 1;
        let package = match Package::open(bytes.clone()) {
            Ok(package) => package,
            Err(error) => {
                let error = error.into();
                self.say(&error);
                return check_host_error(&error);
            }
        };
        reached.opened += 1;
        self.install_and_call(bytes, &package, reached);
    }

    fn install_and_call(&self, bytes: Vec<u8>, package: &Package, reached: &mut Reached) {
        let host = &self.hosts[usize::from(bytes.len() > SMALL)];
        let home = if bytes.len() > SMALL { &self.workers } else { &self.here };
        let manifest = package.manifest();
        let signature = self.signer.state(manifest.name(), manifest.version(), package.digest());
        let before = home.snapshot();
        let options = InstallOptions::default().allow_downgrade();
        if let Err(error) = run(host.install_accepted(bytes, Some(signature), options)) {
            self.say(&error);
            check(&error);
            assert_eq!(home.snapshot(), before, "a refused install changed something");
            return;
        }
        reached.installed += 1;
        let reference = ConnectorRef::new(manifest.name().clone(), manifest.version().clone());
        let limits = LimitRequest::parse(Some(5_000_000), Some("1s"), Some("4MiB")).unwrap();
        for operation in package.operations().iter().take(4) {
            let args = arguments(operation.name().json());
            let call = Call::new(reference.clone(), operation.name().json(), args).limits(limits);
            match run(host.run(call)).outcome {
                Ok(_) => reached.values += 1,
                Err(error) => {
                    self.say(&error);
                    check(&error);
                    reached.failures += 1;
                }
            }
        }
        host.remove(&reference).unwrap();
    }
}

/// A package from a foreign tool, which checks nothing.
fn packed(component: &[u8], manifest: &str) -> Vec<u8> {
    use wasm_encoder::ComponentSection;
    let mut bytes = component.to_vec();
    for (name, content) in [("cofferdam:manifest", manifest), ("cofferdam:docs", "{\"operations\":{}}")] {
        let data = content.as_bytes().into();
        wasm_encoder::CustomSection { name: name.into(), data }.append_to_component(&mut bytes);
    }
    bytes
}

fn arguments(operation: &str) -> Value {
    match operation {
        "greet" => json!({"name": "Ada"}),
        "areas" => json!({"shapes": ["empty", {"circle": 1.0}]}),
        "reverse" => json!({"bytes": "AAEC"}),
        "divide" => json!({"dividend": 7, "divisor": 2}),
        _ => json!({}),
    }
}

/// Every failed request has one of the two envelopes, complete and printable.
fn check(error: &Error) {
    match error {
        Error::Host(error) => check_host_error(error),
        Error::Failure(failure) => check_json(&serde_json::to_value(failure).unwrap()),
    }
}
