//! Finds the packages of a set: the newest one that a requirement allows, or exactly the one that is locked.

use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_distribution::{PackageRef, RegistryRef, RemoteRef};
use semver::Version;

use super::{ConnectorRequirement, LockedConnector};
use crate::package_source::{SourceOptions, SourcePackage};
use crate::report::CommandError;
use crate::session::{Session, signature_path};
use crate::{files, runtime};

/// The most versions that an error names.
const NAMED_VERSIONS: usize = 10;

/// Gets packages from their sources.
pub(crate) struct PackageFinder<'f> {
    pub(crate) session: &'f Session<'f>,
    pub(crate) options: &'f SourceOptions,
    /// The directory with vendored packages, which replaces every source.
    pub(crate) vendored: Option<&'f Path>,
}

impl PackageFinder<'_> {
    /// Returns the versions that a source offers, in order. None if it is one package and not a repository.
    pub(crate) fn versions(
        &self,
        requirement: &ConnectorRequirement,
    ) -> Result<Option<Vec<Version>>, CommandError> {
        let Some(repository) = repository(&requirement.package) else { return Ok(None) };
        let client = self.options.client(self.session)?;
        let tags = runtime::block_on(async { Ok(client.tags(repository).await?) })?;
        let mut versions: Vec<Version> = tags.iter().filter_map(|tag| tag.parse().ok()).collect();
        versions.sort();
        Ok(Some(versions))
    }

    /// Gets the newest package that the requirement allows. Its version is checked when it is opened.
    pub(crate) fn newest(&self, requirement: &ConnectorRequirement) -> Result<SourcePackage, CommandError> {
        let package = match (self.versions(requirement)?, &requirement.package) {
            (Some(versions), PackageRef::Remote(RemoteRef::Registry(repository))) => {
                let newest = versions.iter().rfind(|version| requirement.version.matches(version));
                let newest = newest.ok_or_else(|| nothing_fits(requirement, &versions))?;
                let tag = repository.with_tag(&newest.to_string()).map_err(|error| {
                    HostError::new(HostErrorKind::Validation, format!("The version is no tag: {error}."))
                })?;
                PackageRef::Remote(RemoteRef::Registry(tag))
            }
            (_, package) => package.clone(),
        };
        self.options.load(self.session, &package, None)
    }

    /// Gets the locked package. An install compares its hash.
    pub(crate) fn locked(
        &self,
        requirement: &ConnectorRequirement,
        locked: &LockedConnector,
    ) -> Result<SourcePackage, CommandError> {
        let package = match (self.vendored, &locked.resolved) {
            (Some(dir), _) => {
                let path = vendored_path(dir, &locked.hash);
                if !path.exists() {
                    let (dir, hash) = (files::shown(dir), locked.hash);
                    let message =
                        format!("{dir} does not have the package sha256:{hash} of {}.", requirement.name);
                    return Err(HostError::new(HostErrorKind::InputUnreadable, message)
                        .with_hint("`cofferdam vendor DIR` copies the packages of connectors.lock.")
                        .into());
                }
                PackageRef::File(path)
            }
            (None, None) => requirement.package.clone(),
            (None, Some(resolved)) => resolved.parse().map_err(|error| {
                HostError::new(HostErrorKind::Validation, format!("The lock file is not valid: {error}."))
            })?,
        };
        self.options.load(self.session, &package, None)
    }
}

/// Returns the path of a vendored package.
pub(crate) fn vendored_path(dir: &Path, hash: &Digest) -> PathBuf {
    dir.join(format!("{hash}.wasm"))
}

/// Writes a package and its signature to the directory of vendored packages.
pub(crate) fn write_vendored(dir: &Path, hash: &Digest, package: &SourcePackage) -> Result<(), HostError> {
    let path = vendored_path(dir, hash);
    if let Some(signature) = &package.signature {
        files::write_whole(&signature_path(&path), signature)?;
    }
    files::write_whole(&path, &package.bytes)
}

/// Returns the repository whose tags are versions. None for a source that is one package.
fn repository(package: &PackageRef) -> Option<&RegistryRef> {
    match package {
        PackageRef::Remote(RemoteRef::Registry(it)) if it.tag().is_none() && it.digest().is_none() => {
            Some(it)
        }
        _ => None,
    }
}

fn nothing_fits(requirement: &ConnectorRequirement, versions: &[Version]) -> HostError {
    let ConnectorRequirement { name, version, source, .. } = requirement;
    let newest: Vec<_> = versions.iter().rev().take(NAMED_VERSIONS).map(ToString::to_string).collect();
    let has = match newest.is_empty() {
        true => "no tag of it is a version".to_owned(),
        false => format!("its newest versions are {}", newest.join(", ")),
    };
    let source = sanitize_line(source, 200);
    let message = format!("No version of {name} at {source} fits `{version}`: {has}.");
    HostError::new(HostErrorKind::InputUnreadable, message)
        .with_hint("Change `version` in connectors.toml; `cofferdam tags` lists what a repository has.")
}
