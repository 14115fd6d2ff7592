//! The author's Rust toolchain: is everything there that building a connector needs, and what to do if not.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Deserialize;

use super::files;
use super::layout::printable_line;

/// The target of connectors.
pub(super) const TARGET: &str = "wasm32-wasip2";

/// The crate that is to become a connector.
#[derive(Debug)]
pub(super) struct ConnectorCrate {
    /// `Cargo.toml`, absolute.
    pub(super) manifest: PathBuf,
    /// The target directory of cargo.
    pub(super) target_directory: PathBuf,
    /// The directory of the crate's workspace.
    workspace_root: PathBuf,
    /// The directory of cargo's intermediate files; none if this cargo does not separate them.
    build_directory: Option<PathBuf>,
    /// True if the workspace has other crates, too.
    has_siblings: bool,
}

impl ConnectorCrate {
    /// Returns the directory of cargo's intermediate files, unless connectors share one.
    pub(super) fn intermediate_directory(&self) -> &Path {
        self.build_directory.as_ref().unwrap_or(&self.target_directory)
    }

    /// Returns cargo's lock file.
    pub(super) fn lock_file(&self) -> PathBuf {
        self.workspace_root.join("Cargo.lock")
    }

    /// Builds in another directory than the author's.
    pub(super) fn build_in(&mut self, dir: &Path) {
        self.target_directory = dir.to_owned();
        self.build_directory = Some(dir.to_owned());
    }

    /// Returns whether the crate is a workspace by itself, and the author chose no directory to build it in.
    pub(super) fn builds_in_its_own_target(&self) -> bool {
        let root = files::parent(&self.manifest);
        !self.has_siblings
            && self.workspace_root == root
            && self.target_directory == root.join("target")
            && self.build_directory.as_ref() == Some(&self.target_directory)
    }
}

/// The cargo to use.
pub(super) fn cargo() -> OsString {
    std::env::var_os("CARGO").filter(|cargo| !cargo.is_empty()).unwrap_or_else(|| "cargo".into())
}

/// The rustc to use.
pub(super) fn rustc() -> OsString {
    std::env::var_os("RUSTC").filter(|rustc| !rustc.is_empty()).unwrap_or_else(|| "rustc".into())
}

/// Finds the crate in `dir`, and checks that it makes a component.
pub(super) fn find_crate(dir: &Path) -> Result<ConnectorCrate, HostError> {
    let manifest = dir.join("Cargo.toml");
    let manifest = manifest.canonicalize().map_err(|error| {
        files::unreadable("The crate's manifest", &manifest, error).with_hint(
            "Run this in the directory of the connector's crate. For other languages, build a component \
                   with their own tools and use `cofferdam pack`.",
        )
    })?;
    let mut command = Command::new(cargo());
    command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(&manifest);
    command.current_dir(dir).env("RUST_BACKTRACE", "0");
    let output = command.output().map_err(|error| cannot_start("cargo", error))?;
    if !output.status.success() {
        let hint = "Correct what cargo says; `cargo metadata` shows the same.";
        return Err(HostError::new(HostErrorKind::Tool, "cargo cannot read the crate.")
            .with_hint(format!("{hint}\n{}", complaint(&output))));
    }
    choose(&manifest, &output.stdout)
}

/// The one crate of cargo's metadata that `manifest` is of.
fn choose(manifest: &Path, metadata: &[u8]) -> Result<ConnectorCrate, HostError> {
    let metadata: CargoMetadata = serde_json::from_slice(metadata).map_err(|error| {
        HostError::new(HostErrorKind::Tool, "cargo's metadata cannot be read.")
            .with_hint("Use a current cargo.")
            .with_source(error)
    })?;
    let package = metadata.packages.iter().find(|package| package.manifest_path == manifest);
    let Some(package) = package else {
        let message = format!("{} is of a workspace, not of one crate.", files::shown(manifest));
        let names: Vec<_> = metadata.packages.iter().filter_map(|it| it.manifest_path.parent()).collect();
        let names: Vec<_> = names.iter().map(|dir| files::shown(dir)).collect();
        let hint = format!("Name the directory of the connector's crate: {}.", names.join(", "));
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
    };
    if !package.targets.iter().any(|target| target.crate_types.iter().any(|kind| kind == "cdylib")) {
        let message = format!("{} does not make a component.", files::shown(manifest));
        let hint = "Add these two lines to it:\n[lib]\ncrate-type = [\"cdylib\"]";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
    }
    Ok(ConnectorCrate {
        manifest: manifest.to_owned(),
        has_siblings: metadata.packages.len() > 1,
        target_directory: metadata.target_directory,
        workspace_root: metadata.workspace_root,
        build_directory: metadata.build_directory,
    })
}

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<MetadataPackage>,
    target_directory: PathBuf,
    workspace_root: PathBuf,
    build_directory: Option<PathBuf>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    crate_types: Vec<String>,
}

/// Returns the directory of the standard library for [`TARGET`] in the Rust toolchain of `dir`; it may not exist.
pub(super) fn target_libdir(dir: &Path) -> Result<PathBuf, HostError> {
    let mut command = Command::new(rustc());
    command.args(["--print", "target-libdir", "--target", TARGET]).current_dir(dir);
    let output = command.output().map_err(|error| cannot_start("rustc", error))?;
    if !output.status.success() {
        let message = format!("This rustc does not know the target {TARGET}.");
        let hint = format!("Install Rust 1.82 or later, from https://rustup.rs.\n{}", complaint(&output));
        return Err(HostError::new(HostErrorKind::Tool, message).with_hint(hint));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Checks that the Rust toolchain of `dir` has the standard library for [`TARGET`].
pub(super) fn check_target(dir: &Path) -> Result<(), HostError> {
    if has_std(&target_libdir(dir)?) {
        return Ok(());
    }
    let rustup = Command::new("rustup").arg("--version").output().is_ok_and(|output| output.status.success());
    let hint = if rustup {
        format!("Run `rustup target add {TARGET}`, and build again.")
    } else {
        format!(
            "Install Rust from https://rustup.rs and run `rustup target add {TARGET}`, or set RUSTC to a rustc \
             that has the target."
        )
    };
    let message = format!("The Rust toolchain has no standard library for the target {TARGET}.");
    Err(HostError::new(HostErrorKind::Tool, message).with_hint(hint))
}

fn has_std(libdir: &Path) -> bool {
    let Ok(entries) = libdir.read_dir() else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

/// The error for a tool that cannot be started.
pub(super) fn cannot_start(tool: &str, error: io::Error) -> HostError {
    let (message, hint) = match error.kind() {
        io::ErrorKind::NotFound => (
            format!("{tool} was not found."),
            "Install Rust from https://rustup.rs, and see that it is on the PATH.",
        ),
        _ => (format!("{tool} cannot be started: {}.", files::reason(&error)), "Check its permissions."),
    };
    HostError::new(HostErrorKind::Tool, message).with_hint(hint).with_source(error)
}

fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.lines().take(12).map(|line| printable_line(line, 300)).collect();
    lines.join("\n")
}

/// The component that a line of `cargo build --message-format json` says was made of the crate.
pub(super) fn artifact(line: &str, manifest: &Path) -> Option<PathBuf> {
    let message: CargoMessage = serde_json::from_str(line).ok()?;
    let ours = message.reason == "compiler-artifact"
        && message.manifest_path.as_deref() == Some(manifest)
        && message.target.is_some_and(|target| target.crate_types.iter().any(|kind| kind == "cdylib"));
    let wasm = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "wasm");
    message.filenames.into_iter().find(|file| ours && wasm(file))
}

#[derive(Deserialize)]
struct CargoMessage {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<MetadataTarget>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn the_manifests_crate_must_build_a_component() {
        let metadata = br#"{"target_directory": "/t", "workspace_root": "/w", "packages": [
            {"manifest_path": "/w/lib/Cargo.toml", "targets": [{"crate_types": ["lib"]}]},
            {"manifest_path": "/w/slack/Cargo.toml", "targets": [{"crate_types": ["rlib", "cdylib"]}]}]}"#;
        let found = choose(Path::new("/w/slack/Cargo.toml"), metadata).unwrap();
        assert_eq!(found.target_directory, Path::new("/t"));
        let error = choose(Path::new("/w/lib/Cargo.toml"), metadata).unwrap_err();
        assert!(error.hint().unwrap().ends_with("[lib]\ncrate-type = [\"cdylib\"]"));
        let error = choose(Path::new("/w/Cargo.toml"), metadata).unwrap_err();
        assert!(error.hint().unwrap().contains("/w/lib, /w/slack"), "{error}");
    }

    #[test]
    fn a_directory_that_the_author_chose_is_kept() {
        let found = |root: &str, target: &str, build: Option<&str>, others: &str| {
            let build = build.map(|build| format!(r#""build_directory": "{build}","#)).unwrap_or_default();
            let metadata = format!(
                r#"{{"target_directory": "{target}", {build} "workspace_root": "{root}", "packages": [
                {{"manifest_path": "/w/slack/Cargo.toml", "targets": [{{"crate_types": ["cdylib"]}}]}}{others}]}}"#
            );
            choose(Path::new("/w/slack/Cargo.toml"), metadata.as_bytes()).unwrap().builds_in_its_own_target()
        };
        let own = "/w/slack/target";
        assert!(found("/w/slack", own, Some(own), ""));
        assert!(!found("/w", "/w/target", Some("/w/target"), ""), "a larger workspace");
        assert!(!found(
            "/w/slack",
            own,
            Some(own),
            r#", {"manifest_path": "/w/slack/x/Cargo.toml", "targets": []}"#
        ));
        assert!(!found("/w/slack", "/elsewhere", Some("/elsewhere"), ""), "CARGO_TARGET_DIR");
        assert!(!found("/w/slack", own, Some("/elsewhere"), ""), "build.build-dir");
        assert!(!found("/w/slack", own, None, ""), "a cargo that has no build-dir");
    }

    #[test]
    fn only_this_crates_component_is_the_artifact() {
        let manifest = Path::new("/w/slack/Cargo.toml");
        let line = |reason: &str, path: &str, kind: &str, file: &str| {
            format!(
                r#"{{"reason":"{reason}","manifest_path":"{path}","target":{{"crate_types":["{kind}"]}},"filenames":["/t/x.d","{file}"]}}"#
            )
        };
        let good = line("compiler-artifact", "/w/slack/Cargo.toml", "cdylib", "/t/slack.wasm");
        assert_eq!(artifact(&good, manifest), Some("/t/slack.wasm".into()));
        for other in [
            line("compiler-artifact", "/w/dep/Cargo.toml", "cdylib", "/t/dep.wasm"),
            line("compiler-artifact", "/w/slack/Cargo.toml", "bin", "/t/slack.wasm"),
            line("compiler-artifact", "/w/slack/Cargo.toml", "cdylib", "/t/slack.so"),
            line("build-script-executed", "/w/slack/Cargo.toml", "cdylib", "/t/slack.wasm"),
            r#"{"reason":"build-finished","success":true}"#.into(),
            "printed by a build script".into(),
        ] {
            assert_eq!(artifact(&other, manifest), None, "{other}");
        }
    }

    #[test]
    fn a_directory_without_std_is_no_target() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_std(dir.path()));
        assert!(!has_std(&dir.path().join("absent")));
        std::fs::write(dir.path().join("libstd-0123.rlib"), "").unwrap();
        assert!(has_std(dir.path()));
    }
}
