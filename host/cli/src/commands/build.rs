//! `build`: from a crate's source to a package, with everything checked that an install would check.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cofferdam_core::error::{HostError, HostErrorKind};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::packaging::{self, DocsSource};
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, passphrase, runtime, toolchain};

const EXAMPLES: &str = "\
The directory has Cargo.toml, connector.toml and wit/. The target must be there: `rustup target add \
wasm32-wasip2`. Comments in wit/*.wit become the operations' documentation.

Examples:
  cofferdam build
  cofferdam build connectors/slack -o slack.wasm
  cofferdam build -- --locked --features tracing";

/// Builds a connector's crate and makes a package of it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of the crate.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// The file for the package [default: <target directory>/cofferdam/<name>-<version>.wasm].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Arguments for `cargo build`, after `--`.
    #[arg(last = true, value_name = "CARGO_ARGS")]
    cargo_args: Vec<OsString>,
}

/// Builds, packs, checks, writes.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { dir, output, cargo_args } = args;
    // Find simple faults before minutes of compiling.
    let found = toolchain::find_crate(&dir)?;
    let manifest = packaging::read_manifest(&dir.join("connector.toml"))?;
    toolchain::check_target(&dir)?;
    let sources = packaging::read_wit(&wit_files(&dir)?)?;
    let output = match output {
        Some(output) => output,
        None => {
            let dir = found.target_directory.join("cofferdam");
            std::fs::create_dir_all(&dir).map_err(|error| files::unwritable(&dir, error))?;
            dir.join(packaging::file_name(manifest.name(), manifest.version()))
        }
    };
    packaging::check_output(&output)?;
    runtime::block_on(async {
        let wasm = cargo_build(&dir, &found.manifest, &cargo_args, session).await?;
        let component = files::read_package(&wasm)?;
        packaging::finish(session, &component, &manifest, DocsSource::Wit(sources), &output).await
    })
}

/// Runs `cargo build`, whose messages go to standard error as they come; the component.
async fn cargo_build(
    dir: &Path,
    manifest: &Path,
    args: &[OsString],
    session: &Session<'_>,
) -> Result<PathBuf, HostError> {
    session.ui.note(&format!("building {}", files::shown(files::parent(manifest))));
    let mut command = tokio::process::Command::new(toolchain::cargo());
    // Build scripts are other people's programs.
    command.env_remove(passphrase::VARIABLE);
    command.args(["build", "--release", "--target", toolchain::TARGET, "--manifest-path"]).arg(manifest);
    command.args(["--message-format", "json-render-diagnostics"]);
    if !session.ui.shows_notes() {
        command.arg("--quiet");
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
    wasm.ok_or_else(no_component)
}

/// Returns the error for a crate that makes no component.
pub(super) fn no_component() -> HostError {
    HostError::new(HostErrorKind::Tool, "cargo built no component.").with_hint(
        "See that Cargo.toml has [lib] with crate-type = [\"cdylib\"], and that no argument deselects it.",
    )
}

/// The author's own WIT: `wit/*.wit`, and not the packages in `wit/deps`.
pub(super) fn wit_files(dir: &Path) -> Result<Vec<PathBuf>, HostError> {
    let wit = dir.join("wit");
    let entries = match wit.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(files::unreadable("The directory", &wit, error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "wit")).collect();
    files.sort();
    Ok(files)
}
