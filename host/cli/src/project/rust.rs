//! Rust: `cargo build`, with the dependencies of all connectors in one build directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use cofferdam_core::error::{HostError, HostErrorKind};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::BuildPurpose;
use super::shared_build::SharedBuild;
use super::tool_process::ToolProcess;
use crate::toolchain::{self, ConnectorCrate};
use crate::ui::Ui;
use crate::{files, passphrase};

/// The changes to the release profile in development builds. A profile of its own would compile the macros that the SDK
/// is made with once more.
const DEVELOPMENT: [&str; 7] = [
    "profile.release.opt-level=1",
    "profile.release.lto=false",
    "profile.release.codegen-units=16",
    "profile.release.incremental=true",
    "profile.release.debug=\"line-tables-only\"",
    "profile.release.strip=false",
    "profile.release.overflow-checks=true",
];

const CORRECT: &str = "Correct what cargo says above, and build again.";
const DOWNLOADS: &str = "Crates that are not on this machine yet need the network once.";

/// Runs `cargo build`, whose messages go to standard error or to the purpose's own output as they come. Returns the
/// component.
pub(super) async fn build(
    ui: &Ui,
    dir: &Path,
    found: &ConnectorCrate,
    purpose: BuildPurpose<'_>,
) -> Result<PathBuf, HostError> {
    let manifest = &found.manifest;
    let mut command = tokio::process::Command::new(toolchain::cargo());
    // Build scripts are other people's programs.
    command.env_remove(passphrase::VARIABLE);
    command.args(["build", "--release", "--target", toolchain::TARGET, "--manifest-path"]).arg(manifest);
    command.args(["--message-format", "json-render-diagnostics"]);
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let (resolving, message) = match purpose {
        BuildPurpose::Package(args) => {
            ui.note(&format!("building {}", files::shown(files::parent(manifest))));
            if !ui.shows_notes() {
                command.arg("--quiet");
            }
            command.args(args);
            (args, None)
        }
        BuildPurpose::Development { color, message } => {
            command.args(["--quiet", "--color", color]);
            for setting in DEVELOPMENT {
                command.args(["--config", setting]);
            }
            command.stderr(Stdio::piped());
            (&[][..], Some(message))
        }
    };
    // Cargo would report a temporary file in it.
    super::make_writable(&found.target_directory)?;
    let shared = SharedBuild::enter(ui, found, resolving).await;
    if let Some(shared) = &shared {
        command.env(SharedBuild::VARIABLE, shared.dir());
    }
    let mut cargo =
        ToolProcess::spawn(&mut command).map_err(|error| toolchain::cannot_start("cargo", error))?;
    let (artifacts, messages) = cargo.take_pipes();
    let (mut wasm, mut compiled) = (None, false);
    let artifacts = each_line(artifacts, |line| {
        compiled = true;
        wasm = toolchain::artifact(line, manifest).or_else(|| wasm.take());
    });
    let messages = each_line(messages, |line| {
        if let Some(message) = message {
            message(line);
        }
    });
    tokio::try_join!(artifacts, messages).map_err(lost)?;
    let status = cargo.wait().await.map_err(lost)?;
    if !status.success() {
        return Err(HostError::new(HostErrorKind::Tool, format!("cargo build failed ({status})."))
            .with_hint(if compiled { CORRECT.to_owned() } else { format!("{CORRECT} {DOWNLOADS}") }));
    }
    wasm.ok_or_else(|| {
        HostError::new(HostErrorKind::Tool, "cargo built no component.")
            .with_hint("See that Cargo.toml has [lib] with crate-type = [\"cdylib\"], and that no argument deselects it.")
    })
}

fn lost(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::Tool, "cargo's answer cannot be read.")
        .with_hint("Build again.")
        .with_source(error)
}

/// Passes each line of `stream` on, until it ends.
async fn each_line(
    stream: Option<impl AsyncRead + Unpin>,
    mut each: impl FnMut(&str),
) -> std::io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        each(&line);
    }
    Ok(())
}
