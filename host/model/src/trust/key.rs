//! Public keys and their ids, as values that are always usable: no weak keys, one encoding each.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::digest::Digest;
use cofferdam_core::document::{InvalidValue, quoted};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

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
        if text.starts_with(SECRET_PREFIX) {
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

/// The prefix of the key line in a secret key file.
pub(super) const SECRET_PREFIX: &str = "cofferdam-secret-key:";

/// The rest of the line's beginning: the algorithm. There is one.
const ALGORITHM: &str = "ed25519:";

/// Base64 of 32 bytes.
const SEED_CHARS: usize = 44;

/// An ed25519 signing key. Overwritten with zeros when dropped; `Debug` shows the public key's id.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// A new key from the system's randomness.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<Self, InvalidValue> {
        let mut seed = Zeroizing::new([0u8; 32]);
        getrandom::fill(seed.as_mut_slice()).map_err(|error| {
            InvalidValue::new(
                format!("the system gave no random bytes ({error})"),
                "try again on a working system",
            )
        })?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// Reads the text of a key file: one key line; blank lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The text has any other form. The error never quotes the text.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let refused = |why: &str| {
            let message = format!("this is not a secret key file: {why}");
            InvalidValue::new(message, "use a file that `cofferdam key generate` wrote")
        };
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = lines.next().ok_or_else(|| refused("it holds no key"))?;
        if lines.next().is_some() {
            return Err(refused("it holds more than one line"));
        }
        if line.starts_with(ALGORITHM) {
            return Err(refused("it holds a public key"));
        }
        let rest =
            line.strip_prefix(SECRET_PREFIX).ok_or_else(|| refused("its line does not start as one does"))?;
        let base64 = rest.strip_prefix(ALGORITHM).ok_or_else(|| refused("its algorithm is not ed25519"))?;
        // Decoded into memory that is cleared in every case; one byte more than a seed has, because the
        // decoder needs room for unpadded text.
        let mut bytes = Zeroizing::new([0u8; 33]);
        let decoded = match base64.len() {
            SEED_CHARS => STANDARD.decode_slice(base64, bytes.as_mut_slice()).ok(),
            _ => None,
        };
        let seed = bytes.first_chunk::<32>().filter(|_| decoded == Some(32));
        seed.map(|seed| Self(SigningKey::from_bytes(seed)))
            .ok_or_else(|| refused("it does not hold 32 bytes"))
    }

    /// The text of a key file.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // With room for all of it, so that no copy is left behind by growing.
        let mut text = Zeroizing::new(String::with_capacity(512));
        text.push_str(
            "# cofferdam: a SECRET signing key. Whoever has it can release connectors in your name.\n",
        );
        text.push_str("# Its public key: ");
        text.push_str(&self.public().to_string());
        text.push('\n');
        text.push_str(SECRET_PREFIX);
        text.push_str(ALGORITHM);
        STANDARD.encode_string(self.0.as_bytes(), &mut text);
        text.push('\n');
        text
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey::from_verifying_key(self.0.verifying_key())
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of public key {})", self.public().id())
    }
}
