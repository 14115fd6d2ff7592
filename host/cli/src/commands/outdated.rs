//! `outdated`: the connectors of a set that have newer versions.

use cofferdam_model::manifest::ConnectorName;
use semver::Version;
use serde::Serialize;

use super::sync::SetOptions;
use crate::connector_set::resolve::PackageFinder;
use crate::connector_set::{ConnectorRequirement, ConnectorSet, LockFile};
use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
`cofferdam update` takes the versions under ALLOWED. Versions under NEWEST alone need another `version` in \
connectors.toml. `cofferdam diff` shows what a newer version may do.

Examples:
  cofferdam outdated
  cofferdam outdated --format json";

/// Lists the connectors of connectors.toml that have newer versions than the locked ones.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    set: SetOptions,

    #[command(flatten)]
    source: SourceOptions,
}

/// The versions of one connector.
#[derive(Debug, Serialize)]
struct VersionComparison {
    name: ConnectorName,
    locked: Option<Version>,
    /// The newest version that the set allows.
    allowed: Option<Version>,
    newest: Option<Version>,
}

/// Compares the lock file with the sources.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let set = ConnectorSet::load(&args.set.file)?;
    let lock = LockFile::load(&set.lock_path())?.unwrap_or_default();
    let finder = PackageFinder { session, options: &args.source, vendored: None };
    let mut outdated = Vec::new();
    for requirement in set.connectors() {
        let versions = versions(&finder, requirement, session)?;
        let line = VersionComparison {
            name: requirement.name.clone(),
            locked: lock.connectors.get(&requirement.name).map(|locked| locked.version.clone()),
            allowed: versions.iter().rfind(|version| requirement.version.matches(version)).cloned(),
            newest: versions.iter().rfind(|version| version.pre.is_empty()).cloned(),
        };
        if line.locked.is_none() || line.allowed > line.locked || line.newest > line.locked {
            outdated.push(line);
        }
    }
    session.ui.result(&outdated, |page| {
        let shown =
            |version: &Option<Version>| version.as_ref().map_or_else(|| "-".to_owned(), Version::to_string);
        let row = |it: &VersionComparison| {
            [it.name.to_string(), shown(&it.locked), shown(&it.allowed), shown(&it.newest)]
        };
        if !outdated.is_empty() {
            page.table(["CONNECTOR", "LOCKED", "ALLOWED", "NEWEST"], outdated.iter().map(row).collect());
        }
    })?;
    if outdated.is_empty() {
        session.ui.note("Every connector is locked to the newest version of its source.");
    }
    Ok(())
}

/// Returns the versions of a source, in order. A source of one package is fetched for it.
fn versions(
    finder: &PackageFinder<'_>,
    requirement: &ConnectorRequirement,
    session: &Session<'_>,
) -> Result<Vec<Version>, CommandError> {
    if let Some(versions) = finder.versions(requirement)? {
        return Ok(versions);
    }
    let package = session.parser()?.open_blocking(finder.newest(requirement)?.bytes)?;
    Ok(vec![package.manifest().version().clone()])
}
