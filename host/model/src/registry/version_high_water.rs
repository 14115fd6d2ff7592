//! The highest version of each connector that was removed, so that downgrades are also detected after a
//! removal.
//!
//! `highest.json` is written when a package is removed, before it leaves the index, and never forgets; the
//! index speaks for what is installed. Like the index it carries a digest of its own content.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::sanitize_line;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::manifest::ConnectorName;

const VERSION: u64 = 1;

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
        if document.version != VERSION {
            let version = document.version;
            return Err(format!("it has version {version}, and this host knows version {VERSION}"));
        }
        if Digest::parse(&document.check) != check(&document.removed) {
            return Err("its content does not match its checksum".into());
        }
        Ok(Self { removed: document.removed })
    }

    /// The document.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let check = check(&self.removed).map(|digest| digest.to_string()).unwrap_or_default();
        let document = HighWaterDocument { version: VERSION, removed: self.removed.clone(), check };
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

fn check(removed: &BTreeMap<ConnectorName, Version>) -> Option<Digest> {
    serde_json::to_vec(removed).ok().map(|json| Digest::sha256(&json))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    #[test]
    fn it_only_grows_and_reads_what_it_writes() {
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
