//! The signed content: an in-toto statement that these bytes are this version of this connector.

use cofferdam_core::digest::Digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::ConnectorName;

/// The statement's type.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";

/// The predicate's type: a name, and nothing is ever fetched from it.
pub const PREDICATE_TYPE: &str = "https://cofferdam.dev/connector-release/v1";

/// A release: connector name, version and package hash, and when that was signed.
///
/// The signing time is a claim of the signer, for people; no decision depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseStatement {
    name: ConnectorName,
    version: semver::Version,
    digest: Digest,
    signed_at: Timestamp,
}

impl ReleaseStatement {
    /// The statement that `digest` is `version` of `name`; `signed_at` is kept to the second.
    #[must_use]
    pub fn new(name: ConnectorName, version: semver::Version, digest: Digest, signed_at: Timestamp) -> Self {
        let signed_at = Timestamp::from_second(signed_at.as_second()).unwrap_or(signed_at);
        Self { name, version, digest, signed_at }
    }

    /// The connector's name.
    #[must_use]
    pub fn name(&self) -> &ConnectorName {
        &self.name
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> &semver::Version {
        &self.version
    }

    /// The package's hash.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the time of the signature, as the signer claims it.
    #[must_use]
    pub fn signed_at(&self) -> Timestamp {
        self.signed_at
    }

    /// The payload.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let wire = WireStatement {
            kind: STATEMENT_TYPE.into(),
            subject: vec![WireSubject {
                name: self.name.clone(),
                digest: WireDigests { sha256: self.digest.to_string() },
            }],
            predicate_type: PREDICATE_TYPE.into(),
            predicate: WirePredicate { version: self.version.clone(), signed_at: self.signed_at.to_string() },
        };
        // Strings and lists alone: the serialization cannot fail.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Reads a payload. Unknown fields are ignored, as in-toto requires; repeated known ones are rejected.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, String> {
        let wire: WireStatement = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        if wire.kind != STATEMENT_TYPE {
            return Err(format!("its _type is not {STATEMENT_TYPE}"));
        }
        if wire.predicate_type != PREDICATE_TYPE {
            return Err(format!("its predicateType is not {PREDICATE_TYPE}"));
        }
        let [subject] = wire.subject.try_into().map_err(|_| "it does not have exactly one subject")?;
        let digest = Digest::parse(&subject.digest.sha256).filter(|_| subject.digest.sha256.len() == 64);
        Ok(Self {
            name: subject.name,
            version: wire.predicate.version,
            digest: digest.ok_or("its sha256 is not 64 hexadecimal digits")?,
            signed_at: wire.predicate.signed_at.parse().map_err(|_| "its signedAt is not a date and time")?,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WireStatement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<WireSubject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: WirePredicate,
}

#[derive(Serialize, Deserialize)]
struct WireSubject {
    name: ConnectorName,
    digest: WireDigests,
}

#[derive(Serialize, Deserialize)]
struct WireDigests {
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct WirePredicate {
    version: semver::Version,
    #[serde(rename = "signedAt")]
    signed_at: String,
}
