//! Rust: `cargo build`, with the dependencies of all connectors in one build directory.

use std::path::Path;
use std::process::Stdio;

use cofferdam_core::error::{HostError, HostErrorKind};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::provenance::{self, CompiledCrates};
use super::resolved_crates::ResolvedCrates;
use super::shared_build::SharedBuild;
use super::tool_process::ToolProcess;
use super::{BuildPurpose, BuiltComponent};
use crate::toolchain::{self, ConnectorCrate};
use crate::ui::Ui;
use crate::{files, passphrase, progress};

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
) -> Result<BuiltComponent, HostError> {
    let manifest = &found.manifest;
    let mut command = tokio::process::Command::new(toolchain::cargo());
    // Build scripts are other people's programs.
    command.env_remove(passphrase::VARIABLE);
    command.args(["build", "--release", "--target", toolchain::TARGET, "--manifest-path"]).arg(manifest);
    command.args(["--message-format", "json-render-diagnostics"]);
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    command.env("CARGO_TARGET_DIR", &found.target_directory);
    let is_package = matches!(purpose, BuildPurpose::Package(_));
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
    let resolved = ResolvedCrates::look_up(found, resolving);
    let resolved = progress::during(ui, "preparing the build", resolved).await;
    let shared = SharedBuild::enter(ui, found, resolved.as_ref()).await;
    let build = shared.as_ref().map_or(found.intermediate_directory(), SharedBuild::dir);
    command.env(SharedBuild::VARIABLE, build);
    if let Some(resolved) = resolved.filter(|_| is_package) {
        add_rustc_arguments(&mut command, &resolved.remapping(build));
    }
    let mut cargo =
        ToolProcess::spawn(&mut command).map_err(|error| toolchain::cannot_start("cargo", error))?;
    let (artifacts, messages) = cargo.take_pipes();
    let (mut wasm, mut compiled, mut crates) = (None, false, CompiledCrates::default());
    let artifacts = each_line(artifacts, |line| {
        compiled = true;
        crates.note(line, manifest);
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
    let path = wasm.ok_or_else(|| {
        HostError::new(HostErrorKind::Tool, "cargo built no component.")
            .with_hint("See that Cargo.toml has [lib] with crate-type = [\"cdylib\"], and that no argument deselects it.")
    })?;
    // Only packages have a provenance.
    let (tools, dependencies) = match is_package {
        true => {
            let lock = files::read_text("The lock file", &found.lock_file())?;
            (provenance::rust_tools(dir), crates.into_records(&lock))
        }
        false => (Vec::new(), Vec::new()),
    };
    Ok(BuiltComponent { path, tools, dependencies })
}

/// Adds arguments of rustc for the connector and its dependencies, in addition to those of the author.
fn add_rustc_arguments(command: &mut tokio::process::Command, arguments: &[String]) {
    // Cargo takes the arguments from the first of these that is set, and configuration only without them.
    let encoded = std::env::var("CARGO_ENCODED_RUSTFLAGS").ok();
    let plain = || {
        std::env::var("RUSTFLAGS")
            .ok()
            .map(|flags| flags.split_whitespace().collect::<Vec<_>>().join("\u{1f}"))
    };
    match encoded.or_else(plain).filter(|flags| !flags.is_empty()) {
        Some(flags) => {
            command.env("CARGO_ENCODED_RUSTFLAGS", [&[flags][..], arguments].concat().join("\u{1f}"));
        }
        None => {
            let list = toml::Value::from(arguments.to_vec());
            command.args(["--config", &format!("target.{}.rustflags={list}", toolchain::TARGET)]);
        }
    }
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
