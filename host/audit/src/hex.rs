//! Hashes in hexadecimal.

/// Returns a hash in hexadecimal.
pub fn hex(hash: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).map_or('0', |digit| char::from(*digit));
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Reads a hash that was written by [`hex`].
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (to, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *to = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    (hex(&hash) == text).then_some(hash)
}
