//! Public keys and their ids, as values that are always usable: no weak keys, one encoding each.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::digest::Digest;
use cofferdam_core::document::{InvalidValue, quoted};
use ed25519_dalek::{Signature, VerifyingKey};

use super::secret;

/// The prefix of written public keys.
const PREFIX: &str = "ed25519:";

/// An ed25519 public key. Text form: `ed25519:` and the base64 of its 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads the text form.
    ///
    /// # Errors
    /// Other text; bytes that are no point of the curve or not its one encoding; points of small
    /// order, for which anybody can make signatures. A secret key is refused without being quoted.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let text = text.trim();
        if text.starts_with(secret::PREFIX) {
            let message = "this is a secret key, and a public key is needed";
            return Err(InvalidValue::new(message, "give the public key, which starts with ed25519:"));
        }
        let refused = |why: &str| {
            let message = format!("{} is not a public key: {why}", quoted(text));
            InvalidValue::new(
                message,
                "give the key as `cofferdam key generate` printed it, ed25519:<base64>",
            )
        };
        let base64 = text.strip_prefix(PREFIX).ok_or_else(|| refused("it does not start with ed25519:"))?;
        let bytes = STANDARD.decode(base64).map_err(|_| refused("it is not base64"))?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| refused("it does not have 32 bytes"))?;
        Self::from_bytes(&bytes).map_err(refused)
    }

    /// The key of these bytes, or why they are none.
    pub(super) fn from_bytes(bytes: &[u8; 32]) -> Result<Self, &'static str> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| "it is not a point of the curve")?;
        // The key keeps the bytes it was read from; only encoding the point again reveals other encodings.
        if key.to_edwards().compress().as_bytes() != bytes {
            return Err("it is not the canonical encoding of its point");
        }
        if key.is_weak() {
            return Err("it is a point of small order, for which anybody can make signatures");
        }
        Ok(Self(key))
    }

    /// Wraps the key of a signing key, which has none of the faults above.
    pub(super) fn from_verifying_key(key: VerifyingKey) -> Self {
        Self(key)
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(Digest::sha256(self.0.as_bytes()))
    }

    /// Returns true if `signature` is this key's over `message`, by the strict rules: one signature has one
    /// encoding, and neither key nor nonce is of small order.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key's id: the SHA-256 of its 32 bytes, in hexadecimal. A name for people and a hint in envelopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(Digest);

impl KeyId {
    /// Reads 64 lower-case hexadecimal digits. The keyring finds keys by shorter beginnings too.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 64).then(|| Digest::parse(text).map(Self)).flatten()
    }

    /// The first 12 digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        self.0.short()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl serde::Serialize for KeyId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl serde::Serialize for PublicKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
