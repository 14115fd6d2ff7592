//! An image: values as they lie in the adapter's memory, written and read by address with every access
//! checked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// An image being written. Addresses count from the image's position in memory.
pub(super) struct AbiBufferWriter {
    bytes: Vec<u8>,
    base: u32,
}

/// The reason why something cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbiBufferError {
    /// The image would be longer than [`MAX_BYTES`].
    TooLong,
    /// The text is not base64.
    NotBase64,
}

impl AbiBufferWriter {
    /// An image that will lie at `base`.
    pub(super) fn new(base: u32) -> Self {
        Self { bytes: Vec::new(), base }
    }

    /// Creates an image that will lie at `base`, with capacity for `bytes`.
    pub(super) fn with_capacity(base: u32, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), base }
    }

    /// Returns its present length.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends `size` zero bytes and returns their start in the image.
    pub(super) fn reserve(&mut self, size: usize, align: u32) -> Result<usize, AbiBufferError> {
        let at = self.bytes.len().next_multiple_of(align as usize);
        let end = at.checked_add(size).filter(|end| *end <= MAX_BYTES).ok_or(AbiBufferError::TooLong)?;
        self.bytes.resize(end, 0);
        Ok(at)
    }

    /// Appends `bytes` and returns their start in the image.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<usize, AbiBufferError> {
        let at = self.bytes.len();
        at.checked_add(bytes.len()).filter(|end| *end <= MAX_BYTES).ok_or(AbiBufferError::TooLong)?;
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }

    /// Appends the bytes that base64 text encodes; returns their start and their number.
    pub(super) fn append_base64(&mut self, text: &str) -> Result<(usize, usize), AbiBufferError> {
        let at = self.bytes.len();
        at.checked_add(text.len()).filter(|end| *end <= MAX_BYTES).ok_or(AbiBufferError::TooLong)?;
        STANDARD.decode_vec(text, &mut self.bytes).map_err(|_| AbiBufferError::NotBase64)?;
        Ok((at, self.bytes.len() - at))
    }

    /// Overwrites reserved bytes. A write outside them does nothing; no caller attempts one.
    pub(super) fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = bytes;
        }
    }

    /// Writes `value` in `size` bytes.
    pub(super) fn put_sized(&mut self, at: usize, size: u32, value: u32) {
        match (size, value.to_le_bytes()) {
            (1, [a, ..]) => self.put(at, [a]),
            (2, [a, b, ..]) => self.put(at, [a, b]),
            (4, bytes) => self.put(at, bytes),
            _ => {}
        }
    }

    /// Writes an address in the image and a length.
    pub(super) fn put_span(&mut self, at: usize, start: usize, length: usize) {
        self.put(at, self.address(start).to_le_bytes());
        self.put(at + 4, u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }

    /// Returns the address of the data at `start`.
    pub(super) fn address(&self, start: usize) -> u32 {
        self.base.saturating_add(u32::try_from(start).unwrap_or(u32::MAX))
    }

    /// Overwrites reserved bytes with as many other bytes.
    pub(super) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }

    pub(super) fn read(&self) -> AbiBuffer<'_> {
        AbiBuffer { bytes: &self.bytes, base: self.base }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The longest image, in bytes. Four MiB of JSON can exceed this only if a type is much larger in memory than
/// as text.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;

/// An image for reading.
#[derive(Clone, Copy)]
pub(super) struct AbiBuffer<'i> {
    bytes: &'i [u8],
    base: u32,
}

/// The image does not hold what its type promises: a fault of the host or of the runtime, since wasmtime
/// wrote it by the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedBuffer;

impl<'i> AbiBuffer<'i> {
    /// An image that lies at `base`.
    pub(super) fn new(bytes: &'i [u8], base: u32) -> Self {
        Self { bytes, base }
    }

    /// Returns its length in bytes.
    pub(super) fn len(self) -> usize {
        self.bytes.len()
    }

    /// Returns `N` bytes at `at`, counted from the image's start.
    pub(super) fn get<const N: usize>(self, at: usize) -> Result<[u8; N], MalformedBuffer> {
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(MalformedBuffer)
    }

    /// Returns the number of `size` bytes at `at`.
    pub(super) fn sized(self, at: usize, size: u32) -> Result<u32, MalformedBuffer> {
        match size {
            0 => Ok(0),
            1 => self.get(at).map(|[byte]| byte.into()),
            2 => self.get(at).map(u16::from_le_bytes).map(u32::from),
            _ => self.get(at).map(u32::from_le_bytes),
        }
    }

    /// Returns the start of the span at `at`, counted from the image's start, and its length.
    pub(super) fn span(self, at: usize) -> Result<(usize, usize), MalformedBuffer> {
        let address = u32::from_le_bytes(self.get(at)?);
        let length = u32::from_le_bytes(self.get(at + 4)?) as usize;
        if length == 0 {
            return Ok((0, 0));
        }
        Ok((address.checked_sub(self.base).ok_or(MalformedBuffer)? as usize, length))
    }

    /// Returns the start of the list of items of `size` bytes at `at`, and their number; the whole list is
    /// inside the image.
    pub(super) fn items(self, at: usize, size: u32) -> Result<(usize, usize), MalformedBuffer> {
        let (start, length) = self.span(at)?;
        let end = length.checked_mul(size as usize).and_then(|bytes| bytes.checked_add(start));
        end.filter(|end| *end <= self.bytes.len()).map(|_| (start, length)).ok_or(MalformedBuffer)
    }

    /// Returns the bytes of the span at `at`.
    pub(super) fn bytes(self, at: usize) -> Result<&'i [u8], MalformedBuffer> {
        let (start, length) = self.span(at)?;
        self.bytes.get(start..).and_then(|rest| rest.get(..length)).ok_or(MalformedBuffer)
    }

    /// Returns the text of the span at `at`.
    pub(super) fn text(self, at: usize) -> Result<&'i str, MalformedBuffer> {
        std::str::from_utf8(self.bytes(at)?).map_err(|_| MalformedBuffer)
    }
}

/// The image, and the slots that are not in it yet.
pub(super) struct StagingBuffer {
    buffer: AbiBufferWriter,
    open: Vec<u8>,
}

impl StagingBuffer {
    pub(super) fn new(image: AbiBufferWriter) -> Self {
        Self { buffer: image, open: Vec::new() }
    }

    /// Opens a slot of `size` zeros.
    pub(super) fn push(&mut self, size: u32) -> Result<usize, AbiBufferError> {
        let at = self.open.len();
        let end = at.saturating_add(size as usize);
        if end.saturating_add(self.buffer.len()) > MAX_BYTES {
            return Err(AbiBufferError::TooLong);
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
    ) -> Result<(), AbiBufferError> {
        self.buffer.reserve(0, align)?;
        let start = self.buffer.append(self.open.get(mark..).unwrap_or_default())?;
        self.open.truncate(mark);
        self.put_span(at, start, count);
        Ok(())
    }

    /// Appends a text and writes its span.
    pub(super) fn put_text(&mut self, at: usize, text: &str) -> Result<(), AbiBufferError> {
        let start = self.buffer.append(text.as_bytes())?;
        self.put_span(at, start, text.len());
        Ok(())
    }

    /// Appends the bytes that base64 text encodes and writes their span.
    pub(super) fn put_base64(&mut self, at: usize, text: &str) -> Result<(), AbiBufferError> {
        let (start, length) = self.buffer.append_base64(text)?;
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
        self.put(at, self.buffer.address(start).to_le_bytes());
        self.put(at + 4, u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }

    /// Returns the image, with the slots that are still open written to `at`.
    pub(super) fn finish(mut self, at: usize) -> AbiBufferWriter {
        self.buffer.overwrite(at, &self.open);
        self.buffer
    }
}
