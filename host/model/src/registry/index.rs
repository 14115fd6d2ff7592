//! The index: the installed names and versions, as a document. It is only parsed and written here, without
//! files.
//!
//! It carries a digest of its own content: otherwise a flipped bit in a version or a hash would silently be
//! another version or another package.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::sanitize_line;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::manifest::ConnectorName;

const VERSION: u64 = 1;

/// The installed packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RegistryIndex {
    packages: BTreeMap<(ConnectorName, Version), Digest>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexDocument {
    version: u64,
    packages: BTreeMap<String, IndexedPackage>,
    /// The SHA-256 of `packages` as compact JSON with sorted keys.
    check: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexedPackage {
    sha256: String,
}

/// Its first field alone, to tell an index of another version from a damaged one.
#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

impl RegistryIndex {
    /// Reads the document.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        if let Ok(VersionOnly { version }) = serde_json::from_slice(json)
            && version != VERSION
        {
            return Err(format!("it has version {version}, and this host knows version {VERSION}"));
        }
        let document: IndexDocument =
            serde_json::from_slice(json).map_err(|error| sanitize_line(&error.to_string(), 200))?;
        if Digest::parse(&document.check) != check(&document.packages) {
            return Err("its content does not match its checksum".into());
        }
        let mut packages = BTreeMap::new();
        for (key, package) in &document.packages {
            let entry = parse_entry(key, &package.sha256);
            let (name, version, digest) =
                entry.ok_or_else(|| format!("`{}` is not an entry", sanitize_line(key, 200)))?;
            packages.insert((name, version), digest);
        }
        Ok(Self { packages })
    }

    /// The document.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let entry = |((name, version), digest): (&(ConnectorName, Version), &Digest)| {
            (format!("{name}@{version}"), IndexedPackage { sha256: digest.to_string() })
        };
        let packages = self.packages.iter().map(entry).collect();
        let check = check(&packages).map(|digest| digest.to_string()).unwrap_or_default();
        // Maps of strings cannot fail to serialise.
        let mut json = serde_json::to_vec_pretty(&IndexDocument { version: VERSION, packages, check })
            .unwrap_or_default();
        json.push(b'\n');
        json
    }

    pub(super) fn get(&self, name: &ConnectorName, version: &Version) -> Option<Digest> {
        self.packages.get(&(name.clone(), version.clone())).copied()
    }

    pub(super) fn insert(&mut self, name: &ConnectorName, version: &Version, digest: Digest) {
        self.packages.insert((name.clone(), version.clone()), digest);
    }

    pub(super) fn remove(&mut self, name: &ConnectorName, version: &Version) -> Option<Digest> {
        self.packages.remove(&(name.clone(), version.clone()))
    }

    /// By name, then by version.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&ConnectorName, &Version, Digest)> {
        self.packages.iter().map(|((name, version), digest)| (name, version, *digest))
    }
}

fn parse_entry(key: &str, sha256: &str) -> Option<(ConnectorName, Version, Digest)> {
    let (name, version) = key.rsplit_once('@')?;
    Some((ConnectorName::parse(name).ok()?, Version::parse(version).ok()?, Digest::parse(sha256)?))
}

fn check(packages: &BTreeMap<String, IndexedPackage>) -> Option<Digest> {
    serde_json::to_vec(packages).ok().map(|json| Digest::sha256(&json))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    fn sample() -> RegistryIndex {
        let mut index = RegistryIndex::default();
        for (name, version) in [
            ("github://acme/slack", "1.2.0"),
            ("github://acme/slack", "1.10.0"),
            ("local://a/b/c", "0.1.0-rc.1"),
        ] {
            let name = ConnectorName::parse(name).unwrap();
            index.insert(&name, &Version::parse(version).unwrap(), Digest::sha256(version.as_bytes()));
        }
        index
    }

    #[test]
    fn it_reads_what_it_writes() {
        let index = sample();
        assert_eq!(RegistryIndex::parse(&index.to_json()).unwrap(), index);
        assert_eq!(
            RegistryIndex::parse(&RegistryIndex::default().to_json()).unwrap(),
            RegistryIndex::default()
        );
        let versions: Vec<String> = index.entries().map(|(_, version, _)| version.to_string()).collect();
        assert_eq!(versions, ["1.2.0", "1.10.0", "0.1.0-rc.1"]);
    }

    #[test]
    fn no_flipped_bit_and_no_truncation_reads_as_another_index() {
        let (index, json) = (sample(), sample().to_json());
        for at in 0..json.len() {
            for bit in 0..8 {
                let mut flipped = json.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(read) = RegistryIndex::parse(&flipped) {
                    assert_eq!(read, index, "bit {bit} of byte {at}");
                }
            }
            if at + 1 < json.len() {
                assert!(RegistryIndex::parse(&json[..at]).is_err(), "{at} bytes");
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let problem = RegistryIndex::parse(br#"{"version": 2, "layout": "new"}"#).unwrap_err();
        assert!(problem.contains("version 2"), "{problem}");
    }
}
