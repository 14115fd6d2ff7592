//! The provenance of a build: its sources in git, its tools, and the dependencies that cargo says it compiled. Nothing in
//! it is a path of this machine, a user's name or a variable of the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_model::trust::{DependencyRecord, RepositoryUrl, SourceRecord, ToolRecord};
use serde::Deserialize;

use crate::{passphrase, toolchain};

/// The index of crates.io, as cargo names it.
const CRATES_IO: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/// Variables that would direct git to another repository than that of its directory.
const GIT_VARIABLES: [&str; 3] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"];

/// Returns the git command in `dir`.
pub(crate) fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    GIT_VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    // Without it, `git status` writes to the repository.
    command.env("GIT_OPTIONAL_LOCKS", "0").env_remove(passphrase::VARIABLE).arg("-C").arg(dir);
    command
}

/// Returns the output of git, without the line end; none if it fails or is not installed.
pub(crate) fn git_output(dir: &Path, args: &[&str]) -> Option<String> {
    let output = git(dir).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end_matches('\n').to_owned())
}

/// Returns the revision of the sources in `dir`; none if its file `manifest` is in no repository.
pub(super) fn source(dir: &Path, manifest: &str) -> Option<SourceRecord> {
    // A directory that the repository ignores is not described by its commit.
    git_output(dir, &["ls-files", "--error-unmatch", "--", manifest])?;
    let found = git_output(dir, &["rev-parse", "--show-prefix", "HEAD"])?;
    let (prefix, commit) = found.rsplit_once('\n')?;
    // As the author wrote it: `git remote` would apply replacements of this machine.
    let remote = git_output(dir, &["config", "--get", "remote.origin.url"]);
    Some(SourceRecord {
        repository: remote.as_deref().and_then(RepositoryUrl::from_remote),
        commit: commit.to_owned(),
        directory: prefix.trim_end_matches('/').to_owned(),
        clean: git_output(dir, &["status", "--porcelain"]).is_some_and(|changes| changes.is_empty()),
    })
}

/// Returns the versions of rustc and cargo in `dir`.
pub(super) fn rust_tools(dir: &Path) -> Vec<ToolRecord> {
    let version = |program: std::ffi::OsString| {
        let output = Command::new(program).arg("--version").current_dir(dir).output().ok()?;
        let line = String::from_utf8(output.stdout).ok()?;
        let (name, version) = line.trim().split_once(' ')?;
        Some(ToolRecord { name: name.to_owned(), version: version.to_owned() })
    };
    [toolchain::rustc(), toolchain::cargo()].into_iter().filter_map(version).collect()
}

/// The crates that cargo compiled for a connector, by the messages of its build.
#[derive(Debug, Default)]
pub(super) struct CompiledCrates {
    /// True for a crate that only ran during the build.
    crates: BTreeMap<CrateId, bool>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CrateId {
    name: String,
    version: String,
    source: String,
}

impl CrateId {
    /// Parses a package id of cargo: `registry+https://index#name@version`, or `path+file:///dir/name#version`.
    fn parse(id: &str) -> Option<Self> {
        let (source, fragment) = id.rsplit_once('#')?;
        let (name, version) = match fragment.split_once('@') {
            Some(named) => named,
            None => (source.split('?').next()?.rsplit('/').next()?, fragment),
        };
        Some(Self { name: name.to_owned(), version: version.to_owned(), source: source.to_owned() })
    }
}

#[derive(Deserialize)]
struct ArtifactMessage {
    package_id: String,
    manifest_path: PathBuf,
    filenames: Vec<PathBuf>,
}

impl CompiledCrates {
    /// Adds the crate of a line of `cargo build --message-format json`; `connector` is the manifest of the connector's own.
    pub(super) fn note(&mut self, line: &str, connector: &Path) {
        // Lines about something else have other fields.
        let Ok(message) = serde_json::from_str::<ArtifactMessage>(line) else { return };
        let Some(id) = CrateId::parse(&message.package_id) else { return };
        if message.manifest_path == connector {
            return;
        }
        let is_linked = |file: &PathBuf| file.iter().any(|part| part == toolchain::TARGET);
        let only_runs = !message.filenames.iter().any(is_linked);
        self.crates.entry(id).and_modify(|build| *build &= only_runs).or_insert(only_runs);
    }

    /// Returns them with the sources and checksums of the lock file.
    pub(super) fn into_records(self, lock: &str) -> Vec<DependencyRecord> {
        let lock: CargoLock = toml::from_str(lock).unwrap_or_default();
        let records = self.crates.into_iter().map(|(id, build)| {
            let locked = lock.package.iter().find(|locked| {
                let source = locked.source.as_deref().and_then(|source| source.split('#').next());
                locked.name == id.name && locked.version == id.version && source == Some(&*id.source)
            });
            DependencyRecord {
                source: locked.and_then(|it| source_name(it.source.as_deref()?)),
                checksum: locked.and_then(|it| Some(format!("sha256:{}", it.checksum.as_deref()?))),
                name: id.name,
                version: id.version,
                build,
            }
        });
        records.collect()
    }
}

#[derive(Default, Deserialize)]
struct CargoLock {
    #[serde(default)]
    package: Vec<LockedCrate>,
}

#[derive(Deserialize)]
struct LockedCrate {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
}

/// Returns the name of a source in a lock file, without credentials; none for a place of this machine.
fn source_name(source: &str) -> Option<String> {
    if CRATES_IO.contains(&source) {
        return Some("crates.io".to_owned());
    }
    let (kind, address) = source.split_once('+')?;
    let url = RepositoryUrl::from_remote(address)?;
    match (kind, address.rsplit_once('#')) {
        ("git", Some((_, commit))) => Some(format!("git+{url}#{commit}")),
        _ => Some(format!("registry+{url}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "serde"
version = "1.0.228"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "9a8e"

[[package]]
name = "own"
version = "0.2.0"
source = "git+https://ada:token@git.example/own?rev=12#1234"
"#;

    fn message(id: &str, file: &str) -> String {
        format!(
            r#"{{"reason": "compiler-artifact", "package_id": "{id}", "manifest_path": "/c/Cargo.toml", "filenames": ["{file}"]}}"#
        )
    }

    #[test]
    fn compiled_crates_have_the_sources_of_the_lock_file() {
        let mut crates = CompiledCrates::default();
        let serde = "registry+https://github.com/rust-lang/crates.io-index#serde@1.0.228";
        let (host, guest) = ("/t/release/deps/x.so", "/t/wasm32-wasip2/release/deps/x.rlib");
        for line in [
            message(serde, host),
            message(serde, guest),
            message("git+https://ada:token@git.example/own?rev=12#own@0.2.0", guest),
            message("path+file:///home/ada/sdk/macro#cofferdam-guest-macro@0.1.0", host),
            message("path+file:///home/ada/near#0.3.0", guest),
            r#"{"reason": "build-finished", "success": true}"#.to_owned(),
        ] {
            crates.note(&line, Path::new("/w/Cargo.toml"));
        }
        crates.note(&message("path+file:///w#weather@0.1.0", guest), Path::new("/c/Cargo.toml"));
        let records = crates.into_records(LOCK);
        let json = serde_json::to_string(&records).unwrap();
        assert!(!json.contains("ada") && !json.contains("token"), "{json}");
        let expected = serde_json::json!([
            {"name": "cofferdam-guest-macro", "version": "0.1.0", "build": true},
            {"name": "near", "version": "0.3.0"},
            {"name": "own", "version": "0.2.0", "source": "git+https://git.example/own#1234"},
            {"name": "serde", "version": "1.0.228", "source": "crates.io", "checksum": "sha256:9a8e"},
        ]);
        assert_eq!(serde_json::to_value(records).unwrap(), expected);
    }

    #[test]
    fn registries_of_this_machine_have_no_name() {
        assert_eq!(source_name("registry+file:///home/ada/index"), None);
        let own = source_name("sparse+https://token@crates.example/index/");
        assert_eq!(own.unwrap(), "registry+https://crates.example/index/");
    }
}
