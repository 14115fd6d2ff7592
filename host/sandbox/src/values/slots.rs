//! Values that are being written: each in its place of fixed size, until the list that it is in ends.
//!
//! How long a list is, JSON text only says at its end; yet its items lie side by side, and what they point to
//! lies elsewhere. So the open places are on a stack of their own: an item's place is pushed, a list's places
//! are moved to the image together when it ends.

use super::image::{MAX_BYTES, Refused, Writer};

/// The image, and the places that are not in it yet.
pub(super) struct Slots {
    image: Writer,
    open: Vec<u8>,
}

impl Slots {
    pub(super) fn new(image: Writer) -> Self {
        Self { image, open: Vec::new() }
    }

    /// Opens a place of `size` zeros.
    pub(super) fn push(&mut self, size: u32) -> Result<usize, Refused> {
        let at = self.open.len();
        let end = at.saturating_add(size as usize);
        if end.saturating_add(self.image.len()) > MAX_BYTES {
            return Err(Refused::TooLong);
        }
        self.open.resize(end, 0);
        Ok(at)
    }

    /// How many bytes are open.
    pub(super) fn mark(&self) -> usize {
        self.open.len()
    }

    /// Forgets the places from `mark` on.
    pub(super) fn drop_from(&mut self, mark: usize) {
        self.open.truncate(mark);
    }

    /// Ends a list of `count` items, whose places start at `mark`; the list's own place is at `at`.
    pub(super) fn end_list(
        &mut self,
        at: usize,
        mark: usize,
        align: u32,
        count: usize,
    ) -> Result<(), Refused> {
        self.image.reserve(0, align)?;
        let start = self.image.append(self.open.get(mark..).unwrap_or_default())?;
        self.open.truncate(mark);
        self.put_span(at, start, count);
        Ok(())
    }

    /// Keeps a text.
    pub(super) fn put_text(&mut self, at: usize, text: &str) -> Result<(), Refused> {
        let start = self.image.append(text.as_bytes())?;
        self.put_span(at, start, text.len());
        Ok(())
    }

    /// Keeps the bytes that base64 text stands for.
    pub(super) fn put_base64(&mut self, at: usize, text: &str) -> Result<(), Refused> {
        let (start, length) = self.image.append_base64(text)?;
        self.put_span(at, start, length);
        Ok(())
    }

    /// Overwrites a part of a place. Nothing happens outside of the open ones, which no caller asks for.
    pub(super) fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.open.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = bytes;
        }
    }

    /// The low `size` bytes of a number that has been found to fit.
    pub(super) fn put_number(&mut self, at: usize, size: u32, number: [u8; 8]) {
        match (size, number) {
            (1, [a, ..]) => self.put(at, [a]),
            (2, [a, b, ..]) => self.put(at, [a, b]),
            (4, [a, b, c, d, ..]) => self.put(at, [a, b, c, d]),
            (_, number) => self.put(at, number),
        }
    }

    /// The number of a case, in `size` bytes; none where a type has no such number.
    pub(super) fn put_case(&mut self, at: usize, size: u32, case: usize) {
        if size > 0 {
            self.put_number(at, size, (case as u64).to_le_bytes());
        }
    }

    /// Sets a flag; whether it was not set before.
    pub(super) fn put_flag(&mut self, at: usize, flag: usize) -> bool {
        let Some(byte) = self.open.get_mut(at.saturating_add(flag / 8)) else { return false };
        let bit = 1 << (flag % 8);
        let new = *byte & bit == 0;
        *byte |= bit;
        new
    }

    fn put_span(&mut self, at: usize, start: usize, length: usize) {
        self.put(at, self.image.address(start).to_le_bytes());
        self.put(at + 4, u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }

    /// The image, with the places that are still open written to `at`.
    pub(super) fn finish(mut self, at: usize) -> Writer {
        self.image.overwrite(at, &self.open);
        self.image
    }
}
