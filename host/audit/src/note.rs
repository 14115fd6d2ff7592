//! Signed notes: a few lines of text and a signature below them, in the form of C2SP's `signed-note`.
//!
//! ```text
//! <lines of text>
//!
//! — cofferdam-audit <base64 of the key's 4-byte id and the 64-byte ed25519 signature>
//! ```
//!
//! Any tool that knows the form can check one. The key is derived from the host's, so every host of a home signs with
//! the same one, and a new `host.key` is another signer.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::host_key::derived;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

/// The key's name.
const NAME: &str = "cofferdam-audit";

/// The number of ed25519 in notes.
const ED25519: u8 = 1;

/// The prefix of a signature line.
const DASH: &str = "\u{2014} ";

/// The public key that notes are checked with. Text form: `<name>+<id in hexadecimal>+<base64>`, C2SP's *vkey*.
#[derive(Clone, PartialEq, Eq)]
pub struct NoteKey(VerifyingKey);

/// Why a note does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteFlaw {
    /// It is no note, or not one of these.
    #[error("it is not a signed statement about an audit log")]
    Malformed,
    /// Another key signed it.
    #[error("another key signed it")]
    Foreign,
    /// Its text or its signature was changed.
    #[error("its signature does not hold")]
    Forged,
}

impl NoteKey {
    /// Reads the text form, of which a key has exactly one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.trim().split_once('+')?;
        let (_, bytes) = rest.split_once('+')?;
        let bytes = STANDARD.decode(bytes).ok()?;
        let (kind, bytes) = bytes.split_first()?;
        let key = VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()?;
        let key = (name == NAME && *kind == ED25519 && !key.is_weak()).then_some(Self(key))?;
        (key.to_string() == text.trim()).then_some(key)
    }

    /// Returns the key id, which a note contains to name its signer.
    #[must_use]
    pub fn id(&self) -> String {
        self.id_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn id_bytes(&self) -> [u8; 4] {
        let mut hash = Sha256::new();
        hash.update(NAME.as_bytes());
        hash.update([b'\n', ED25519]);
        hash.update(self.0.as_bytes());
        let [a, b, c, d, ..]: [u8; 32] = hash.finalize().into();
        [a, b, c, d]
    }

    /// The text of a note that this key signed. One signature and nothing else: a note has one spelling.
    ///
    /// # Errors
    /// It is none, or not this key's.
    pub fn text_of<'n>(&self, note: &'n str) -> Result<&'n str, NoteFlaw> {
        let (text, signature) = split(note).ok_or(NoteFlaw::Malformed)?;
        let (id, signature) = signature.split_first_chunk().ok_or(NoteFlaw::Malformed)?;
        if *id != self.id_bytes() {
            return Err(NoteFlaw::Foreign);
        }
        let signature = Signature::from_slice(signature).map_err(|_| NoteFlaw::Malformed)?;
        self.0.verify_strict(text.as_bytes(), &signature).map_err(|_| NoteFlaw::Forged)?;
        Ok(text)
    }
}

/// The text and the bytes of the signature; what they say is not looked at.
fn split(note: &str) -> Option<(&str, Vec<u8>)> {
    let at = note.find("\n\n")?;
    let (text, rest) = note.split_at_checked(at + 1)?;
    let line = rest.strip_prefix('\n')?.strip_suffix('\n')?;
    let signature = line.strip_prefix(DASH)?.strip_prefix(NAME)?.strip_prefix(' ')?;
    Some((text, STANDARD.decode(signature).ok()?))
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ED25519];
        bytes.extend_from_slice(self.0.as_bytes());
        write!(f, "{NAME}+{}+{}", self.id(), STANDARD.encode(bytes))
    }
}

impl fmt::Debug for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Signs notes.
pub struct NoteSigner(SigningKey);

impl NoteSigner {
    /// The signer of the homes with this host key.
    pub fn new(host_key: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&derived(host_key, b"cofferdam audit checkpoints v1")))
    }

    /// The key that checks what it signs.
    pub fn key(&self) -> NoteKey {
        NoteKey(self.0.verifying_key())
    }

    /// The note of this text, which ends with a line feed and has no empty line.
    pub(crate) fn sign(&self, text: &str) -> String {
        let mut bytes = self.key().id_bytes().to_vec();
        bytes.extend_from_slice(&self.0.sign(text.as_bytes()).to_bytes());
        format!("{text}\n{DASH}{NAME} {}\n", STANDARD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_note_verifies_only_unchanged_with_its_key() {
        let signer = NoteSigner::new(&[7; 32]);
        let (key, note) = (signer.key(), signer.sign("cofferdam audit\n3\n"));
        assert_eq!(key.text_of(&note), Ok("cofferdam audit\n3\n"));
        assert_eq!(NoteSigner::new(&[8; 32]).key().text_of(&note), Err(NoteFlaw::Foreign));
        for at in 0..note.len() {
            for bit in 0..8 {
                let mut bytes = note.clone().into_bytes();
                *bytes.get_mut(at).unwrap() ^= 1 << bit;
                let changed = String::from_utf8_lossy(&bytes);
                assert!(key.text_of(&changed).is_err(), "byte {at}, bit {bit}: {changed}");
            }
        }
        assert!(key.text_of(&format!("{note}\n")).is_err() && key.text_of(&format!("{note}{note}")).is_err());
    }

    #[test]
    fn a_key_has_one_spelling() {
        let key = NoteSigner::new(&[7; 32]).key();
        let text = key.to_string();
        assert_eq!(NoteKey::parse(&text), Some(key.clone()));
        assert!(text.starts_with(&format!("cofferdam-audit+{}+A", key.id())), "{text}");
        for wrong in
            [text.replace("audit+", "other+"), text.to_uppercase(), text.replace('+', "-"), String::new()]
        {
            assert_eq!(NoteKey::parse(&wrong), None, "{wrong}");
        }
    }
}
