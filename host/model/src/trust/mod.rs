//! Signing authority: keys, the keyring, signatures, and the proof that a package was verified.
//!
//! A signature is ed25519 over a DSSE envelope that holds an in-toto statement: this name, this version,
//! these bytes. [`verify`] is the only way from an envelope to a [`Verified`], and code that runs packages
//! takes one of those. No algorithm is negotiable, key ids are hints and never decide, and the payload is not
//! read before a trusted key has signed it. Two other statements are about keys: a succession, and the key set of a
//! publisher. Their predicate types keep the three apart.

mod envelope;
mod file;
mod floor;
mod key;
mod key_set;
mod keyring;
mod provenance;
mod scope;
mod succession;
mod threshold;
mod trust_bundle;
mod verify;

pub use cofferdam_core::document::{DocumentError, InvalidValue};
pub use envelope::{
    ENVELOPE_BYTES, Envelope, EnvelopeError, PREDICATE_TYPE, ReleaseStatement, STATEMENT_TYPE, sign,
};
pub use file::KeyringFile;
pub use file::KeyringFingerprint;
pub use key::{KeyId, PublicKey, SecretKey};
pub use key_set::{KEY_SET_BYTES, KeySet, KeySetChange, KeySetEffect, KeySetImport, PublishedKey};
pub use keyring::{KeyEntry, KeyStatus, Keyring, TrustChange};
pub use provenance::{
    DependencyRecord, Provenance, ProvenanceError, ProvenanceRecord, RepositoryUrl, SourceRecord, ToolRecord,
};
pub use scope::SigningScope;
pub use succession::{KeyEnd, KeySuccession};
pub use threshold::SignatureThreshold;
pub use trust_bundle::{TRUST_BUNDLE_BYTES, TrustBundle};
pub use verify::{TrustError, Verified, verify};
pub use verify::{allow_unsigned, check_unsigned, verify_bytes};

#[cfg(test)]
mod tests;
