//! The index made anew from the packages themselves.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use semver::Version;

use super::error::RegistryError;
use super::highest::Highest;
use super::index::Index;
use super::{Entry, HIGHEST, Registry};
use crate::digest::Digest;
use crate::error::HostError;
use crate::failure::safe_line;
use crate::manifest::ConnectorName;
use crate::package::Package;

/// What a rebuilt index has, and what it was made without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// The packages in the index now.
    pub entries: Vec<Entry>,
    /// What was found and left alone.
    pub skipped: Vec<Skipped>,
}

/// Something in the store that the index does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The directory's name, printable.
    pub directory: String,
    /// Why it was left alone.
    pub reason: String,
}

impl Registry {
    /// Makes the index from the packages in the store: each must have the hash that its directory is
    /// named after, and `open` must accept it: the bytes are not verified, so a host has its compile worker parse
    /// them. Signatures are not looked at here; every load does.
    ///
    /// Where two packages have one name and version, the one that the old index names is kept; without
    /// an old index that can be read, neither is. No package is removed.
    ///
    /// # Errors
    /// A store that cannot be read, or an index that cannot be written.
    pub fn rebuild_index(
        &self,
        open: impl Fn(Vec<u8>) -> Result<Package, HostError>,
    ) -> Result<Rebuilt, RegistryError> {
        let _lock = self.begin()?;
        let old = self.index().unwrap_or_default();
        let mut found: BTreeMap<(ConnectorName, Version), Vec<Digest>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for directory in self.directories()? {
            match self.identify(&directory, &open) {
                Ok((name, version, digest)) => found.entry((name, version)).or_default().push(digest),
                Err(reason) => skipped.push(Skipped { directory, reason }),
            }
        }
        let mut index = Index::default();
        for ((name, version), digests) in found {
            let kept = match digests.as_slice() {
                [only] => Some(*only),
                several => old.get(&name, &version).filter(|digest| several.contains(digest)),
            };
            if let Some(kept) = kept {
                index.insert(&name, &version, kept);
            }
            let others = digests.iter().filter(|digest| Some(**digest) != kept);
            skipped.extend(others.map(|digest| Skipped {
                directory: digest.to_string(),
                reason: format!("another package is {name} {version} too"),
            }));
        }
        self.write_index(&index)?;
        if let Err(RegistryError::Highest { problem, .. }) = self.removed() {
            self.write_highest(&Highest::default())?;
            skipped.push(Skipped {
                directory: HIGHEST.to_owned(),
                reason: format!("{problem}; the versions that were removed before are forgotten"),
            });
        }
        Ok(Rebuilt { entries: self.list()?, skipped })
    }

    fn directories(&self) -> Result<Vec<String>, RegistryError> {
        let store = self.store();
        let names = |directory: fs::ReadDir| -> io::Result<Vec<String>> {
            let name =
                |entry: io::Result<fs::DirEntry>| Ok(safe_line(&entry?.file_name().to_string_lossy(), 128));
            directory.map(name).collect()
        };
        let mut names = fs::read_dir(&store).and_then(names).map_err(RegistryError::io("reading", &store))?;
        names.sort();
        Ok(names)
    }

    fn identify(
        &self,
        directory: &str,
        open: impl Fn(Vec<u8>) -> Result<Package, HostError>,
    ) -> Result<(ConnectorName, Version, Digest), String> {
        let digest = Digest::parse(directory).filter(|digest| digest.to_string() == directory);
        let digest = digest.ok_or("its name is not a hash")?;
        let stored = self.read(&digest).map_err(|error| error.to_string())?;
        if Digest::of(&stored.bytes) != digest {
            return Err("its package has another hash than its name says".into());
        }
        let package = open(stored.bytes).map_err(|error| error.to_string())?;
        let manifest = package.manifest();
        Ok((manifest.name().clone(), manifest.version().clone(), digest))
    }
}
