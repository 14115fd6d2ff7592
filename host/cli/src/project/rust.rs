//! Rust: `cargo build`, with the dependencies of all connectors in one build directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cofferdam_core::error::{HostError, HostErrorKind};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::shared_build::SharedBuild;
use crate::toolchain::{self, ConnectorCrate};
use crate::ui::Ui;
use crate::{files, passphrase};

/// Runs `cargo build`, whose messages go to standard error as they come; the component.
pub(super) async fn build(
    ui: &Ui,
    dir: &Path,
    found: &ConnectorCrate,
    args: &[OsString],
) -> Result<PathBuf, HostError> {
    let shared = SharedBuild::enter(ui, found, args).await;
    let manifest = &found.manifest;
    ui.note(&format!("building {}", files::shown(files::parent(manifest))));
    let mut command = tokio::process::Command::new(toolchain::cargo());
    // Build scripts are other people's programs.
    command.env_remove(passphrase::VARIABLE);
    command.args(["build", "--release", "--target", toolchain::TARGET, "--manifest-path"]).arg(manifest);
    command.args(["--message-format", "json-render-diagnostics"]);
    if !ui.shows_notes() {
        command.arg("--quiet");
    }
    if let Some(shared) = &shared {
        command.env(SharedBuild::VARIABLE, shared.dir());
    }
    let command = command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut cargo =
        command.kill_on_drop(true).spawn().map_err(|error| toolchain::cannot_start("cargo", error))?;
    let lost = |error| {
        HostError::new(HostErrorKind::Tool, "cargo's answer cannot be read.")
            .with_hint("Build again.")
            .with_source(error)
    };
    let mut wasm = None;
    if let Some(stdout) = cargo.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.map_err(lost)? {
            wasm = toolchain::artifact(&line, manifest).or(wasm);
        }
    }
    let status = cargo.wait().await.map_err(lost)?;
    if !status.success() {
        return Err(HostError::new(HostErrorKind::Tool, format!("cargo build failed ({status})."))
            .with_hint("Correct what cargo says above, and build again."));
    }
    wasm.ok_or_else(|| {
        HostError::new(HostErrorKind::Tool, "cargo built no component.")
            .with_hint("See that Cargo.toml has [lib] with crate-type = [\"cdylib\"], and that no argument deselects it.")
    })
}
