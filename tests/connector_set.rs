//! `sync`, `update`, `outdated` and `vendor`: a home has the connectors of a set, and exactly those of a lock file.

use std::fs;
use std::time::{Duration, Instant};

use cofferdam_core::digest::Digest;
use cofferdam_test_support::package::{pack, quiet};
use cofferdam_test_support::{Cli, CommandResult, Home, Signer};
use serde_json::{Value, json};

use crate::COFFERDAM;

const ONE: &str = "github://acme/one";
const TWO: &str = "github://acme/two";

/// A project with a set of connectors, whose sources are files, and homes that trust their signer.
struct Project {
    home: Home,
    signer: Signer,
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let it =
            Self { home: Home::new(COFFERDAM), signer: Signer::new(), dir: tempfile::tempdir().unwrap() };
        it.home.trust(&it.signer.public(), "github://acme/*");
        it.packs(ONE, "1.0.0", "");
        it.packs(TWO, "1.0.0", "[capabilities.network]\nhosts = [\"a.example:443\"]\n");
        it.wants(&[(ONE, "1"), (TWO, "1")]);
        it
    }

    /// Writes the file that is the source of `name`; returns its hash.
    fn packs(&self, name: &str, version: &str, more: &str) -> String {
        let manifest = format!("[connector]\nname = \"{name}\"\nversion = \"{version}\"\n{more}");
        let bytes = pack(&quiet(), &manifest);
        self.signer.write(self.dir.path().join(file(name)), &bytes);
        format!("sha256:{}", Digest::sha256(&bytes))
    }

    fn hash(&self, name: &str) -> String {
        format!("sha256:{}", Digest::sha256(&fs::read(self.dir.path().join(file(name))).unwrap()))
    }

    fn wants(&self, connectors: &[(&str, &str)]) {
        let line = |(name, version): &(&str, &str)| {
            format!(
                "[[connector]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{}\"\n",
                file(name)
            )
        };
        fs::write(self.dir.path().join("connectors.toml"), connectors.iter().map(line).collect::<String>())
            .unwrap();
    }

    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path()).in_dir(self.dir.path())
    }

    fn run(&self, line: &str) -> CommandResult {
        self.cli().run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Syncs and accepts what both connectors ask for; the effects by name.
    fn syncs(&self) -> Vec<(String, String)> {
        effects(self.run(&self.accepting("sync")))
    }

    fn accepting(&self, command: &str) -> String {
        format!("{command} --format json --accept {} --accept {}", self.hash(ONE), self.hash(TWO))
    }

    fn lock(&self) -> String {
        fs::read_to_string(self.dir.path().join("connectors.lock")).unwrap()
    }

    fn edit_lock(&self, edit: impl Fn(&str) -> String) {
        fs::write(self.dir.path().join("connectors.lock"), edit(&self.lock())).unwrap();
    }

    /// The project with another home, which trusts the signer too.
    fn with_another_home(mut self) -> Self {
        self.home = Home::new(COFFERDAM);
        self.home.trust(&self.signer.public(), "github://acme/*");
        self
    }

    fn calls(&self, name: &str) -> bool {
        self.cli().run(&["call", name, "run"]).code == Some(0)
    }
}

fn file(name: &str) -> String {
    format!("{}.wasm", name.rsplit('/').next().unwrap())
}

#[track_caller]
fn effects(result: CommandResult) -> Vec<(String, String)> {
    let synced = result.json();
    let line =
        |it: &Value| (it["name"].as_str().unwrap().to_owned(), it["effect"].as_str().unwrap().to_owned());
    synced.as_array().unwrap().iter().map(line).collect()
}

fn both(effect: &str) -> Vec<(String, String)> {
    [ONE, TWO].map(|name| (name.to_owned(), effect.to_owned())).to_vec()
}

#[test]
fn a_set_is_installed_and_locked_after_consent() {
    let it = Project::new();
    let refused = it.run("sync --format json").fails(93).envelope();
    let hint = refused["error"]["details"]["suggestion"].as_str().unwrap();
    assert!(hint.contains(&format!("--accept {}", it.hash(ONE))), "{hint}");
    // One of two is not enough, and nothing is done by half.
    it.run(&format!("sync --accept {}", it.hash(ONE))).fails(93).said(TWO);
    assert!(!it.dir.path().join("connectors.lock").exists());
    assert_eq!(it.home.host().list().unwrap(), []);
    assert_eq!(it.syncs(), both("installed"));
    let lock = it.lock();
    for text in [&it.hash(TWO), &it.signer.public().id().to_string(), "\"host a.example:443\""] {
        assert!(lock.contains(text), "{text}: {lock}");
    }
    assert_eq!(effects(it.run("sync --format json")), both("unchanged"));
    assert_eq!(it.lock(), lock);
    assert!(it.calls(ONE) && it.calls(TWO));
}

#[test]
fn another_machine_gets_the_locked_bytes_or_nothing() {
    let it = Project::new();
    it.run("sync --locked").fails(67).said("There is no ");
    it.syncs();
    let it = it.with_another_home();
    assert_eq!(effects(it.run("sync --locked --format json")), both("installed"));
    let it = it.with_another_home();
    let lock = it.lock();
    it.packs(ONE, "1.0.0", "[limits]\nmemory = \"1MiB\"\n");
    it.run("sync --locked").fails(80).said("sha256:");
    assert!(!it.calls(ONE));
    // Files that were edited by hand.
    it.packs(ONE, "1.0.0", "");
    for (code, from, to) in [
        (93, "host a.example:443", "host b.example:443"),
        (93, &*it.signer.public().id().to_string(), &*Signer::new().public().id().to_string()),
        (93, "version = \"1.0.0\"", "version = \"1.0.1\""),
        (67, "version = \"1.0.0\"", "version = \"2.0.0\""),
        (67, ONE, "github://acme/other"),
        (65, "hash = ", "hush = "),
    ] {
        it.edit_lock(|_| lock.replace(from, to));
        it.run("sync --locked").fails(code).said("");
        assert_eq!(it.home.host().list().unwrap(), [], "{from}: nothing is done by half");
    }
    it.edit_lock(|_| lock.clone());
    it.run("sync --locked").ok();
    // Also where the packages are installed.
    it.edit_lock(|_| lock.replace("host a.example:443", "host b.example:443"));
    it.run("sync --locked").fails(93).said("another access");
}

#[test]
fn no_source_brings_back_an_old_version() {
    let it = Project::new();
    it.syncs();
    it.packs(ONE, "1.1.0", "");
    it.run("update").ok();
    it.packs(ONE, "1.0.0", "");
    let lock = it.lock();
    it.run("update").fails(67).said("older than the active version 1.1.0");
    assert_eq!(it.lock(), lock);
    assert_eq!(effects(it.run("update --allow-downgrade --format json"))[0].1, "activated");
    assert!(it.lock().contains("1.0.0"));
}

#[test]
fn a_lock_file_is_consent_only_with_locked() {
    let it = Project::new();
    it.syncs();
    let it = it.with_another_home();
    it.run("sync").fails(93).said(TWO);
    assert_eq!(it.syncs(), both("installed"));
}

#[test]
fn a_changed_requirement_needs_a_new_lock() {
    let it = Project::new();
    it.syncs();
    it.wants(&[(ONE, "2"), (TWO, "1")]);
    it.run("sync --locked").fails(67).said(ONE);
    it.run("sync").fails(67).said("asks for github://acme/one `^2`");
    it.packs(ONE, "2.0.0", "");
    // The access is that of 1.0.0, and the signer too.
    let effects = effects(it.run("sync --format json"));
    assert_eq!(effects, [(ONE.to_owned(), "installed".to_owned()), (TWO.to_owned(), "unchanged".to_owned())]);
    it.run(&format!("rollback {ONE}")).ok();
    let activated = self::effects(it.run("sync --locked --format json"));
    assert_eq!(activated[0], (ONE.to_owned(), "activated".to_owned()));
    it.wants(&[(ONE, "2")]);
    let pruned = self::effects(it.run("sync --prune --format json"));
    assert_eq!(pruned[1], (TWO.to_owned(), "removed".to_owned()));
    assert!(!it.lock().contains(TWO));
}

#[test]
fn updates_take_newer_versions_of_the_named() {
    let it = Project::new();
    it.syncs();
    it.packs(ONE, "1.1.0", "");
    it.packs(TWO, "1.1.0", "[capabilities.network]\nhosts = [\"a.example:443\", \"b.example:443\"]\n");
    let outdated = it.run("outdated --format json").json();
    assert_eq!(outdated[1], json!({"name": TWO, "locked": "1.0.0", "allowed": "1.1.0", "newest": "1.1.0"}));
    // A lock file with files as sources names what it had: 1.0.0 is gone.
    it.run(&format!("update {ONE}")).ok();
    assert!(it.lock().contains("1.1.0") && it.lock().contains("1.0.0"));
    it.run("update github://acme/three").fails(66).said("does not name");
    let refused = it.run("update").fails(93);
    refused.said("b.example:443: it may reach this host as well");
    it.run(&it.accepting("update")).ok();
    assert_eq!(it.run("outdated --format json").json(), json!([]));
}

#[test]
fn vendored_packages_need_no_source() {
    let it = Project::new();
    it.syncs();
    it.run("vendor copies").ok();
    for name in [ONE, TWO] {
        fs::remove_file(it.dir.path().join(file(name))).unwrap();
    }
    let it = it.with_another_home();
    it.run("sync --locked").fails(66).said("one.wasm");
    assert_eq!(effects(it.run("sync --locked --vendored copies --format json")), both("installed"));
    let it = it.with_another_home();
    let vendored = fs::read_dir(it.dir.path().join("copies")).unwrap().map(|entry| entry.unwrap().path());
    for path in vendored.filter(|path| path.extension().is_some_and(|ending| ending == "wasm")) {
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    it.run("sync --locked --vendored copies").fails(80).said("sha256:");
}

#[test]
fn a_killed_sync_is_finished_by_the_next() {
    let it = Project::new();
    let began = Instant::now();
    it.syncs();
    let whole = began.elapsed();
    for round in 1..=12_u32 {
        let version = format!("1.{round}.0");
        for name in [ONE, TWO] {
            it.packs(name, &version, "");
        }
        let line = it.accepting("update");
        let mut command = it.cli().command(&line.split(' ').collect::<Vec<_>>());
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(round) / 12.0) + Duration::from_millis(1));
        child.kill().unwrap();
        child.wait().unwrap();
        // Some version can be called, whatever was interrupted.
        assert!(it.calls(ONE) && it.calls(TWO), "{version}");
        // What the lock file has is installed; if it was not written yet, it still has the version before.
        drop(it.syncs());
        assert_eq!(effects(it.run("sync --locked --format json")), both("unchanged"));
        it.run(&line).ok();
        it.run("verify").ok();
    }
}
