//! The registry against real directories: what it writes, what it survives, what it refuses.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};

use cofferdam_core::error::{HostError, HostErrorKind};

use super::*;
use crate::package::{Package, fixture_tests};

const NAME: &str = "github://acme/test";

struct Home {
    directory: tempfile::TempDir,
    registry: Registry,
}

fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(directory.path().join("deep/packages"));
    Home { directory, registry }
}

impl Registry {
    fn install_unrecorded(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<InstallOutcome, RegistryError> {
        self.install(package, signature, Some(&accepted(package)), false, |_, _| Ok(()))
    }

    fn install_any_unrecorded(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<InstallOutcome, RegistryError> {
        self.install(package, signature, Some(&accepted(package)), true, |_, _| Ok(()))
    }

    fn remove_unrecorded(&self, name: &ConnectorName, version: &Version) -> Result<Digest, RegistryError> {
        self.remove(name, version, |_, _| Ok(()))
    }
}

fn accepted(package: &Package) -> Acceptance {
    Acceptance::new(package, Vec::new(), AcceptanceBasis::Operator, "ada", jiff::Timestamp::UNIX_EPOCH)
}

fn package(version: &str, salt: &str) -> Package {
    Package::open(fixture_tests::package(NAME, version, salt)).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<Package, HostError> {
    Ok(Package::open(bytes)?)
}

fn name() -> ConnectorName {
    ConnectorName::parse(NAME).unwrap()
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

/// Every file below `root` with its content, and every directory.
fn contents(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
            found.insert(path, None);
        } else {
            let bytes = fs::read(&path).ok();
            found.insert(path, Some(bytes.unwrap_or_default()));
        }
    }
    found
}

/// Checks the text of an error for all callers: a fix, and no path.
#[track_caller]
fn told(error: RegistryError, home: &Home, kind: HostErrorKind) -> String {
    let text = format!("{error} {}", error.fix());
    let root = home.directory.path().to_str().unwrap();
    assert!(!text.contains(root) && error.fix().ends_with('.'), "{text}");
    assert_eq!(error.path().is_some(), error.operator_text().contains(root));
    let host = HostError::from(error);
    assert_eq!(host.kind(), kind);
    assert!(!serde_json::to_string(&host).unwrap().contains(root));
    text
}

#[test]
fn a_missing_registry_is_empty_and_not_created() {
    let home = home();
    assert_eq!(home.registry.list().unwrap(), []);
    assert_eq!(home.registry.find(&name(), &version("1.0.0")).unwrap(), None);
    let gone = home.registry.read(&Digest::sha256(b"")).unwrap_err();
    told(gone, &home, HostErrorKind::RegistryUnavailable);
    let error = home.registry.remove_unrecorded(&name(), &version("1.0.0")).unwrap_err();
    told(error, &home, HostErrorKind::ConnectorNotFound);
    assert!(!home.registry.root().exists());
}

#[test]
fn packages_are_installed_found_read_and_removed() {
    let home = home();
    let registry = &home.registry;
    let (old, new) = (package("1.9.0", ""), package("1.10.0", ""));
    assert_eq!(registry.install_unrecorded(&new, Some(b"signature")).unwrap(), InstallOutcome::Installed);
    assert_eq!(registry.install_any_unrecorded(&old, None).unwrap(), InstallOutcome::Installed);
    let versions = registry.versions(&name()).unwrap();
    assert_eq!(versions.iter().map(|entry| entry.digest).collect::<Vec<_>>(), [*old.digest(), *new.digest()]);
    assert_eq!(registry.find(&name(), &version("1.10.0")).unwrap(), Some(*new.digest()));
    let stored = registry.read(new.digest()).unwrap();
    assert_eq!(
        (stored.bytes.as_slice(), stored.signature.as_deref()),
        (new.bytes(), Some(&b"signature"[..]))
    );
    assert_eq!(registry.read(old.digest()).unwrap().signature, None);
    assert_eq!(registry.remove_unrecorded(&name(), &version("1.9.0")).unwrap(), *old.digest());
    assert_eq!(registry.list().unwrap().len(), 1);
    assert!(matches!(registry.read(old.digest()), Err(RegistryError::Gone { .. })));
    for (path, content) in contents(registry.root()) {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if content.is_some() { 0o600 } else { 0o700 }, "{}", path.display());
    }
}

#[test]
fn reinstalling_changes_only_what_is_new() {
    let home = home();
    let registry = &home.registry;
    let package = package("1.0.0", "");
    registry.install_unrecorded(&package, Some(b"one")).unwrap();
    let before = contents(registry.root());
    assert_eq!(
        registry.install_unrecorded(&package, Some(b"one")).unwrap(),
        InstallOutcome::AlreadyInstalled
    );
    assert_eq!(registry.install_unrecorded(&package, None).unwrap(), InstallOutcome::AlreadyInstalled);
    assert_eq!(contents(registry.root()), before);
    assert_eq!(
        registry.install_unrecorded(&package, Some(b"two")).unwrap(),
        InstallOutcome::SignatureUpdated
    );
    assert_eq!(registry.read(package.digest()).unwrap().signature.as_deref(), Some(&b"two"[..]));
    fs::write(registry.file(package.digest(), PACKAGE), b"damaged").unwrap();
    assert_eq!(registry.install_unrecorded(&package, Some(b"two")).unwrap(), InstallOutcome::Repaired);
    assert_eq!(registry.read(package.digest()).unwrap().bytes, package.bytes());
    fs::remove_dir_all(registry.directory(package.digest())).unwrap();
    assert_eq!(registry.install_unrecorded(&package, Some(b"two")).unwrap(), InstallOutcome::Repaired);
}

#[test]
fn one_name_and_version_has_one_content() {
    let home = home();
    let (one, other) = (package("1.0.0", "one"), package("1.0.0", "other"));
    home.registry.install_unrecorded(&one, None).unwrap();
    let before = contents(home.registry.root());
    let error = home.registry.install_unrecorded(&other, None).unwrap_err();
    let text = told(error, &home, HostErrorKind::Conflict);
    assert!(text.contains(&one.digest().to_string()) && text.contains(&other.digest().to_string()), "{text}");
    assert!(text.contains("cofferdam remove github://acme/test@1.0.0"), "{text}");
    assert_eq!(contents(home.registry.root()), before);
}

#[test]
fn any_file_change_alters_its_fingerprint() {
    let package = package("1.0.0", "");
    let digest = package.digest();
    let mut flipped = package.bytes().to_vec();
    flipped[100] ^= 1;
    type Change<'c> = &'c dyn Fn(&Path, &Path);
    let changes: [(&str, Change<'_>); 8] = [
        ("a bit", &|file, _| fs::write(file, &flipped).unwrap()),
        ("one byte more", &|file, _| fs::write(file, [package.bytes(), b"x"].concat()).unwrap()),
        ("gone", &|file, _| fs::remove_file(file).unwrap()),
        ("another file in its place", &|file, signature| fs::rename(signature, file).unwrap()),
        ("another directory in its place", &|file, _| {
            let (directory, aside) = (file.parent().unwrap(), file.parent().unwrap().with_extension("aside"));
            fs::rename(directory, &aside).unwrap();
            fs::create_dir(directory).unwrap();
            fs::copy(aside.join(PACKAGE), file).unwrap();
        }),
        ("the signature written to", &|_, signature| fs::write(signature, b"signaturf").unwrap()),
        ("another signature moved over it", &|file, signature| {
            let other = file.with_extension("other");
            fs::write(&other, b"signature").unwrap();
            fs::rename(other, signature).unwrap();
        }),
        ("no signature", &|_, signature| fs::remove_file(signature).unwrap()),
    ];
    for (name, change) in changes {
        let home = home();
        let registry = &home.registry;
        registry.install_unrecorded(&package, Some(b"signature")).unwrap();
        let watch = registry.watch(digest).unwrap();
        let loaded = registry.read(digest).unwrap().fingerprint;
        assert_eq!(watch.fingerprint(), Some(loaded), "{name}");
        // File systems count time in steps of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        change(&registry.file(digest, PACKAGE), &registry.file(digest, SIGNATURE));
        assert_ne!(watch.fingerprint(), Some(loaded), "{name}");
    }
}

#[test]
fn a_new_signature_alters_the_fingerprint() {
    let home = home();
    let registry = &home.registry;
    let package = package("1.0.0", "");
    registry.install_unrecorded(&package, None).unwrap();
    let watch = registry.watch(package.digest()).unwrap();
    let loaded = registry.read(package.digest()).unwrap().fingerprint;
    assert_eq!(watch.fingerprint(), Some(loaded));
    fs::write(registry.file(package.digest(), SIGNATURE), b"signature").unwrap();
    assert_ne!(watch.fingerprint(), Some(loaded));
}

#[test]
fn a_killed_install_is_cleaned_up_by_the_next() {
    let home = home();
    let registry = &home.registry;
    let (kept, killed) = (package("1.0.0", ""), package("2.0.0", ""));
    registry.install_unrecorded(&kept, None).unwrap();
    // Killed while writing: half a package in tmp.
    let half = registry.tmp().join(killed.digest().to_string());
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join(PACKAGE), &killed.bytes()[..100]).unwrap();
    fs::write(registry.tmp().join(INDEX), b"{\"version\"").unwrap();
    assert_eq!(registry.list().unwrap().len(), 1);
    // Killed between moving the package and the index.
    fs::create_dir(registry.directory(killed.digest())).unwrap();
    fs::write(registry.file(killed.digest(), PACKAGE), killed.bytes()).unwrap();
    assert_eq!(registry.find(&name(), &version("2.0.0")).unwrap(), None);
    assert_eq!(registry.install_unrecorded(&killed, Some(b"s")).unwrap(), InstallOutcome::Installed);
    assert_eq!(registry.read(killed.digest()).unwrap().signature.as_deref(), Some(&b"s"[..]));
    assert_eq!(fs::read_dir(registry.tmp()).unwrap().count(), 0);
    // Killed in a removal, after the index and before the files.
    let mut index = registry.index().unwrap();
    index.remove(&name(), &version("2.0.0"));
    registry.begin().unwrap();
    registry.write_index(&index).unwrap();
    assert_eq!(registry.find(&name(), &version("2.0.0")).unwrap(), None);
    assert_eq!(registry.install_unrecorded(&killed, None).unwrap(), InstallOutcome::Installed);
}

#[test]
fn a_damaged_index_is_refused_and_can_be_rebuilt() {
    let home = home();
    let registry = &home.registry;
    let package = package("1.0.0", "");
    registry.install_unrecorded(&package, None).unwrap();
    let index = registry.root().join(INDEX);
    let good = fs::read(&index).unwrap();
    let flipped: Vec<u8> = String::from_utf8(good.clone()).unwrap().replace("1.0.0", "1.0.1").into_bytes();
    for bad in [&good[..good.len() / 2], b"", flipped.as_slice(), b"{\"version\":2}"] {
        fs::write(&index, bad).unwrap();
        let before = contents(registry.root());
        for error in [
            registry.list().unwrap_err(),
            registry.install_unrecorded(&package, None).unwrap_err(),
            registry.remove_unrecorded(&name(), &version("1.0.0")).unwrap_err(),
        ] {
            let text = told(error, &home, HostErrorKind::RegistryUnavailable);
            assert!(
                text.contains("index.json") && text.contains("cofferdam verify --rebuild-index"),
                "{text}"
            );
        }
        assert_eq!(contents(registry.root()), before);
        let rebuilt = registry.rebuild_index(open).unwrap();
        assert_eq!((rebuilt.entries.len(), rebuilt.skipped.len()), (1, 0));
        assert_eq!(fs::read(&index).unwrap(), good);
    }
}

#[test]
fn a_rebuild_keeps_valid_packages_and_reports_others() {
    let home = home();
    let registry = &home.registry;
    let (good, damaged) = (package("1.0.0", ""), package("2.0.0", ""));
    let (twin, other_twin) = (package("3.0.0", "a"), package("3.0.0", "b"));
    for package in [&good, &damaged, &twin] {
        registry.install_unrecorded(package, None).unwrap();
    }
    fs::write(registry.file(damaged.digest(), PACKAGE), [damaged.bytes(), b"\0"].concat()).unwrap();
    fs::create_dir(registry.directory(other_twin.digest())).unwrap();
    fs::write(registry.file(other_twin.digest(), PACKAGE), other_twin.bytes()).unwrap();
    fs::create_dir(registry.store().join("..oops")).unwrap();
    fs::create_dir(registry.store().join(Digest::sha256(b"empty").to_string())).unwrap();
    symlink("/etc", registry.store().join(Digest::sha256(b"link").to_string())).unwrap();
    let rebuilt = registry.rebuild_index(open).unwrap();
    let kept: Vec<Digest> = rebuilt.entries.iter().map(|entry| entry.digest).collect();
    assert_eq!(kept, [*good.digest(), *twin.digest()]);
    assert_eq!(rebuilt.skipped.len(), 5, "{:?}", rebuilt.skipped);
    assert_eq!(registry.highest(&name()).unwrap(), Some(version("3.0.0")), "2.0.0 is not forgotten");
    fs::write(registry.root().join(INDEX), b"").unwrap();
    // A worker that does not start says nothing about packages: nothing is written.
    let broken = |_| Err(HostError::new(HostErrorKind::Configuration, "The worker could not be started."));
    assert_eq!(registry.rebuild_index(broken).unwrap_err().kind(), HostErrorKind::Configuration);
    assert_eq!(fs::read(registry.root().join(INDEX)).unwrap(), b"");
    let rebuilt = registry.rebuild_index(open).unwrap();
    assert_eq!(rebuilt.entries.len(), 1, "without an old index, of two twins neither is believed");
}

#[test]
fn foreign_files_and_links_are_not_followed() {
    let home = home();
    let registry = &home.registry;
    let package = package("1.0.0", "");
    registry.install_unrecorded(&package, None).unwrap();
    let digest = package.digest();
    let elsewhere = home.directory.path().join("elsewhere");
    fs::rename(registry.directory(digest), &elsewhere).unwrap();
    let refused = |expected: &str| {
        let text = told(registry.read(digest).unwrap_err(), &home, HostErrorKind::RegistryUnavailable);
        assert!(text.contains(expected), "{text}");
        let text = told(
            registry.install_unrecorded(&package, None).unwrap_err(),
            &home,
            HostErrorKind::RegistryUnavailable,
        );
        assert!(text.contains(expected), "{text}");
    };
    symlink(&elsewhere, registry.directory(digest)).unwrap();
    refused("a symbolic link where a directory belongs");
    fs::remove_file(registry.directory(digest)).unwrap();
    fs::create_dir(registry.directory(digest)).unwrap();
    symlink(elsewhere.join(PACKAGE), registry.file(digest, PACKAGE)).unwrap();
    refused("a symbolic link where a file belongs");
    fs::remove_file(registry.file(digest, PACKAGE)).unwrap();
    fs::create_dir(registry.file(digest, PACKAGE)).unwrap();
    refused("a directory where a file belongs");
    fs::remove_dir_all(registry.directory(digest)).unwrap();
    fs::write(registry.directory(digest), b"").unwrap();
    refused("a file where a directory belongs");
    fs::remove_file(registry.root().join(INDEX)).unwrap();
    symlink("/etc/passwd", registry.root().join(INDEX)).unwrap();
    let text = told(registry.list().unwrap_err(), &home, HostErrorKind::RegistryUnavailable);
    assert!(text.contains("a symbolic link where a file belongs"), "{text}");
}

#[test]
fn pipes_and_huge_files_neither_hang_nor_fill_memory() {
    let home = home();
    let registry = &home.registry;
    let package = package("1.0.0", "");
    registry.install_unrecorded(&package, None).unwrap();
    let file = registry.file(package.digest(), PACKAGE);
    fs::remove_file(&file).unwrap();
    fs::File::create(&file).unwrap().set_len(3 << 30).unwrap();
    let error = registry.read(package.digest()).unwrap_err();
    assert!(matches!(error, RegistryError::TooLarge { bytes: 3_221_225_472, .. }), "{error}");
    assert_eq!(registry.install_unrecorded(&package, None).unwrap(), InstallOutcome::Repaired);
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let text = told(registry.read(package.digest()).unwrap_err(), &home, HostErrorKind::RegistryUnavailable);
    assert!(text.contains("something else where a file belongs"), "{text}");
}

#[test]
fn an_unwritable_directory_is_explained() {
    let home = home();
    fs::write(home.directory.path().join("deep"), b"a file in the way").unwrap();
    let error = home.registry.install_unrecorded(&package("1.0.0", ""), None).unwrap_err();
    assert!(told(error, &home, HostErrorKind::RegistryUnavailable).contains("in the way"));
    for (kind, words) in [
        (io::ErrorKind::StorageFull, "disk is full"),
        (io::ErrorKind::ReadOnlyFilesystem, "read-only"),
        (io::ErrorKind::PermissionDenied, "permission denied"),
        (io::ErrorKind::QuotaExceeded, "quota"),
    ] {
        let error = RegistryError::io("writing a file", home.registry.root())(kind.into());
        assert!(told(error, &home, HostErrorKind::RegistryUnavailable).contains(words));
    }
}

#[test]
fn concurrent_installers_converge() {
    let home = home();
    let packages: Vec<Package> = (0..4).map(|minor| package(&format!("1.{minor}.0"), "")).collect();
    let conflicting = package("1.0.0", "other");
    let outcomes = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for round in 0..4 {
            for package in packages.iter().chain([&conflicting]) {
                let registry = home.registry.clone();
                let signature = [b'0' + round];
                threads.push(scope.spawn(move || registry.install_any_unrecorded(package, Some(&signature))));
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let installed =
        outcomes.iter().filter(|outcome| matches!(outcome, Ok(InstallOutcome::Installed))).count();
    let refused =
        outcomes.iter().filter(|outcome| matches!(outcome, Err(RegistryError::Conflict(_)))).count();
    assert_eq!((installed, refused), (4, 4), "{outcomes:?}");
    let listed = home.registry.list().unwrap();
    assert_eq!(listed.len(), 4);
    for entry in listed {
        assert_eq!(Digest::sha256(&home.registry.read(&entry.digest).unwrap().bytes), entry.digest);
    }
    assert_eq!(fs::read_dir(home.registry.tmp()).unwrap().count(), 0);
    let before = contents(home.registry.root());
    home.registry.rebuild_index(open).unwrap();
    assert_eq!(contents(home.registry.root()), before);
}

/// The other process of the two tests below, until it is killed.
#[test]
#[ignore = "run by other tests, as a process of its own"]
fn another_process() {
    let Ok(root) = std::env::var("COFFERDAM_TEST_PACKAGES") else { return };
    let registry = Registry::open(root);
    let packages: Vec<Package> = (0..3).map(|minor| package(&format!("1.{minor}.0"), "")).collect();
    loop {
        for package in &packages {
            let signature = package.digest().to_string();
            registry.install_any_unrecorded(package, Some(signature.as_bytes())).unwrap();
        }
        if std::env::var_os("COFFERDAM_TEST_ONCE").is_some() {
            return;
        }
        for package in &packages {
            // Another process may have been faster.
            let _ = registry.remove_unrecorded(package.manifest().name(), package.manifest().version());
        }
    }
}

fn start_another(home: &Home, once: bool) -> std::process::Child {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["registry::tests::another_process", "--exact", "--ignored"]);
    command.env("COFFERDAM_TEST_PACKAGES", home.registry.root());
    if once {
        command.env("COFFERDAM_TEST_ONCE", "1");
    }
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
}

#[test]
fn concurrent_installer_processes_converge() {
    let home = home();
    let children: Vec<_> = (0..3).map(|_| start_another(&home, true)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(home.registry.list().unwrap().len(), 3);
    assert_eq!(fs::read_dir(home.registry.tmp()).unwrap().count(), 0);
}

#[test]
fn a_kill_leaves_the_old_or_the_new_registry() {
    let home = home();
    let mut state = 11_u64;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..25 {
        let mut child = start_another(&home, false);
        while !home.registry.root().join(INDEX).exists() {
            std::thread::yield_now();
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(std::time::Duration::from_micros(20_000 + (state >> 33) % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let listed = home.registry.list().unwrap();
        seen.insert(listed.len());
        for entry in listed {
            let stored = home.registry.read(&entry.digest).unwrap();
            assert_eq!(Digest::sha256(&stored.bytes), entry.digest);
            assert_eq!(stored.signature.unwrap(), entry.digest.to_string().as_bytes());
        }
        // After any leftovers, the next install works.
        let next = package("1.0.0", "");
        let signature = next.digest().to_string();
        home.registry.install_any_unrecorded(&next, Some(signature.as_bytes())).unwrap();
    }
    assert!(seen.len() > 1, "the kills all hit the same state: {seen:?}");
}

#[test]
fn a_downgrade_is_refused_after_removing_the_newer() {
    let home = home();
    let registry = &home.registry;
    let (old, new) = (package("1.2.0", ""), package("1.10.0", ""));
    registry.install_unrecorded(&new, None).unwrap();
    let refused = |when: &str| {
        let before = contents(registry.root());
        let text =
            told(registry.install_unrecorded(&old, None).unwrap_err(), &home, HostErrorKind::Downgrade);
        assert!(text.contains("is older than 1.10.0"), "{when}: {text}");
        assert!(text.contains("--allow-downgrade"), "{when}: {text}");
        assert_eq!(contents(registry.root()), before, "{when}");
    };
    refused("installed");
    registry.remove_unrecorded(&name(), &version("1.10.0")).unwrap();
    refused("removed");
    registry.rebuild_index(open).unwrap();
    refused("rebuilt");
    assert_eq!(registry.install_any_unrecorded(&old, None).unwrap(), InstallOutcome::Installed);
    assert_eq!(registry.install_unrecorded(&old, Some(b"s")).unwrap(), InstallOutcome::SignatureUpdated);
    assert_eq!(registry.highest(&name()).unwrap(), Some(version("1.10.0")));
    // The same version is none below, and neither is one of another connector.
    assert_eq!(registry.install_unrecorded(&new, None).unwrap(), InstallOutcome::Installed);
    let other = Package::open(fixture_tests::package("github://acme/other", "0.1.0", "")).unwrap();
    registry.install_unrecorded(&other, None).unwrap();
}

#[test]
fn an_edited_version_history_is_refused() {
    let home = home();
    let registry = &home.registry;
    registry.install_unrecorded(&package("2.0.0", ""), None).unwrap();
    registry.remove_unrecorded(&name(), &version("2.0.0")).unwrap();
    let path = registry.root().join("highest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("2.0.0", "0.0.1")).unwrap();
    let error = registry.install_unrecorded(&package("1.0.0", ""), None).unwrap_err();
    let text = told(error, &home, HostErrorKind::RegistryUnavailable);
    assert!(text.contains("checksum") && text.contains("--rebuild-index"), "{text}");
    let rebuilt = registry.rebuild_index(open).unwrap();
    assert!(rebuilt.skipped[0].reason.contains("forgotten"), "{:?}", rebuilt.skipped);
    registry.install_unrecorded(&package("1.0.0", ""), None).unwrap();
}

#[test]
fn nothing_changes_if_a_switch_is_not_recorded() {
    let home = home();
    let registry = &home.registry;
    let (one, two) = (package("1.0.0", ""), package("2.0.0", ""));
    registry.install_unrecorded(&one, None).unwrap();
    let fails = |_: &Version, _: &Version| Err(RegistryError::Locked { path: PathBuf::new() });
    registry.install(&two, None, Some(&accepted(&two)), false, fails).unwrap_err();
    assert_eq!(registry.find(&name(), &version("2.0.0")).unwrap(), None);
    registry.install_unrecorded(&two, None).unwrap();
    registry.activate(&name(), &version("1.0.0"), fails).unwrap_err();
    registry.rollback(&name(), fails).unwrap_err();
    registry.remove(&name(), &version("2.0.0"), fails).unwrap_err();
    assert_eq!(registry.active(&name()).unwrap(), Some(version("2.0.0")));
    let mut recorded = Vec::new();
    let mut records = |before: &Version, after: &Version| {
        recorded.push(format!("{before} {after}"));
        Ok::<_, RegistryError>(())
    };
    registry.activate(&name(), &version("2.0.0"), &mut records).unwrap();
    registry.rollback(&name(), &mut records).unwrap();
    registry.activate(&name(), &version("2.0.0"), &mut records).unwrap();
    registry.remove(&name(), &version("2.0.0"), &mut records).unwrap();
    registry.remove(&name(), &version("1.0.0"), &mut records).unwrap();
    assert_eq!(recorded, ["2.0.0 1.0.0", "1.0.0 2.0.0", "2.0.0 1.0.0"]);
}

#[test]
fn a_new_package_needs_an_acceptance_that_still_holds() {
    let Home { registry, .. } = &home();
    let (one, two, three) = (package("1.0.0", ""), package("1.1.0", ""), package("1.2.0", ""));
    let install = |package: &Package, acceptance: Option<&Acceptance>| {
        registry.install(package, None, acceptance, false, |_, _| Ok::<_, RegistryError>(()))
    };
    let changed = |outcome| assert!(matches!(outcome, Err(RegistryError::ChangedMeanwhile { .. })));
    changed(install(&one, None));
    install(&one, Some(&accepted(&one))).unwrap();
    let than = |package: &Package, version: &Package| {
        let basis = AcceptanceBasis::NoWiderThan(version.manifest().version().clone());
        Acceptance::new(package, Vec::new(), basis, "ada", jiff::Timestamp::UNIX_EPOCH)
    };
    install(&two, Some(&than(&two, &one))).unwrap();
    // It was compared with a version that is no longer the active one.
    changed(install(&three, Some(&than(&three, &one))));
    assert_eq!(registry.active(&name()).unwrap(), Some(two.manifest().version().clone()));
    // What a removal leaves behind is not accepted.
    registry.remove_unrecorded(&name(), two.manifest().version()).unwrap();
    assert_eq!(registry.acceptance(two.digest()).unwrap(), None);
}
