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

const HIGH_WATER_VERSION: u64 = 1;

/// The highest removed version by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VersionHighWater {
    removed: BTreeMap<ConnectorName, Version>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HighWaterDocument {
    version: u64,
    removed: BTreeMap<ConnectorName, Version>,
    /// The SHA-256 of `removed` as compact JSON with sorted keys.
    check: String,
}

impl VersionHighWater {
    /// Reads the document.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let document: HighWaterDocument =
            serde_json::from_slice(json).map_err(|error| sanitize_line(&error.to_string(), 200))?;
        if document.version != HIGH_WATER_VERSION {
            let version = document.version;
            return Err(format!(
                "it has version {version}, and this host knows version {HIGH_WATER_VERSION}"
            ));
        }
        if Digest::parse(&document.check) != removed_digest(&document.removed) {
            return Err("its content does not match its checksum".into());
        }
        Ok(Self { removed: document.removed })
    }

    /// The document.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let check = removed_digest(&self.removed).map(|digest| digest.to_string()).unwrap_or_default();
        let document =
            HighWaterDocument { version: HIGH_WATER_VERSION, removed: self.removed.clone(), check };
        // A map of strings cannot fail to serialise.
        let mut json = serde_json::to_vec_pretty(&document).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// The highest removed version of `name`.
    pub(super) fn get(&self, name: &ConnectorName) -> Option<&Version> {
        self.removed.get(name)
    }

    /// Stores that `version` was installed; returns true if that is new.
    pub(super) fn remember(&mut self, name: &ConnectorName, version: &Version) -> bool {
        if self.removed.get(name).is_some_and(|known| known >= version) {
            return false;
        }
        self.removed.insert(name.clone(), version.clone());
        true
    }
}

fn removed_digest(removed: &BTreeMap<ConnectorName, Version>) -> Option<Digest> {
    serde_json::to_vec(removed).ok().map(|json| Digest::sha256(&json))
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
    fn the_index_round_trips() {
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
    fn a_damaged_index_never_parses_as_another() {
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
    fn another_index_version_is_named() {
        let problem = RegistryIndex::parse(br#"{"version": 2, "layout": "new"}"#).unwrap_err();
        assert!(problem.contains("version 2"), "{problem}");
    }
    #[test]
    fn it_only_increases_and_round_trips() {
        let name = ConnectorName::parse("github://acme/slack").unwrap();
        let mut highest = VersionHighWater::default();
        assert!(highest.remember(&name, &Version::new(1, 10, 0)));
        assert!(!highest.remember(&name, &Version::new(1, 9, 0)));
        assert_eq!(highest.get(&name), Some(&Version::new(1, 10, 0)));
        let json = highest.to_json();
        assert_eq!(VersionHighWater::parse(&json).unwrap(), highest);
        for at in 0..json.len() {
            for bit in 0..8 {
                let mut flipped = json.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(read) = VersionHighWater::parse(&flipped) {
                    assert_eq!(read, highest, "bit {bit} of byte {at}");
                }
            }
        }
        let other = String::from_utf8(json).unwrap().replace("\"version\": 1", "\"version\": 2");
        assert!(VersionHighWater::parse(other.as_bytes()).unwrap_err().contains("version 2"));
    }
}
