//! The bearer token that requests have to carry. Only its SHA-256 is kept, so that it cannot be printed.

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};

/// The shortest token. One of random letters and digits of this length cannot be guessed.
const SHORTEST: usize = 24;

/// The longest token, in bytes.
const LONGEST: usize = 512;

/// The token that a request has to carry as `Authorization: Bearer ..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken(Digest);

impl BearerToken {
    /// Creates the token `text`, 24 to 512 printable ASCII characters without spaces; white space around it
    /// does not count.
    ///
    /// # Errors
    /// `configuration`: it is too easy to guess, or cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let text = text.trim();
        if (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(Self(Digest::sha256(text.as_bytes())));
        }
        let message = "The token of the server is not acceptable.";
        let hint = format!(
            "It is one line of {SHORTEST} to {LONGEST} printable ASCII characters; `openssl rand -hex 32` makes one."
        );
        Err(HostError::new(HostErrorKind::Configuration, message).with_hint(hint))
    }

    /// Returns true if this is the token. Constant time: whole digests are compared.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let given = Digest::sha256(given);
        let pairs = self.0.as_bytes().iter().zip(given.as_bytes());
        pairs.fold(0, |differs, (own, other)| differs | (own ^ other)) == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::BearerToken;

    #[test]
    fn a_token_is_long_and_fits_a_header() {
        let good = "0123456789abcdef0123456789abcdef";
        let token = BearerToken::new(&format!("{good}\n")).unwrap();
        assert!(token.is(good.as_bytes()));
        for other in ["", "0", &good[1..], &format!("{good}0"), &good.to_uppercase()] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        for bad in ["", "short", &format!("{good} {good}"), &format!("{good}\n{good}"), &"ä".repeat(30)] {
            assert!(BearerToken::new(bad).is_err(), "{bad}");
        }
        assert!(!format!("{token:?}").contains(good));
    }
}
