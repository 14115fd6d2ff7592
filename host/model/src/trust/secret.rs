//! Secret signing keys: generated, read and written, never displayed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::document::InvalidValue;
use ed25519_dalek::{Signer as _, SigningKey};
use zeroize::Zeroizing;

use super::key::PublicKey;

/// The prefix of the key line in a secret key file.
pub(super) const PREFIX: &str = "cofferdam-secret-key:";

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
        let rest = line.strip_prefix(PREFIX).ok_or_else(|| refused("its line does not start as one does"))?;
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
        text.push_str(PREFIX);
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
