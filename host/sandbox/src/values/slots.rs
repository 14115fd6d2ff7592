//! Values that are being written: each in its slot of fixed size, until its list ends.
//!
//! JSON text shows the length of a list only at its end; yet its items are contiguous, and the data that they
//! point to lies elsewhere. So the open slots are on a stack of their own: an item's slot is pushed, and a
//! list's slots are moved to the image together when it ends.

use super::image::{ImageRefusal, ImageWriter, MAX_BYTES};

/// The image, and the slots that are not in it yet.
pub(super) struct StagingBuffer {
    image: ImageWriter,
    open: Vec<u8>,
}

impl StagingBuffer {
    pub(super) fn new(image: ImageWriter) -> Self {
        Self { image, open: Vec::new() }
    }

    /// Opens a slot of `size` zeros.
    pub(super) fn push(&mut self, size: u32) -> Result<usize, ImageRefusal> {
        let at = self.open.len();
        let end = at.saturating_add(size as usize);
        if end.saturating_add(self.image.len()) > MAX_BYTES {
            return Err(ImageRefusal::TooLong);
        }
        self.open.resize(end, 0);
        Ok(at)
    }

    /// Returns the number of open bytes.
    pub(super) fn mark(&self) -> usize {
        self.open.len()
    }

    /// Drops the slots from `mark` on.
    pub(super) fn drop_from(&mut self, mark: usize) {
        self.open.truncate(mark);
    }

    /// Ends a list of `count` items whose slots start at `mark`; the list's own slot is at `at`.
    pub(super) fn end_list(
        &mut self,
        at: usize,
        mark: usize,
        align: u32,
        count: usize,
    ) -> Result<(), ImageRefusal> {
        self.image.reserve(0, align)?;
        let start = self.image.append(self.open.get(mark..).unwrap_or_default())?;
        self.open.truncate(mark);
        self.put_span(at, start, count);
        Ok(())
    }

    /// Appends a text and writes its span.
    pub(super) fn put_text(&mut self, at: usize, text: &str) -> Result<(), ImageRefusal> {
        let start = self.image.append(text.as_bytes())?;
        self.put_span(at, start, text.len());
        Ok(())
    }

    /// Appends the bytes that base64 text encodes and writes their span.
    pub(super) fn put_base64(&mut self, at: usize, text: &str) -> Result<(), ImageRefusal> {
        let (start, length) = self.image.append_base64(text)?;
        self.put_span(at, start, length);
        Ok(())
    }

    /// Overwrites a part of a slot. A write outside the open slots does nothing; no caller attempts one.
    pub(super) fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.open.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = bytes;
        }
    }

    /// Writes the low `size` bytes of a number that is known to fit.
    pub(super) fn put_number(&mut self, at: usize, size: u32, number: [u8; 8]) {
        match (size, number) {
            (1, [a, ..]) => self.put(at, [a]),
            (2, [a, b, ..]) => self.put(at, [a, b]),
            (4, [a, b, c, d, ..]) => self.put(at, [a, b, c, d]),
            (_, number) => self.put(at, number),
        }
    }

    /// Writes the number of a case in `size` bytes.
    pub(super) fn put_case(&mut self, at: usize, size: u32, case: usize) {
        if size > 0 {
            self.put_number(at, size, (case as u64).to_le_bytes());
        }
    }

    /// Sets a flag and returns whether it was clear before.
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

    /// Returns the image, with the slots that are still open written to `at`.
    pub(super) fn finish(mut self, at: usize) -> ImageWriter {
        self.image.overwrite(at, &self.open);
        self.image
    }
}
