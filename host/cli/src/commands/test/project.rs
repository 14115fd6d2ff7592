//! The connector that is tested: its directory, its scenario files, its package, and a home to run it in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_dev::{DevHome, SCENARIO_EXTENSIONS, TestRunner};
use cofferdam_model::package::Package;

use crate::commands::packaging::{self, DocsSource};
use crate::project::{BuildPurpose, Project};
use crate::report::CommandError;
use crate::session::Session;
use crate::{dev_options, files, progress};

/// The time that another `cofferdam test` of the project has to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connector that is tested.
pub(super) struct TestedProject {
    /// The directory of the connector.
    dir: PathBuf,
    /// The package, if it is not built.
    package: Option<PathBuf>,
    tests: Vec<PathBuf>,
}

impl TestedProject {
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
            in_it.retain(|path| {
                let extension = path.extension().and_then(|extension| extension.to_str());
                extension.is_some_and(|extension| SCENARIO_EXTENSIONS.contains(&extension))
            });
            in_it.sort();
            found.append(&mut in_it);
        }
        let missing = self.tests.iter().find(|path| !path.exists());
        match (found.is_empty(), missing) {
            (false, None) => Ok(found),
            (_, missing) => {
                let place = missing.or(self.tests.first()).map(|path| files::shown(path)).unwrap_or_default();
                let message =
                    format!("There are no scenarios: {place} has no *.toml or *.yaml, or does not exist.");
                let hint = "Write one (docs/guides/test-a-connector.md), or record one with --record.";
                Err(HostError::new(HostErrorKind::InputUnreadable, message).with_hint(hint))
            }
        }
    }

    /// Builds the connector, and installs it in a home of its own.
    pub(super) async fn runner(&self, session: &Session<'_>) -> Result<Arc<TestRunner>, CommandError> {
        let home = self.home(session).await?;
        let package = match &self.package {
            Some(package) => session.parser()?.open(files::read_package(package)?).await?,
            None => self.build(&home, session).await?,
        };
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

    /// Builds the package that `cofferdam build` would make. Its compiled code stays in `home`.
    async fn build(&self, home: &DevHome, session: &Session<'_>) -> Result<Package, CommandError> {
        let project = Project::open(&self.dir)?;
        let built = project.build(session.ui, BuildPurpose::Package(&[])).await?;
        let component = built.read()?;
        let compiler = session.compiler()?;
        let host = session.dev_host(home, |builder| builder.compiler(compiler))?;
        let docs = DocsSource::Wit(project.wit().to_vec());
        let assembling = packaging::assemble(session, &host, &component, project.manifest(), docs);
        let package = progress::during(session.ui, "checking the package (compiling it)", assembling).await?;
        host.flush().await;
        Ok(package)
    }
}
