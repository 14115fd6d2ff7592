//! The trust of a cluster: one keyring, and the chosen packages, for all its hosts; signed by a key that each of them has
//! pinned, and numbered, so that an older one is not taken again.

use cofferdam_core::digest::Digest;
use cofferdam_core::document::InvalidValue;
use cofferdam_core::failure::sanitize_line;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::envelope::{ENVELOPE_BYTES, Envelope, STATEMENT_TYPE};
use super::key::{KeyId, PublicKey, SecretKey};
use super::keyring::{Keyring, whole_seconds};

/// The predicate's type of a trust bundle: a name, and nothing is ever fetched from it.
const TRUST_PREDICATE_TYPE: &str = "https://cofferdam.dev/trust/v1";

/// Longest keyring and longest lock file in a bundle, in bytes: their envelope has both in base64.
const MAX_TEXT_BYTES: usize = 90 * 1024;

/// Longest bundle, in bytes.
pub const TRUST_BUNDLE_BYTES: usize = ENVELOPE_BYTES;

/// The trust that is published for the hosts of a cluster.
#[derive(Debug, Clone)]
pub struct TrustBundle {
    version: u64,
    issued: Timestamp,
    keyring: Keyring,
    lock: Option<String>,
    signer: KeyId,
    fingerprint: Digest,
}

impl TrustBundle {
    /// Writes a bundle, signed with `signer`.
    ///
    /// # Errors
    /// The version is 0; the keyring or the lock file is too long.
    pub fn write(
        version: u64,
        issued: Timestamp,
        keyring: &Keyring,
        lock: Option<&str>,
        signer: &SecretKey,
    ) -> Result<String, InvalidValue> {
        let keyring = keyring.to_text();
        if version == 0 {
            return Err(InvalidValue::new("the version of a trust bundle is 0", "number them from 1"));
        }
        for (what, text) in [("keyring", Some(&*keyring)), ("lock file", lock)] {
            if text.is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
                let message = format!("the {what} has more than 90 KiB");
                return Err(InvalidValue::new(message, "remove what is not used any more"));
            }
        }
        let subject = [("keyring.toml", Some(&*keyring)), ("connectors.lock", lock)];
        let subject = subject.into_iter().filter_map(|(name, text)| {
            let sha256 = Digest::sha256(text?.as_bytes()).to_string();
            Some(WireSubject { name: name.to_owned(), digest: WireDigest { sha256 } })
        });
        let statement = WireStatement {
            kind: STATEMENT_TYPE.into(),
            subject: subject.collect(),
            predicate_type: TRUST_PREDICATE_TYPE.into(),
            predicate: WireTrust {
                version,
                issued: whole_seconds(issued).to_string(),
                lock: lock.map(str::to_owned),
                keyring,
            },
        };
        // Strings and numbers alone: the serialization cannot fail.
        let payload = serde_json::to_vec(&statement).unwrap_or_default();
        Ok(Envelope::sign_payload(payload, &[signer]).to_json())
    }

    /// Reads a bundle that one of the keys `pinned` signed. Nothing in it is looked at before.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(bytes: &[u8], pinned: &[PublicKey]) -> Result<Self, InvalidValue> {
        let refused = |why: &str| {
            InvalidValue::new(
                format!("this is not the trust of the cluster: {}", sanitize_line(why, 300)),
                "publish it again with `cofferdam trust publish`",
            )
        };
        let envelope = Envelope::parse(bytes).map_err(|error| refused(&error.to_string()))?;
        let signed = |key: &&PublicKey| envelope.signatures().any(|it| envelope.signed_by(key, it));
        let Some(signer) = pinned.iter().find(signed) else {
            return Err(InvalidValue::new(
                "no pinned key signed this trust bundle",
                "sign it with a key of `[cluster] trust_keys`; if nobody did, the registry was tampered with",
            ));
        };
        let wire: WireStatement =
            serde_json::from_slice(envelope.payload()).map_err(|error| refused(&error.to_string()))?;
        if wire.kind != STATEMENT_TYPE || wire.predicate_type != TRUST_PREDICATE_TYPE {
            return Err(refused(&format!("its predicateType is not {TRUST_PREDICATE_TYPE}")));
        }
        let WireTrust { version, issued, keyring, lock } = wire.predicate;
        let issued = issued.parse().map_err(|_| refused("its time is none"))?;
        if version == 0 {
            return Err(refused("its version is 0"));
        }
        let keyring = Keyring::parse("keyring.toml of the trust bundle", &keyring)
            .map_err(|error| refused(&error.to_string()))?;
        let fingerprint = Digest::sha256(bytes);
        Ok(Self { version, issued, keyring, lock, signer: signer.id(), fingerprint })
    }

    /// Returns its number: a later bundle has a higher one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the time at which it was published, as its signer claims it.
    #[must_use]
    pub fn issued(&self) -> Timestamp {
        self.issued
    }

    /// Returns the keyring.
    #[must_use]
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Returns the text of `connectors.lock`, if it has one.
    #[must_use]
    pub fn lock(&self) -> Option<&str> {
        self.lock.as_deref()
    }

    /// Returns the pinned key that signed it.
    #[must_use]
    pub fn signer(&self) -> &KeyId {
        &self.signer
    }

    /// Returns the SHA-256 of the document.
    #[must_use]
    pub fn fingerprint(&self) -> &Digest {
        &self.fingerprint
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<WireSubject>,
    predicate_type: String,
    predicate: WireTrust,
}

#[derive(Serialize, Deserialize)]
struct WireSubject {
    name: String,
    digest: WireDigest,
}

#[derive(Serialize, Deserialize)]
struct WireDigest {
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTrust {
    version: u64,
    issued: String,
    keyring: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    lock: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_a_pinned_keys_bundle_is_read() {
        let (signer, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let mut keyring = Keyring::empty();
        let scope = crate::trust::SigningScope::parse("github://acme/*").unwrap();
        keyring.trust(&other.public(), &[scope], Timestamp::now(), None, None).unwrap();
        let text = TrustBundle::write(7, Timestamp::now(), &keyring, Some("format = 1\n"), &signer).unwrap();
        let bundle = TrustBundle::parse(text.as_bytes(), &[other.public(), signer.public()]).unwrap();
        assert_eq!((bundle.version(), bundle.lock()), (7, Some("format = 1\n")));
        assert_eq!(bundle.keyring().to_text(), keyring.to_text());
        assert_eq!(*bundle.signer(), signer.public().id());
        for pinned in [vec![], vec![other.public()]] {
            let error = TrustBundle::parse(text.as_bytes(), &pinned).unwrap_err();
            assert!(error.message().contains("no pinned key"), "{}", error.message());
        }
        // Another document of the same key is none.
        let set = Envelope::sign_payload(b"{\"_type\":\"x\"}".to_vec(), &[&signer]).to_json();
        assert!(TrustBundle::parse(set.as_bytes(), &[signer.public()]).is_err());
        let changed = text.replace("eyJ", "eyK");
        assert!(TrustBundle::parse(changed.as_bytes(), &[signer.public()]).is_err());
        assert!(TrustBundle::write(0, Timestamp::now(), &keyring, None, &signer).is_err());
    }
}
