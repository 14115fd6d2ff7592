//! Rebuilding the index from the packages themselves.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use semver::Version;

use super::error::RegistryError;
use super::index::RegistryIndex;
use super::index::VersionHighWater;
use super::{HIGHEST, Registry, RegistryEntry};
use crate::manifest::ConnectorName;
use crate::package::Package;

/// The content of a rebuilt index, and the packages that were skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltIndex {
    /// The packages in the index now.
    pub entries: Vec<RegistryEntry>,
    /// The directories that were found and skipped.
    pub skipped: Vec<UnindexedDirectory>,
}

/// Something in the store that the index does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnindexedDirectory {
    /// The directory's name, printable.
    pub directory: String,
    /// The reason why it was skipped.
    pub reason: String,
}

/// The package in a directory, or why it is left alone.
type IdentifiedPackage = Result<(ConnectorName, Version, Digest), String>;

fn is_of_the_package(kind: HostErrorKind) -> bool {
    matches!(kind, HostErrorKind::Validation | HostErrorKind::ContractVersion | HostErrorKind::CompileRefused)
}

impl Registry {
    /// Rebuilds the index from the packages in the store. Each must have the hash that its directory is named
    /// after, and `open` must accept it: the bytes are not verified, so a host has its compile worker parse
    /// them. Signatures are not checked here; every load does.
    ///
    /// An active version that is found stays active. For other names, the highest version is active.
    ///
    /// If two packages have one name and version, the one that the old index names is kept; without a
    /// readable old index, neither is. No package is removed.
    ///
    /// # Errors
    /// The store cannot be read, or the index cannot be written.
    pub fn rebuild_index(
        &self,
        open: impl Fn(Vec<u8>) -> Result<Package, HostError>,
    ) -> Result<RebuiltIndex, HostError> {
        let _lock = self.begin()?;
        let old = self.index().unwrap_or_default();
        let mut found: BTreeMap<(ConnectorName, Version), Vec<Digest>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for directory in self.directories()? {
            match self.identify(&directory, &old, &open)? {
                Ok((name, version, digest)) => found.entry((name, version)).or_default().push(digest),
                Err(reason) => skipped.push(UnindexedDirectory { directory, reason }),
            }
        }
        let mut index = RegistryIndex::default();
        for ((name, version), digests) in found {
            let kept = match digests.as_slice() {
                [only] => Some(*only),
                several => old.get(&name, &version).filter(|digest| several.contains(digest)),
            };
            if let Some(kept) = kept {
                index.insert(&name, &version, kept);
            }
            let others = digests.iter().filter(|digest| Some(**digest) != kept);
            skipped.extend(others.map(|digest| UnindexedDirectory {
                directory: digest.to_string(),
                reason: format!("another package is {name} {version} too"),
            }));
        }
        index.take_active_of(&old);
        let (mut highest, mut is_news) = match self.removed() {
            Err(RegistryError::Highest { problem, .. }) => {
                skipped.push(UnindexedDirectory {
                    directory: HIGHEST.to_owned(),
                    reason: format!("{problem}; the versions that were removed before are forgotten"),
                });
                (VersionHighWater::default(), true)
            }
            highest => (highest?, false),
        };
        // A version that leaves the index still counts as installed once: an older one stays a downgrade.
        for (name, version, _) in old.entries() {
            is_news |= index.get(name, version).is_none() && highest.remember(name, version);
        }
        if is_news {
            self.write_highest(&highest)?;
        }
        self.write_index(&index)?;
        Ok(RebuiltIndex { entries: self.list()?, skipped })
    }

    fn directories(&self) -> Result<Vec<String>, RegistryError> {
        let store = self.store();
        let names = |directory: fs::ReadDir| -> io::Result<Vec<String>> {
            let name = |entry: io::Result<fs::DirEntry>| {
                Ok(sanitize_line(&entry?.file_name().to_string_lossy(), 128))
            };
            directory.map(name).collect()
        };
        let mut names = fs::read_dir(&store).and_then(names).map_err(RegistryError::io("reading", &store))?;
        names.sort();
        Ok(names)
    }

    fn identify(
        &self,
        directory: &str,
        old: &RegistryIndex,
        open: impl Fn(Vec<u8>) -> Result<Package, HostError>,
    ) -> Result<IdentifiedPackage, HostError> {
        let skipped = |reason: &str| Ok(Err(reason.to_owned()));
        let Some(digest) = Digest::parse(directory).filter(|digest| digest.to_string() == directory) else {
            return skipped("its name is not a hash");
        };
        let stored = match self.read(&digest) {
            Ok(stored) => stored,
            Err(error) => return skipped(&error.to_string()),
        };
        if Digest::sha256(&stored.bytes) != digest {
            return skipped("its package has another hash than its name says");
        }
        // An index that can be read has its own checksum.
        if let Some((name, version, _)) = old.entries().find(|(.., known)| *known == digest) {
            return Ok(Ok((name.clone(), version.clone(), digest)));
        }
        match open(stored.bytes) {
            Ok(package) => {
                let manifest = package.manifest();
                Ok(Ok((manifest.name().clone(), manifest.version().clone(), digest)))
            }
            Err(error) if is_of_the_package(error.kind()) => skipped(&error.to_string()),
            // A worker that does not start says nothing about a package.
            Err(error) => Err(error),
        }
    }
}
