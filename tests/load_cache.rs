//! The caches of a connector, in memory and on disk, and their invalidation: changed files under a running
//! host, foreign cache entries, components that cannot be compiled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam::{CompileLimits, Compiler, Error, Host, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, Signer, connector, log_capture, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{failed, refused, run};

const REFERENCE: &str = "github://acme/quiet@1.0.0";

/// A package with one operation that answers with nothing; `salt` makes its bytes others of the same length.
fn package_of(version: &str, salt: &str) -> Vec<u8> {
    let manifest = format!("# {salt}\n{}", package::manifest("github://acme/quiet", version));
    package::pack(&package::quiet(), &manifest)
}

struct Setup {
    home: Home,
    bytes: Vec<u8>,
    signer: Signer,
}

/// A home with a trusted, signed, installed package.
fn setup() -> Setup {
    let setup =
        Setup { home: Home::new(COFFERDAM), bytes: package_of("1.0.0", "one"), signer: Signer::new() };
    setup.home.trust(&setup.signer.public(), "github://acme/*");
    run(setup.home.install(&setup.bytes, &setup.signer)).unwrap();
    setup
}

impl Setup {
    fn file(&self) -> PathBuf {
        self.home.installed_file(&self.bytes)
    }

    fn entry(&self) -> PathBuf {
        let mut entries = entries(self.home.path());
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.remove(0)
    }
}

fn entries(home: &Path) -> Vec<PathBuf> {
    fs::read_dir(home.join("cache")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn call(host: &Host) -> Result<Value, Error> {
    run(host.call(&connector(REFERENCE), "run", json!({})))
}

/// A compiler that notes each start in `log` and what it was started with.
fn noting(log: &Path) -> Compiler {
    let script = format!(
        "echo start >> {log}; tr '\\0' '\\n' < /proc/self/environ > {log}.env; ls -l /proc/self/fd > {log}.fds; exec {COFFERDAM} __compile-worker",
        log = log.display()
    );
    Compiler::child_with_args("/bin/sh", ["-c".to_owned(), script])
}

fn starts(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().count())
}

#[test]
fn changed_files_are_caught_by_the_next_call() {
    let setup = setup();
    let host = setup.home.host();
    let file = setup.file();
    let (signature, directory) = (file.with_file_name("signature.dsse.json"), file.parent().unwrap());
    assert_eq!(call(&host).unwrap(), Value::Null);

    // Other bytes of the same length, in the same inode, with the same time of change.
    let (before, good) = (fs::metadata(&file).unwrap(), fs::read(&file).unwrap());
    let other = package_of("1.0.0", "two");
    assert_eq!(other.len(), good.len());
    fs::write(&file, &other).unwrap();
    let written = fs::File::options().write(true).open(&file).unwrap();
    written.set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before.modified().unwrap());
    assert_eq!(failed(call(&host)).class().name(), "hash_mismatch");
    fs::write(&file, &good).unwrap();
    assert_eq!(call(&host).unwrap(), Value::Null);

    // Another file replaces it.
    let aside = directory.join("aside");
    fs::rename(&file, &aside).unwrap();
    fs::write(&file, &other).unwrap();
    assert_eq!(failed(call(&host)).class().name(), "hash_mismatch");
    fs::rename(&aside, &file).unwrap();
    assert_eq!(call(&host).unwrap(), Value::Null);

    // A signature by another signer, and none.
    let envelope = fs::read(&signature).unwrap();
    fs::write(&signature, Signer::new().sign(&setup.bytes)).unwrap();
    assert_eq!(failed(call(&host)).class().name(), "signature_failure");
    fs::remove_file(&signature).unwrap();
    assert_eq!(failed(call(&host)).class().name(), "signature_failure");
    fs::write(&signature, envelope).unwrap();
    assert_eq!(call(&host).unwrap(), Value::Null);

    // The directory of another package.
    let (kept, fake) = (directory.with_extension("kept"), directory.with_extension("fake"));
    fs::create_dir(&fake).unwrap();
    fs::write(fake.join("connector.wasm"), &other).unwrap();
    fs::write(fake.join("signature.dsse.json"), setup.signer.sign(&other)).unwrap();
    fs::rename(directory, &kept).unwrap();
    fs::rename(&fake, directory).unwrap();
    assert_eq!(failed(call(&host)).class().name(), "hash_mismatch");
    fs::remove_dir_all(directory).unwrap();
    assert_eq!(refused(call(&host)).kind(), HostErrorKind::RegistryUnavailable);
    fs::rename(&kept, directory).unwrap();
    assert_eq!(call(&host).unwrap(), Value::Null);
}

#[test]
fn a_file_swapped_during_load_never_runs() {
    let setup = setup();
    // The other is good in every way but its hash: a valid connector, signed by the same key, that traps.
    let trapping = package::component(
        r#"(core module $m (memory (export "memory") 1) (func (export "run") (result i32) unreachable))"#,
    );
    let other = package::pack(&trapping, &package::manifest("github://acme/quiet", "1.0.0"));
    let (file, stop) = (setup.file(), AtomicBool::new(false));
    let (ours, theirs) = (file.with_file_name("ours"), file.with_file_name("theirs"));
    fs::write(&theirs, &other).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&file, &ours).unwrap();
                fs::rename(&theirs, &file).unwrap();
                fs::rename(&file, &theirs).unwrap();
                fs::rename(&ours, &file).unwrap();
            }
        });
        let host = setup.home.host();
        let mut seen = (0, 0);
        for _ in 0..400 {
            match call(&host) {
                Ok(value) => seen.0 += usize::from(value.is_null()),
                Err(Error::Failure(failure)) => {
                    assert_eq!(failure.class().name(), "hash_mismatch", "{failure}");
                    seen.1 += 1;
                }
                // There is no file between two renames.
                Err(Error::Host(error)) => assert_eq!(error.kind(), HostErrorKind::RegistryUnavailable),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(seen.0 + seen.1 > 0, "{seen:?}");
    });
    assert_eq!(call(&setup.home.host()).unwrap(), Value::Null);
}

#[test]
fn foreign_cache_entries_are_recompiled() {
    log_capture::catch();
    let setup = setup();
    let entry = setup.entry();
    let good = fs::read(&entry).unwrap();
    let other = Home::new(COFFERDAM);
    other.trust(&setup.signer.public(), "github://acme/*");
    run(other.install(&setup.bytes, &setup.signer)).unwrap();
    let foreign = fs::read(entries(other.path()).remove(0)).unwrap();
    assert_eq!(foreign[32..], good[32..], "the same code, under the key of another host");
    let poisoned =
        [&good[..good.len() / 2], &[good[good.len() / 2] ^ 1], &good[good.len() / 2 + 1..]].concat();
    let cases: [(&str, Vec<u8>); 5] = [
        ("one bit of the code", poisoned),
        ("cut short", good[..good.len() - 1].to_vec()),
        ("empty", Vec::new()),
        ("of another host", foreign),
        ("longer", [&good[..], b"\0"].concat()),
    ];
    for (what, bytes) in cases {
        fs::write(&entry, &bytes).unwrap();
        let about = |record: &log_capture::Record| {
            record.target == "cofferdam::cache"
                && record.get("component").is_some_and(|it| entry.to_string_lossy().contains(it))
        };
        let before = log_capture::records(about).len();
        assert_eq!(call(&setup.home.host()).unwrap(), Value::Null, "{what}");
        assert_eq!(log_capture::records(about).len(), before + 1, "{what} is reported");
        assert_eq!(fs::read(&entry).unwrap().len(), good.len(), "{what} is replaced");
        assert_ne!(fs::read(&entry).unwrap(), bytes, "{what} is replaced");
    }
    // With another key everything under the old one is foreign.
    let key = setup.home.path().join("host.key");
    fs::remove_file(&key).unwrap();
    // If a log exists under the lost key, no new key is created and nothing runs.
    let error = call(&setup.home.host()).unwrap_err();
    assert!(matches!(&error, Error::Host(host) if host.kind() == HostErrorKind::AuditUnavailable), "{error}");
    assert!(!key.exists());
    setup.home.remove_log();
    fs::remove_file(setup.home.path().join("home.state")).unwrap();
    assert_eq!(call(&setup.home.host()).unwrap(), Value::Null);
    // A key that others can read is refused: nothing is cached under it and nothing can be recorded, so nothing
    // runs.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(&entry).unwrap();
    let error = call(&setup.home.host()).unwrap_err();
    assert!(matches!(&error, Error::Host(host) if host.kind() == HostErrorKind::AuditUnavailable), "{error}");
    assert!(!entry.exists());
}

#[test]
fn processes_that_start_at_once_share_the_cache() {
    let setup = setup();
    let cli = Cli::new(COFFERDAM, setup.home.path());
    for round in 0..3 {
        fs::remove_dir_all(setup.home.path().join("cache")).unwrap();
        if round == 1 {
            // And with it what it signed.
            setup.home.remove_log();
            for name in ["host.key", "home.state"] {
                fs::remove_file(setup.home.path().join(name)).unwrap();
            }
        }
        let start = |_| {
            let mut command = cli.command(&["call", REFERENCE, "run"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children: Vec<_> = (0..4).map(start).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{said}");
        }
        let entry = setup.entry();
        let good = fs::read(&entry).unwrap();
        let again = cli.run(&["call", REFERENCE, "run"]);
        assert!(again.code == Some(0) && again.stderr.is_empty(), "{}", again.stderr);
        assert_eq!(fs::read(&entry).unwrap(), good, "what is there is used");
    }
}

#[test]
fn the_cache_stays_within_its_configured_size() {
    let setup = setup();
    let host = setup.home.builder().code_cache_size(1 << 20).build().unwrap();
    let one = fs::metadata(setup.entry()).unwrap().len();
    let many = (1u64 << 20) / one + 3;
    for patch in 0..many {
        let bytes = package_of(&format!("2.0.{patch}"), "");
        let options = InstallOptions::default();
        run(host.install_accepted(bytes.clone(), Some(setup.signer.sign(&bytes)), options)).unwrap();
    }
    let kept = entries(setup.home.path());
    let total: u64 = kept.iter().map(|entry| fs::metadata(entry).unwrap().len()).sum();
    assert!(total <= 1 << 20 && (kept.len() as u64) < many, "{total} bytes in {} entries", kept.len());
    assert_eq!(
        run(host.call(&connector("github://acme/quiet@2.0.0"), "run", json!({}))).unwrap(),
        Value::Null
    );
}

#[test]
fn a_component_is_compiled_once_for_all_callers() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("log");
    let (home, signer, bytes) =
        (Home::with_compiler(noting(&log)), Signer::new(), package_of("1.0.0", "one"));
    home.trust(&signer.public(), "github://acme/*");
    run(home.install(&bytes, &signer)).unwrap();
    // One to parse it, one to compile it.
    assert_eq!(starts(&log), 2);
    // Without cached code: one load for all callers, which parses and compiles it once.
    let host = home.builder().without_code_cache().build().unwrap();
    run(async {
        let connector = connector(REFERENCE);
        let calls = || host.call(&connector, "run", json!({}));
        let (a, b, c) = tokio::join!(calls(), calls(), calls());
        assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (Value::Null, Value::Null, Value::Null));
        assert_eq!(starts(&log), 2 + 2);
        let install =
            || host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), InstallOptions::default());
        let (d, e) = tokio::join!(install(), install());
        assert!(d.unwrap().already_installed && e.unwrap().already_installed);
    });
    // Each install parses it, and looks at the files once more where the other has put another signature there.
    assert!((6..=8).contains(&starts(&log)), "{}", starts(&log));
    let environment = fs::read_to_string(log.with_extension("env")).unwrap();
    let own = |line: &&str| {
        !line.is_empty() && !["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|it| line.starts_with(it))
    };
    assert_eq!(environment.lines().filter(own).collect::<Vec<_>>(), Vec::<&str>::new());
    // 0, 1 and 2, the directory that `ls` reads, and descriptors that cargo left open for its children.
    let files = fs::read_to_string(log.with_extension("fds")).unwrap();
    let open = files.lines().filter(|line| line.contains(" -> ")).count();
    assert_eq!(open, 4 + inheritable(), "{files}");
}

/// The non-standard file descriptors that this process passes on to its children.
fn inheritable() -> usize {
    let handed_on = |entry: &fs::DirEntry| {
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
        let flags = flags.and_then(|flags| u32::from_str_radix(flags, 8).ok());
        number > 2 && flags.is_some_and(|flags| flags & 0o2_000_000 == 0)
    };
    fs::read_dir("/proc/self/fdinfo").unwrap().flatten().filter(handed_on).count()
}

#[test]
fn the_refusal_of_a_bomb_is_cached() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("log");
    let home = Home::with_compiler(noting(&log));
    let limits = CompileLimits::default().cpu_time(Duration::from_secs(1)).unwrap();
    let host = home.builder().compile_limits(limits).build().unwrap();
    let bomb = crate::bombs::generators::quadratic_function(60_000);
    let bomb = crate::bombs::ticking(&bomb);
    let bytes = package::pack(&bomb, &package::manifest("github://acme/bomb", "1.0.0"));
    for _ in 0..3 {
        let install = host.install_accepted(bytes.clone(), None, InstallOptions::default().allow_unsigned());
        let error = refused(run(install));
        assert_eq!(error.kind(), HostErrorKind::CompileRefused, "{error}");
        assert_eq!(error.details()["bound"], "cpu_time");
        assert_eq!(error.details()["configured"], 1);
    }
    // Each install parses it, and one compiles it.
    assert_eq!(starts(&log), 3 + 1);
}

#[test]
fn a_missing_worker_fails_the_host_build() {
    let build = |program: &str| Host::builder().home("/nowhere").compiler(Compiler::child(program)).build();
    for program in ["/nope", "/", "/etc/passwd", "relative/nope"] {
        let Err(error) = build(program) else { panic!("{program}") };
        assert_eq!(error.kind(), HostErrorKind::Configuration, "{program}: {error}");
        assert!(error.hint().unwrap().contains("cofferdam binary"), "{error}");
    }
    assert!(build(COFFERDAM).is_ok());
}

#[test]
fn an_incompatible_worker_is_a_configuration_error() {
    for program in ["/bin/true", "/bin/false", "/bin/cat"] {
        let home = Home::with_compiler(Compiler::child_with_args(program, []));
        let bytes = package_of("1.0.0", "one");
        let error = refused(run(home.host().install_accepted(
            bytes,
            None,
            InstallOptions::default().allow_unsigned(),
        )));
        assert_eq!(error.kind(), HostErrorKind::Configuration, "{program}: {error}");
        assert!(home.snapshot().paths().all(|path| !path.contains("cwasm")), "{program}");
    }
}
