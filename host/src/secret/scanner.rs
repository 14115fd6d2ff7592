//! Finds known secrets in bytes, in every form in which they commonly travel.

use super::Secret;

/// Looks for a set of secrets. Made once for a set, shared by all who look.
#[derive(Default)]
pub struct Scanner {
    patterns: Vec<zeroize::Zeroizing<Vec<u8>>>,
}

impl Scanner {
    /// A scanner for `secrets`.
    pub(crate) fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let patterns = secrets.into_iter().map(|secret| secret.expose().as_bytes().to_vec().into()).collect();
        Self { patterns }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether any of the secrets stands in `bytes`.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        let stands = |pattern: &[u8]| {
            !pattern.is_empty() && bytes.windows(pattern.len()).any(|window| window == pattern)
        };
        self.patterns.iter().any(|pattern| stands(pattern))
    }
}
