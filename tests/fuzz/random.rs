//! Random bytes from a seed: a failure prints it, and another run reproduces it.

/// SplitMix64: small, and the same on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { usize::try_from(self.next() % end as u64).unwrap() }
    }

    /// One of `items`.
    pub(super) fn one<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.below(items.len())]
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }
}
