//! The local registry: installed packages in a directory, found by name and version, kept by their hash.
//!
//! ```text
//! packages/
//!   index.json                     name@version -> hash, and the active versions; can be rebuilt from what follows,
//!                                  with the highest versions active
//!   highest.json                   the highest version of each name that was removed
//!   sha256/<hash>/connector.wasm   the package
//!   sha256/<hash>/signature.dsse.json
//!   sha256/<hash>/accepted.json    the acceptance of what the package may do
//!   tmp/                           what a writer is about to move into place
//!   .lock                          held by the one writer
//! ```
//!
//! Paths are built from hashes alone, never from names. Writers hold the lock, write into `tmp/`, sync, and
//! rename. A writer that is killed at any instant leaves the old state or the new one, and a rest in `tmp/`
//! that the next writer removes. A package in `sha256/` that the index does not name, which a killed install or
//! removal left there, is not installed; installing it again, or `verify --rebuild-index`, puts it into the index.
//!
//! The registry verifies nothing: it returns bytes as they are on disk, and every loader hashes them and
//! checks the signature, each time.

mod acceptance;
mod error;
mod files;
mod index;
mod install;
mod rebuild;
mod watch;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::file_fingerprint::FileFingerprint;
use semver::Version;

pub use acceptance::{Acceptance, AcceptanceBasis};
pub use error::{ContentConflict, RegistryError, VersionDowngrade};
pub use install::InstallOutcome;
pub use rebuild::{RebuiltIndex, UnindexedDirectory};
pub use watch::{PackageFingerprint, PackageWatch};

use crate::manifest::ConnectorName;
use crate::package::MAX_BYTES;
use index::{RegistryIndex, VersionHighWater};

const STORE: &str = "sha256";
const PACKAGE: &str = "connector.wasm";
const SIGNATURE: &str = "signature.dsse.json";
const ACCEPTED: &str = "accepted.json";
const INDEX: &str = "index.json";
const HIGHEST: &str = "highest.json";
const LOCK: &str = ".lock";
const TMP: &str = "tmp";

const MAX_INDEX_BYTES: u64 = 16 * 1024 * 1024;
/// The read limit; the signature's parser has the exact one.
const MAX_SIGNATURE_BYTES: u64 = 1024 * 1024;
const MAX_ACCEPTANCE_BYTES: u64 = 64 * 1024;

/// The directory of installed packages.
#[derive(Debug, Clone)]
pub struct Registry {
    root: PathBuf,
}

/// One installed connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryEntry {
    /// Its name.
    pub name: ConnectorName,
    /// Its version.
    pub version: Version,
    /// The hash of its package.
    pub digest: Digest,
    /// True for the one version that the name without a version resolves to.
    pub is_active: bool,
}

/// An installed package as it is on disk; nothing about it has been verified.
#[derive(Debug)]
pub struct StoredPackage {
    /// The package's bytes, read once: hash, verify and compile these.
    pub bytes: Vec<u8>,
    /// The signature of the package, if there is one.
    pub signature: Option<Vec<u8>>,
    /// The acceptance beside it, if there is one that can be read. It may be that of another package.
    pub acceptance: Option<Acceptance>,
    /// The fingerprint of the files before they were read.
    pub fingerprint: PackageFingerprint,
}

impl Registry {
    /// The registry in the directory `root`. It accesses no file; a directory that does not exist is empty.
    #[must_use]
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Everything installed, by name, then by version.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn list(&self) -> Result<Vec<RegistryEntry>, RegistryError> {
        let index = self.index()?;
        let entry = |(name, version, digest): (&ConnectorName, &Version, Digest)| RegistryEntry {
            name: name.clone(),
            version: version.clone(),
            digest,
            is_active: index.active(name).is_some_and(|active| active.version == *version),
        };
        Ok(index.entries().map(entry).collect())
    }

    /// Returns the present fingerprint of the index, which shows whether anything was installed, activated or
    /// removed since. None if there is no index.
    pub fn index_fingerprint(&self) -> Option<FileFingerprint> {
        fs::symlink_metadata(self.root.join(INDEX)).ok().map(|metadata| FileFingerprint::from(&metadata))
    }

    /// The hash of what is installed as `name` and `version`.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn find(&self, name: &ConnectorName, version: &Version) -> Result<Option<Digest>, RegistryError> {
        Ok(self.index()?.get(name, version))
    }

    /// The active version of `name`, to which the name without a version resolves. None if no version is installed.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn active(&self, name: &ConnectorName) -> Result<Option<Version>, RegistryError> {
        Ok(self.index()?.active(name).map(|active| active.version.clone()))
    }

    /// Returns true if packages exist and their index is missing.
    #[must_use]
    pub fn has_lost_its_index(&self) -> bool {
        let packages = fs::read_dir(self.store()).is_ok_and(|mut entries| entries.next().is_some());
        packages && fs::symlink_metadata(self.root.join(INDEX)).is_err()
    }

    /// The installed versions of `name`, oldest first.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn versions(&self, name: &ConnectorName) -> Result<Vec<RegistryEntry>, RegistryError> {
        let mut entries = self.list()?;
        entries.retain(|entry| entry.name == *name);
        Ok(entries)
    }

    /// The highest version of `name` that is installed or ever was.
    ///
    /// # Errors
    /// An index, or a record of removed versions, that cannot be read.
    pub fn highest(&self, name: &ConnectorName) -> Result<Option<Version>, RegistryError> {
        let removed = self.removed()?.get(name).cloned();
        let installed = self.versions(name)?.pop().map(|entry| entry.version);
        Ok(installed.max(removed))
    }

    /// Reads a package and its signature into memory, once, without following links.
    ///
    /// # Errors
    /// A package that is not there, is no regular file, or is larger than one may be.
    pub fn read(&self, digest: &Digest) -> Result<StoredPackage, RegistryError> {
        let (bytes, package) = self
            .read_file(digest, PACKAGE, MAX_BYTES)?
            .ok_or_else(|| RegistryError::Gone { digest: *digest, path: self.file(digest, PACKAGE) })?;
        let (signature, signature_stamp) = self.read_file(digest, SIGNATURE, MAX_SIGNATURE_BYTES)?.unzip();
        let acceptance = self.acceptance(digest)?;
        let fingerprint = PackageFingerprint::new(package, signature_stamp);
        Ok(StoredPackage { bytes, signature, acceptance, fingerprint })
    }

    /// Reads the acceptance beside a package, if there is one that can be read. It may be that of another package.
    ///
    /// # Errors
    /// The file is no regular file, or is larger than one may be.
    pub fn acceptance(&self, digest: &Digest) -> Result<Option<Acceptance>, RegistryError> {
        let json = self.read_file(digest, ACCEPTED, MAX_ACCEPTANCE_BYTES)?;
        Ok(json.and_then(|(json, _)| Acceptance::parse(&json)))
    }

    fn read_file(
        &self,
        digest: &Digest,
        file: &str,
        limit: u64,
    ) -> Result<Option<(Vec<u8>, FileFingerprint)>, RegistryError> {
        files::read_below(&self.root, &[STORE, &digest.to_string(), file], limit)
    }

    fn index(&self) -> Result<RegistryIndex, RegistryError> {
        let path = self.root.join(INDEX);
        let Some((json, _)) = files::read_below(&self.root, &[INDEX], MAX_INDEX_BYTES)? else {
            return Ok(RegistryIndex::default());
        };
        RegistryIndex::parse(&json).map_err(|problem| RegistryError::Index { problem, path })
    }

    fn removed(&self) -> Result<VersionHighWater, RegistryError> {
        let path = self.root.join(HIGHEST);
        let Some((json, _)) = files::read_below(&self.root, &[HIGHEST], MAX_INDEX_BYTES)? else {
            return Ok(VersionHighWater::default());
        };
        VersionHighWater::parse(&json).map_err(|problem| RegistryError::Highest { problem, path })
    }

    fn directory(&self, digest: &Digest) -> PathBuf {
        self.store().join(digest.to_string())
    }

    fn file(&self, digest: &Digest, file: &str) -> PathBuf {
        self.directory(digest).join(file)
    }

    fn store(&self) -> PathBuf {
        self.root.join(STORE)
    }

    fn tmp(&self) -> PathBuf {
        self.root.join(TMP)
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}
