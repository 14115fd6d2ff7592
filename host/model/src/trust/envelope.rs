//! The DSSE envelope around a statement: bytes, and signatures over their pre-authentication encoding.

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine as _, alphabet};
use cofferdam_core::digest::Digest;
use cofferdam_core::failure::sanitize_line;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SecretKey};
use super::provenance::Provenance;
use crate::manifest::ConnectorName;

/// The only payload type there is.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// Longest envelope, in bytes: the largest provenance, in base64, and signatures.
pub const ENVELOPE_BYTES: usize = 256 * 1024;

/// Most signatures of one envelope.
pub(super) const MAX_SIGNATURES: usize = 16;

/// A DSSE envelope with an in-toto payload and one or more signatures, none of them checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub(super) payload: Vec<u8>,
    signatures: Vec<EnvelopeSignature>,
}

/// One signature, and the key that it says it is by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EnvelopeSignature {
    /// A hint from outside: any text, or empty.
    pub(super) key_id: String,
    bytes: Vec<u8>,
}

impl EnvelopeSignature {
    /// Returns whether it may be of the one algorithm that the host knows, by its size. DSSE names no algorithm.
    pub(super) fn is_ed25519(&self) -> bool {
        self.bytes.len() == 64
    }
}

/// The reason why bytes are no envelope, or an envelope cannot be signed: the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EnvelopeError(String);

impl EnvelopeError {
    fn new(reason: &str) -> Self {
        Self(sanitize_line(reason, 300))
    }
}

/// Signs `statement` with `key`.
#[must_use]
pub fn sign(key: &SecretKey, statement: &ReleaseStatement) -> Envelope {
    Envelope::sign_payload(statement.to_json(), &[key])
}

fn signature(key: &SecretKey, payload: &[u8]) -> EnvelopeSignature {
    let bytes = key.sign(&pre_authentication_encoding(PAYLOAD_TYPE, payload));
    EnvelopeSignature { key_id: key.public().id().to_string(), bytes: bytes.to_vec() }
}

/// Returns DSSE's PAE: the signed bytes, from which type and body can be recovered in one way only.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut message = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    message.extend_from_slice(payload);
    message
}

impl Envelope {
    /// Signs a statement of whatever type, with at most 16 keys.
    pub(super) fn sign_payload(payload: Vec<u8>, keys: &[&SecretKey]) -> Self {
        let signatures = keys.iter().take(MAX_SIGNATURES).map(|key| signature(key, &payload)).collect();
        Self { payload, signatures }
    }

    /// The statement, which is not verified.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Reads an envelope: JSON of at most 256 KiB with 1 to 16 signatures, base64 in either alphabet, at least one of
    /// which has the 64 bytes of ed25519. Signatures of other algorithms are kept and never verified, and fields that
    /// are not known are ignored, as DSSE asks of consumers.
    ///
    /// # Errors
    /// Anything else; the statement inside and the signatures are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if bytes.len() > ENVELOPE_BYTES {
            return Err(EnvelopeError::new("it has more than 256 KiB"));
        }
        let wire: WireEnvelope =
            serde_json::from_slice(bytes).map_err(|error| EnvelopeError::new(&error.to_string()))?;
        if wire.payload_type != PAYLOAD_TYPE {
            return Err(EnvelopeError::new("its payloadType is not application/vnd.in-toto+json"));
        }
        if wire.signatures.is_empty() || wire.signatures.len() > MAX_SIGNATURES {
            return Err(EnvelopeError::new("it does not have 1 to 16 signatures"));
        }
        let payload = decode(&wire.payload).ok_or_else(|| EnvelopeError::new("its payload is not base64"))?;
        let mut signatures = Vec::with_capacity(wire.signatures.len());
        for signature in wire.signatures {
            let bytes =
                decode(&signature.sig).ok_or_else(|| EnvelopeError::new("a signature is not base64"))?;
            signatures.push(EnvelopeSignature { key_id: signature.keyid.unwrap_or_default(), bytes });
        }
        if !signatures.iter().any(EnvelopeSignature::is_ed25519) {
            return Err(EnvelopeError::new("none of its signatures is of ed25519, which has 64 bytes"));
        }
        Ok(Self { payload, signatures })
    }

    /// Adds the signature of `key` over the payload as it is; once per key, however often it is asked.
    /// Returns whether anything changed. Look at [`Envelope::unverified_statement`] first.
    ///
    /// # Errors
    /// The envelope has 16 signatures already.
    pub fn add(&mut self, key: &SecretKey) -> Result<bool, EnvelopeError> {
        let new = signature(key, &self.payload);
        if self.signatures.contains(&new) {
            return Ok(false);
        }
        // A signature that claims this key and is not by it (ed25519 is deterministic) is replaced.
        self.signatures.retain(|old| old.key_id != new.key_id || !old.is_ed25519());
        if self.signatures.len() >= MAX_SIGNATURES {
            return Err(EnvelopeError::new("it has 16 signatures already"));
        }
        self.signatures.push(new);
        Ok(true)
    }

    /// Returns the statement of the envelope without a check of its signatures: for display, and for review
    /// before one's own signature is added.
    ///
    /// # Errors
    /// The payload is not a statement about a connector's release.
    pub fn unverified_statement(&self) -> Result<ReleaseStatement, EnvelopeError> {
        ReleaseStatement::parse(&self.payload).map_err(|reason| EnvelopeError::new(&reason))
    }

    /// Returns the number of signatures.
    #[must_use]
    pub fn signature_count(&self) -> usize {
        self.signatures.len()
    }

    /// The JSON form, with a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let signatures = self.signatures.iter().map(|signature| WireSignature {
            keyid: Some(signature.key_id.clone()),
            sig: STANDARD.encode(&signature.bytes),
        });
        let wire = WireEnvelope {
            payload: STANDARD.encode(&self.payload),
            payload_type: PAYLOAD_TYPE.into(),
            signatures: signatures.collect(),
        };
        // Strings and lists alone: the serialization cannot fail.
        serde_json::to_string(&wire).unwrap_or_default() + "\n"
    }

    /// The signatures that the host can verify.
    pub(super) fn signatures(&self) -> impl Iterator<Item = &EnvelopeSignature> {
        self.signatures.iter().filter(|signature| signature.is_ed25519())
    }

    /// Returns true if `signature` is that of `key` over this payload.
    pub(super) fn signed_by(&self, key: &PublicKey, signature: &EnvelopeSignature) -> bool {
        let message = pre_authentication_encoding(PAYLOAD_TYPE, &self.payload);
        signature.bytes.as_slice().try_into().is_ok_and(|bytes| key.verifies(&message, bytes))
    }
}

/// Base64 in the standard or the URL-safe alphabet, but not both mixed.
fn decode(text: &str) -> Option<Vec<u8>> {
    const EITHER: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, EITHER).decode(text).ok()
}

#[derive(Serialize, Deserialize)]
struct WireEnvelope {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<WireSignature>,
}

#[derive(Serialize, Deserialize)]
struct WireSignature {
    keyid: Option<String>,
    sig: String,
}

/// The statement's type.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";

/// The predicate's type: a name, and nothing is ever fetched from it.
pub const PREDICATE_TYPE: &str = "https://cofferdam.dev/connector-release/v1";

/// A release: connector name, version and package hash, and when that was signed; often the package's provenance.
///
/// Signing time and provenance are claims of the signer, for people; no decision depends on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseStatement {
    name: ConnectorName,
    version: semver::Version,
    digest: Digest,
    signed_at: Timestamp,
    provenance: Option<Provenance>,
}

impl ReleaseStatement {
    /// The statement that `digest` is `version` of `name`; `signed_at` is kept to the second.
    #[must_use]
    pub fn new(name: ConnectorName, version: semver::Version, digest: Digest, signed_at: Timestamp) -> Self {
        let signed_at = Timestamp::from_second(signed_at.as_second()).unwrap_or(signed_at);
        Self { name, version, digest, signed_at, provenance: None }
    }

    /// Adds the sources and tools that the package was made from.
    #[must_use]
    pub fn with_provenance(self, provenance: Option<Provenance>) -> Self {
        Self { provenance, ..self }
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

    /// Returns the sources and tools that the package was made from, as the signer claims them.
    #[must_use]
    pub fn provenance(&self) -> Option<&Provenance> {
        self.provenance.as_ref()
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
            predicate: WirePredicate {
                version: self.version.clone(),
                signed_at: self.signed_at.to_string(),
                provenance: self.provenance.clone(),
            },
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
            provenance: wire.predicate.provenance,
        })
    }
}

/// The subject of a statement about a key: the key, and its id as the digest.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeySubject {
    name: String,
    digest: WireDigests,
}

impl From<&PublicKey> for KeySubject {
    fn from(key: &PublicKey) -> Self {
        Self { name: key.to_string(), digest: WireDigests { sha256: key.id().to_string() } }
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

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WireDigests {
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct WirePredicate {
    version: semver::Version,
    #[serde(rename = "signedAt")]
    signed_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provenance: Option<Provenance>,
}

#[cfg(test)]
mod tests {

    use super::pre_authentication_encoding;

    #[test]
    fn pae_matches_the_dsse_specification() {
        let encoded = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world");
        assert_eq!(encoded, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }
}
