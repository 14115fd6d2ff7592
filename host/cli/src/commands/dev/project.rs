//! The project under development: where its sources are, and how they become a package.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::package::Package;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::display::Terminal;
use crate::commands::build;
use crate::commands::packaging::{self, DocsSource};
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, passphrase, toolchain};

/// The profile of development builds: quick to compile, with the lines of the source for panics and traps.
const PROFILE: [&str; 4] = [
    "profile.cofferdam-dev.inherits=\"dev\"",
    "profile.cofferdam-dev.opt-level=1",
    "profile.cofferdam-dev.debug=\"line-tables-only\"",
    "profile.cofferdam-dev.overflow-checks=true",
];

/// A connector's directory.
#[derive(Debug)]
pub(super) struct Project {
    dir: PathBuf,
}

impl Project {
    /// Finds the project in `dir`.
    pub(super) fn find(dir: &Path) -> Result<Self, HostError> {
        let dir =
            dir.canonicalize().map_err(|error| files::unreadable("The project's directory", dir, error))?;
        toolchain::find_crate(&dir)?;
        packaging::read_manifest(&dir.join("connector.toml"))?;
        toolchain::check_target(&dir)?;
        Ok(Self { dir })
    }

    /// Returns its directory, absolute.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Builds a package of the sources as they are now. Dropping the future ends the compiler.
    pub(super) async fn build(
        &self,
        session: &Session<'_>,
        output: Terminal,
    ) -> Result<Package, CommandError> {
        let found = toolchain::find_crate(&self.dir)?;
        let manifest = packaging::read_manifest(&self.dir.join("connector.toml"))?;
        let sources = packaging::read_wit(&build::wit_files(&self.dir)?)?;
        let wasm = self.compile(&found.manifest, output).await?;
        let component = files::read_package(&wasm)?;
        let bytes = packaging::assemble(session, &component, &manifest, DocsSource::Wit(sources)).await?;
        Ok(session.parser()?.open(bytes).await?)
    }

    /// Runs cargo with the development profile; its messages go to `output` as they come.
    async fn compile(&self, manifest: &Path, output: Terminal) -> Result<PathBuf, HostError> {
        let mut command = tokio::process::Command::new(toolchain::cargo());
        // Build scripts are other people's programs.
        command.env_remove(passphrase::VARIABLE);
        command.args(["build", "--quiet", "--profile", "cofferdam-dev", "--target", toolchain::TARGET]);
        for setting in PROFILE {
            command.args(["--config", setting]);
        }
        command.args(["--color", output.cargo_color(), "--message-format", "json-render-diagnostics"]);
        command.arg("--manifest-path").arg(manifest).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut cargo = command.spawn().map_err(|error| toolchain::cannot_start("cargo", error))?;
        let (messages, diagnostics) = (cargo.stdout.take(), cargo.stderr.take());
        let mut wasm = None;
        let artifacts =
            each_line(messages, |line| wasm = toolchain::artifact(&line, manifest).or(wasm.take()));
        let shown = each_line(diagnostics, |line| output.raw(&line));
        tokio::try_join!(artifacts, shown).map_err(lost)?;
        let status = cargo.wait().await.map_err(lost)?;
        if !status.success() {
            return Err(HostError::new(HostErrorKind::Tool, format!("cargo build failed ({status})."))
                .with_hint("Correct what cargo says above; the next save builds again."));
        }
        wasm.ok_or_else(build::no_component)
    }
}

fn lost(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::Tool, "cargo's answer cannot be read.")
        .with_hint("Build again.")
        .with_source(error)
}

async fn each_line(
    stream: Option<impl AsyncRead + Unpin>,
    mut each: impl FnMut(String),
) -> std::io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        each(line);
    }
    Ok(())
}
