//! Skips bytes that cannot begin a pattern, many at a time: the shift table of Wu and Manber.

use zeroize::Zeroizing;

/// The number of bytes that are examined together.
const BLOCK: usize = 3;

/// The longest look-ahead. Longer ones fill the table without skipping more.
const WINDOW: usize = 32;

/// The size of the table, as bits of an index.
const BITS: u32 = 14;

/// The number of bytes that may be skipped from a position, by the last block of the window that begins
/// there.
pub(super) struct ShiftTable {
    window: usize,
    /// 0 if a pattern may begin at the position itself.
    shifts: Vec<u8>,
}

impl ShiftTable {
    /// Creates the table for `patterns`, each of at least [`BLOCK`] bytes.
    pub(super) fn new(patterns: &[Zeroizing<Vec<u8>>]) -> Self {
        let window = patterns.iter().map(|pattern| pattern.len()).min().unwrap_or(BLOCK).min(WINDOW);
        let most = window.saturating_sub(BLOCK).saturating_add(1);
        let mut shifts = vec![u8::try_from(most).unwrap_or(1); 1 << BITS];
        for pattern in patterns {
            for (at, block) in pattern.windows(BLOCK).take(most).enumerate() {
                let shift = u8::try_from(most.saturating_sub(1).saturating_sub(at)).unwrap_or(0);
                if let Some(known) = shifts.get_mut(place(block)) {
                    *known = shift.min(*known);
                }
            }
        }
        Self { window, shifts }
    }

    /// Returns the first position from `at` on where a pattern may begin, including one that continues after
    /// `bytes`.
    pub(super) fn next(&self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(block) = bytes.get(at.saturating_add(self.window.saturating_sub(BLOCK))..)
            && let Some(block) = block.get(..BLOCK)
        {
            match self.shifts.get(place(block)) {
                Some(0) | None => break,
                Some(shift) => at = at.saturating_add(usize::from(*shift)),
            }
        }
        at
    }
}

/// Returns the index of this block in the table. Blocks may share an index, which only costs time.
fn place(block: &[u8]) -> usize {
    let number = block.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    (number.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as usize
}
