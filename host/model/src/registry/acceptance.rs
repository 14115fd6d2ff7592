//! The acceptance of a package: the proof, kept beside the package, that its access was accepted.

use cofferdam_core::digest::Digest;
use jiff::Timestamp;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::package::Package;

const FORMAT_VERSION: u64 = 1;

/// The reason why a package may have the access that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptanceBasis {
    /// An operator accepted exactly this package.
    Operator,
    /// It gets no more than this version, which was accepted, and has the same signer.
    NoWiderThan(Version),
}

/// An acceptance of one package with the access that it asks for.
///
/// It is bound to the hash of the package and to the hash of its grants, so neither another package nor another reading
/// of the same manifest inherits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    package: Digest,
    grants: Digest,
    signers: Vec<String>,
    basis: AcceptanceBasis,
    by: String,
    at: Timestamp,
}

impl Acceptance {
    /// The acceptance of `package` by the user `by` at the time `at`. `signers` has the ids of the keys that signed it; for
    /// a successor, that of the first key.
    #[must_use]
    pub fn new(
        package: &Package,
        signers: Vec<String>,
        basis: AcceptanceBasis,
        by: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        let (digest, grants) = (*package.digest(), package.grants().digest());
        Self { package: digest, grants, signers, basis, by: by.into(), at }
    }

    /// Returns true if it accepts `package` with the access that it asks for.
    #[must_use]
    pub fn covers(&self, package: &Package) -> bool {
        self.package == *package.digest() && self.grants == package.grants().digest()
    }

    /// Returns true if it accepts the package with this hash, signed by one of these keys, and grants with this hash.
    #[must_use]
    pub fn is_of(&self, package: &Digest, signers: &[String], grants: &Digest) -> bool {
        self.package == *package && self.has_signer_of(signers) && self.grants == *grants
    }

    /// Returns true if one of these keys had signed the package when it was accepted. Others may sign it later.
    #[must_use]
    pub fn has_signer_of(&self, signers: &[String]) -> bool {
        self.signers.iter().any(|signer| signers.contains(signer))
    }

    /// The ids of the keys that signed it when it was accepted; for a successor, that of the first key.
    #[must_use]
    pub fn signers(&self) -> &[String] {
        &self.signers
    }

    /// The reason for it.
    #[must_use]
    pub fn basis(&self) -> &AcceptanceBasis {
        &self.basis
    }

    /// The user who accepted the package, or who installed it if it was no wider.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The time of it.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Reads the document. None if it is damaged or of another version: the package then has to be accepted again.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        let document: AcceptanceDocument = serde_json::from_slice(json).ok()?;
        let AcceptanceDocument { version, package, grants, signers, no_wider_than, by, at } = document;
        let basis = no_wider_than.map_or(AcceptanceBasis::Operator, AcceptanceBasis::NoWiderThan);
        let (package, grants, at) = (Digest::parse(&package)?, Digest::parse(&grants)?, at.parse().ok()?);
        (version == FORMAT_VERSION).then_some(Self { package, grants, signers, basis, by, at })
    }

    /// The document.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let document = AcceptanceDocument {
            version: FORMAT_VERSION,
            package: format!("sha256:{}", self.package),
            grants: format!("sha256:{}", self.grants),
            signers: self.signers.clone(),
            no_wider_than: match &self.basis {
                AcceptanceBasis::Operator => None,
                AcceptanceBasis::NoWiderThan(version) => Some(version.clone()),
            },
            by: self.by.clone(),
            at: self.at.to_string(),
        };
        // Strings alone: the serialization cannot fail.
        let mut json = serde_json::to_vec_pretty(&document).unwrap_or_default();
        json.push(b'\n');
        json
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptanceDocument {
    version: u64,
    package: String,
    grants: String,
    signers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    no_wider_than: Option<Version>,
    by: String,
    /// As RFC 3339.
    at: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::package::fixture_tests;

    #[test]
    fn an_acceptance_is_bound_to_package_and_grants() {
        let open =
            |version| Package::open(fixture_tests::package("github://acme/test", version, "")).unwrap();
        let (package, other) = (open("1.0.0"), open("1.0.1"));
        let basis = AcceptanceBasis::NoWiderThan(Version::new(0, 9, 0));
        let accepted = Acceptance::new(&package, Vec::new(), basis, "ada", Timestamp::UNIX_EPOCH);
        let json = accepted.to_json();
        assert_eq!(Acceptance::parse(&json), Some(accepted.clone()));
        assert!(accepted.covers(&package) && !accepted.covers(&other));
        let grants = accepted.grants.to_string();
        let changed = String::from_utf8(json).unwrap().replace(&grants, &"0".repeat(64));
        assert!(!Acceptance::parse(changed.as_bytes()).unwrap().covers(&package));
        for end in 0..changed.len() - 2 {
            assert_eq!(Acceptance::parse(&changed.as_bytes()[..end]), None);
        }
    }
}
