//! The places of a call's lines in the journal of its writer, as the index stores them.

use crate::histogram::{Varints, put_varint};

/// The place of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinePlace {
    /// The number of the entry, which tells the segment.
    pub(super) n: u64,
    /// The position of its first byte in the segment.
    pub(super) offset: u64,
    /// The length in bytes, without the line break.
    pub(super) length: u64,
}

impl LinePlace {
    /// Appends the place to those of the call's earlier lines.
    pub(super) fn append_to(self, places: &mut Vec<u8>) {
        [self.n, self.offset, self.length].into_iter().for_each(|number| put_varint(places, number));
    }

    /// Reads the places of all lines.
    pub(super) fn read_all(places: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let mut numbers = Varints::new(places);
        std::iter::from_fn(move || {
            Some(Self { n: numbers.next()?, offset: numbers.next()?, length: numbers.next()? })
        })
    }
}
