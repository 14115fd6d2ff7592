//! SHA-256 digests as values: the identity of every package.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Its text form is 64 lower-case hexadecimal digits, as `sha256sum` prints it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of `bytes`.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Parses 64 lower-case hexadecimal digits, with or without the prefix `sha256:`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let mut digest = [0u8; 32];
        let (pairs, rest) = hex.as_chunks::<2>();
        if pairs.len() != digest.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(digest))
    }

    /// Returns the digest with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns true if these are the bytes with this digest. It takes as long for any bytes of the same length, so it is for
    /// secrets.
    #[must_use]
    pub fn is_of_secret(&self, bytes: &[u8]) -> bool {
        let given = Self::sha256(bytes);
        let pairs = self.0.iter().zip(given.0);
        pairs.fold(0, |differs, (own, other)| differs | (own ^ other)) == 0
    }

    /// Returns the first 12 digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each call writes some of them to the audit log.
        let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
        let mut text = [0; 64];
        let (pairs, _) = text.as_chunks_mut();
        for (pair, byte) in pairs.iter_mut().zip(self.0) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn the_text_form_matches_sha256sum() {
        let digest = Digest::sha256(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(Digest::parse(text), Some(digest));
        assert_eq!(Digest::parse(&format!("sha256:{text}")), Some(digest));
        for wrong in ["", "ba78", &text.to_uppercase(), &format!("{text}00"), &text.replace('b', "g")] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
