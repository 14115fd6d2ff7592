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

const VERSION: u64 = 2;

/// The installed packages. Each name has one active version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RegistryIndex {
    packages: BTreeMap<(ConnectorName, Version), Digest>,
    active: BTreeMap<ConnectorName, ActiveVersion>,
}

/// The version that a name without a version resolves to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActiveVersion {
    pub(super) version: Version,
    /// The installed version that was active before, to which a rollback returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Version>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexDocument {
    version: u64,
    packages: BTreeMap<String, IndexedPackage>,
    active: BTreeMap<ConnectorName, ActiveVersion>,
    /// The SHA-256 of the array of `packages` and `active` as compact JSON with sorted keys.
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
        if Digest::parse(&document.check) != check(&document.packages, &document.active) {
            return Err("its content does not match its checksum".into());
        }
        let mut packages = BTreeMap::new();
        for (key, package) in &document.packages {
            let entry = parse_entry(key, &package.sha256);
            let (name, version, digest) =
                entry.ok_or_else(|| format!("`{}` is not an entry", sanitize_line(key, 200)))?;
            packages.insert((name, version), digest);
        }
        let index = Self { packages, active: document.active };
        match index.is_consistent() {
            true => Ok(index),
            false => Err("its active versions are not those of its packages".into()),
        }
    }

    /// Returns true if every name has one active version, and only installed versions are active or were.
    fn is_consistent(&self) -> bool {
        let is_installed = |name: &ConnectorName, version: &Version| self.get(name, version).is_some();
        self.packages.keys().all(|(name, _)| self.active.contains_key(name))
            && self.active.iter().all(|(name, active)| {
                is_installed(name, &active.version)
                    && active.before.as_ref().is_none_or(|before| is_installed(name, before))
            })
    }

    /// The document.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let entry = |((name, version), digest): (&(ConnectorName, Version), &Digest)| {
            (format!("{name}@{version}"), IndexedPackage { sha256: digest.to_string() })
        };
        let (packages, active) = (self.packages.iter().map(entry).collect(), self.active.clone());
        let check = check(&packages, &active).map(|digest| digest.to_string()).unwrap_or_default();
        // Maps of strings cannot fail to serialise.
        let mut json =
            serde_json::to_vec_pretty(&IndexDocument { version: VERSION, packages, active, check })
                .unwrap_or_default();
        json.push(b'\n');
        json
    }

    pub(super) fn get(&self, name: &ConnectorName, version: &Version) -> Option<Digest> {
        self.packages.get(&(name.clone(), version.clone())).copied()
    }

    /// Adds a package, and makes its version the active one of its name.
    pub(super) fn insert(&mut self, name: &ConnectorName, version: &Version, digest: Digest) {
        self.packages.insert((name.clone(), version.clone()), digest);
        self.activate(name, version);
    }

    /// Makes an installed version the active one of its name.
    pub(super) fn activate(&mut self, name: &ConnectorName, version: &Version) {
        let before = self.active.get(name).map(|active| active.version.clone());
        if before.as_ref() != Some(version) {
            self.active.insert(name.clone(), ActiveVersion { version: version.clone(), before });
        }
    }

    /// Copies the active versions of another index that are installed here. For other names, the highest version is active.
    pub(super) fn take_active_of(&mut self, other: &Self) {
        let alone = |version: &Version| ActiveVersion { version: version.clone(), before: None };
        // The last version of a name is the highest.
        self.active = self.packages.keys().map(|(name, version)| (name.clone(), alone(version))).collect();
        for (name, ActiveVersion { version, before }) in &other.active {
            if self.get(name, version).is_some() {
                let before = before.clone().filter(|before| self.get(name, before).is_some());
                self.active.insert(name.clone(), ActiveVersion { version: version.clone(), before });
            }
        }
    }

    pub(super) fn active(&self, name: &ConnectorName) -> Option<&ActiveVersion> {
        self.active.get(name)
    }

    /// Removes a package. If its version was active, the version before it becomes active, or else the highest one.
    pub(super) fn remove(&mut self, name: &ConnectorName, version: &Version) -> Option<Digest> {
        let digest = self.packages.remove(&(name.clone(), version.clone()))?;
        let Some(mut active) = self.active.remove(name) else { return Some(digest) };
        active.before = active.before.filter(|before| before != version);
        if active.version == *version {
            let highest = || {
                let left = self.packages.keys().filter(|(other, _)| other == name);
                left.map(|(_, version)| version.clone()).next_back()
            };
            match active.before.take().or_else(highest) {
                Some(next) => active.version = next,
                None => return Some(digest),
            }
        }
        self.active.insert(name.clone(), active);
        Some(digest)
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

fn check(
    packages: &BTreeMap<String, IndexedPackage>,
    active: &BTreeMap<ConnectorName, ActiveVersion>,
) -> Option<Digest> {
    serde_json::to_vec(&(packages, active)).ok().map(|json| Digest::sha256(&json))
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
        let problem = RegistryIndex::parse(br#"{"version": 3, "layout": "new"}"#).unwrap_err();
        assert!(problem.contains("version 3"), "{problem}");
    }

    #[test]
    fn a_name_has_one_active_version() {
        let mut index = sample();
        let name = ConnectorName::parse("github://acme/slack").unwrap();
        let version = |text: &str| Version::parse(text).unwrap();
        let active = |index: &RegistryIndex| {
            let active = index.active(&name).unwrap();
            (active.version.to_string(), active.before.as_ref().map(ToString::to_string))
        };
        assert_eq!(active(&index), ("1.10.0".into(), Some("1.2.0".into())), "the last one added");
        for _ in 0..2 {
            index.activate(&name, &version("1.2.0"));
            assert_eq!(active(&index), ("1.2.0".into(), Some("1.10.0".into())));
        }
        index.insert(&name, &version("2.0.0"), Digest::sha256(b"2"));
        index.remove(&name, &version("1.2.0"));
        assert_eq!(active(&index), ("2.0.0".into(), None), "the version before is gone");
        index.remove(&name, &version("2.0.0"));
        assert_eq!(active(&index), ("1.10.0".into(), None), "the highest remaining one");
        assert_eq!(RegistryIndex::parse(&index.to_json()).unwrap(), index);
        index.remove(&name, &version("1.10.0"));
        assert_eq!(index.active(&name), None);
    }

    #[test]
    fn an_active_version_that_is_not_installed_is_refused() {
        let mut index = sample();
        for active in index.active.values_mut() {
            active.version = Version::new(7, 0, 0);
        }
        assert!(RegistryIndex::parse(&index.to_json()).unwrap_err().contains("active versions"));
        index.active.clear();
        assert!(RegistryIndex::parse(&index.to_json()).unwrap_err().contains("active versions"));
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
