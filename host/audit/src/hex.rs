//! Hashes in hexadecimal.

use cofferdam_core::digest::Digest;

/// Returns a hash in hexadecimal.
pub fn hex(hash: &[u8; 32]) -> String {
    Digest::from_bytes(*hash).to_string()
}

/// Reads a hash that was written by [`hex`].
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = Some(text).filter(|text| text.len() == 64)?;
    Digest::parse(digits).map(|hash| *hash.as_bytes())
}
