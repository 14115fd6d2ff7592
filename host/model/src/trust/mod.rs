//! Who may sign what: keys, the keyring, signatures, and the proof that a package was verified.
//!
//! A signature is ed25519 over a DSSE envelope that holds an in-toto statement: this name, this
//! version, these bytes. [`verify`] is the only way from an envelope to a [`Verified`], and code that
//! runs packages takes one of those. No algorithm is negotiable, key ids are hints and never decide,
//! and the payload is not looked at before a trusted key has signed it.

mod envelope;
mod file;
mod floor;
mod key;
mod keyring;
mod scope;
mod secret;
mod statement;
mod verify;

pub use cofferdam_core::document::{DocumentError as KeyringError, Refused as KeyError};
pub use envelope::{Envelope, EnvelopeError, sign};
pub use file::KeyringFile;
pub use file::KeyringStamp;
pub use key::{KeyId, PublicKey};
pub use keyring::{KeyEntry, KeyStatus, Keyring, TrustChange};
pub use scope::Scope;
pub use secret::SecretKey;
pub use statement::{PREDICATE_TYPE, STATEMENT_TYPE, Statement};
pub use verify::{TrustError, Verified, verify};
pub use verify::{allow_unsigned, check_floor, verify_bytes};

#[cfg(test)]
mod tests;
