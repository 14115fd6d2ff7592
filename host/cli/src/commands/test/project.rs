//! The connector that is tested: its directory, its scenario files, its package, and a home to run it in.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_dev::{DevHome, TestRunner};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::report::CommandError;
use crate::session::{Session, program};
use crate::{dev_options, files, passphrase, progress};

/// The time that another `cofferdam test` of the project has to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The file of the package that is built, in the home.
const PACKAGE: &str = "test.wasm";

/// A connector that is tested.
pub(super) struct Project {
    /// The directory of the connector.
    dir: PathBuf,
    /// The package, if it is not built.
    package: Option<PathBuf>,
    tests: Vec<PathBuf>,
}

impl Project {
    /// Finds the connector at `path`: a directory, or a package.
    pub(super) fn find(path: &Path, tests: &[PathBuf]) -> Result<Self, HostError> {
        let metadata = path.metadata().map_err(|error| files::unreadable("The connector", path, error))?;
        let (dir, package) = match metadata.is_dir() {
            true => (path.to_owned(), None),
            false => (PathBuf::from("."), Some(path.to_owned())),
        };
        // Without `./`, which would be in every message.
        let own = if dir == Path::new(".") { PathBuf::from("tests") } else { dir.join("tests") };
        let tests = if tests.is_empty() { vec![own] } else { tests.to_vec() };
        Ok(Self { dir, package, tests })
    }

    /// Returns the paths whose changes concern the tests.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        let own = self.package.clone().unwrap_or_else(|| self.dir.clone());
        self.tests.iter().cloned().chain([own]).collect()
    }

    /// Returns the scenario files, sorted.
    pub(super) fn scenario_files(&self) -> Result<Vec<PathBuf>, HostError> {
        let mut found = Vec::new();
        for path in &self.tests {
            if !path.is_dir() {
                found.push(path.clone());
                continue;
            }
            let entries = path.read_dir().map_err(|error| files::unreadable("The directory", path, error))?;
            let mut in_it: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            in_it.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
            in_it.sort();
            found.append(&mut in_it);
        }
        let missing = self.tests.iter().find(|path| !path.exists());
        match (found.is_empty(), missing) {
            (false, None) => Ok(found),
            (_, missing) => {
                let place = missing.or(self.tests.first()).map(|path| files::shown(path)).unwrap_or_default();
                let message = format!("There are no scenarios: {place} has no *.toml, or does not exist.");
                let hint = "Write one (docs/guides/test-a-connector.md), or record one with --record.";
                Err(HostError::new(HostErrorKind::InputUnreadable, message).with_hint(hint))
            }
        }
    }

    /// Builds the connector, and installs it in a home of its own.
    pub(super) async fn runner(&self, session: &Session<'_>) -> Result<Arc<TestRunner>, CommandError> {
        let home = self.home(session).await?;
        let path = match &self.package {
            Some(package) => package.clone(),
            None => {
                let path = home.path().join(PACKAGE);
                self.build(&path, session).await?;
                path
            }
        };
        let bytes = files::read_package(&path)?;
        let package = session.parser()?.open(bytes).await?;
        let compiler = session.compiler()?;
        let runner = TestRunner::new(home, &package, move |builder| builder.compiler(compiler.clone()));
        let runner = progress::during(session.ui, "compiling the connector", runner).await?;
        Ok(Arc::new(runner))
    }

    /// Opens the project's own home, in the user's cache.
    async fn home(&self, session: &Session<'_>) -> Result<DevHome, HostError> {
        let own = self.package.as_ref().unwrap_or(&self.dir);
        let own = own.canonicalize().map_err(|error| files::unreadable("The connector", own, error))?;
        let dir = dev_options::home_dir("test", &own)?;
        let opening = tokio::task::spawn_blocking(move || DevHome::open_within(dir, PATIENCE));
        let waiting = "waiting for another `cofferdam test` of this connector";
        progress::during(session.ui, waiting, opening).await.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The home was lost.").with_source(error)
        })?
    }

    /// Builds the package as `cofferdam build` does: by that command, so that what is tested is what ships.
    async fn build(&self, output: &Path, session: &Session<'_>) -> Result<(), CommandError> {
        session.ui.note(&format!("building {}", files::shown(&self.dir)));
        let mut command = tokio::process::Command::new(program()?);
        command.args(["build", "--quiet"]);
        if session.ui.json() {
            command.args(["--format", "json"]);
        }
        if !session.is_confined() {
            command.arg("--no-confine");
        }
        command.arg(&self.dir).arg("--output").arg(output);
        command.env_remove(passphrase::VARIABLE).stdin(Stdio::null()).stdout(Stdio::null());
        let lost =
            |error| HostError::new(HostErrorKind::Tool, "The build could not be started.").with_source(error);
        let status = BuildProcess(command.spawn().map_err(lost)?).0.wait().await.map_err(lost)?;
        match status.success() {
            true => Ok(()),
            // It has said why.
            false => {
                Err(CommandError::Shown(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
            }
        }
    }
}

/// `cofferdam build`, which ends its compiler when it gets the signal.
struct BuildProcess(Child);

impl Drop for BuildProcess {
    fn drop(&mut self) {
        // Without a number it has ended.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // Fails only if it has ended.
            kill_process(id, Signal::TERM).ok();
        }
    }
}
