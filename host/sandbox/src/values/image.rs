//! An image: values as they lie in the bridge's memory, written and read by address with every access
//! checked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// An image being written. Addresses count from the image's position in memory.
pub(super) struct ImageWriter {
    bytes: Vec<u8>,
    base: u32,
}

/// The reason why something cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageRefusal {
    /// The image would be longer than [`MAX_BYTES`].
    TooLong,
    /// The text is not base64.
    NotBase64,
}

impl ImageWriter {
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
    pub(super) fn reserve(&mut self, size: usize, align: u32) -> Result<usize, ImageRefusal> {
        let at = self.bytes.len().next_multiple_of(align as usize);
        let end = at.checked_add(size).filter(|end| *end <= MAX_BYTES).ok_or(ImageRefusal::TooLong)?;
        self.bytes.resize(end, 0);
        Ok(at)
    }

    /// Appends `bytes` and returns their start in the image.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<usize, ImageRefusal> {
        let at = self.bytes.len();
        at.checked_add(bytes.len()).filter(|end| *end <= MAX_BYTES).ok_or(ImageRefusal::TooLong)?;
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }

    /// Appends the bytes that base64 text encodes; returns their start and their number.
    pub(super) fn append_base64(&mut self, text: &str) -> Result<(usize, usize), ImageRefusal> {
        let at = self.bytes.len();
        at.checked_add(text.len()).filter(|end| *end <= MAX_BYTES).ok_or(ImageRefusal::TooLong)?;
        STANDARD.decode_vec(text, &mut self.bytes).map_err(|_| ImageRefusal::NotBase64)?;
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

    pub(super) fn read(&self) -> AbiImage<'_> {
        AbiImage { bytes: &self.bytes, base: self.base }
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
pub(super) struct AbiImage<'i> {
    bytes: &'i [u8],
    base: u32,
}

/// The image does not hold what its type promises: a fault of the host or of the runtime, since wasmtime
/// wrote it by the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedImage;

impl<'i> AbiImage<'i> {
    /// An image that lies at `base`.
    pub(super) fn new(bytes: &'i [u8], base: u32) -> Self {
        Self { bytes, base }
    }

    /// Returns its length in bytes.
    pub(super) fn len(self) -> usize {
        self.bytes.len()
    }

    /// Returns `N` bytes at `at`, counted from the image's start.
    pub(super) fn get<const N: usize>(self, at: usize) -> Result<[u8; N], MalformedImage> {
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(MalformedImage)
    }

    /// Returns the number of `size` bytes at `at`.
    pub(super) fn sized(self, at: usize, size: u32) -> Result<u32, MalformedImage> {
        match size {
            0 => Ok(0),
            1 => self.get(at).map(|[byte]| byte.into()),
            2 => self.get(at).map(u16::from_le_bytes).map(u32::from),
            _ => self.get(at).map(u32::from_le_bytes),
        }
    }

    /// Returns the start of the span at `at`, counted from the image's start, and its length.
    pub(super) fn span(self, at: usize) -> Result<(usize, usize), MalformedImage> {
        let address = u32::from_le_bytes(self.get(at)?);
        let length = u32::from_le_bytes(self.get(at + 4)?) as usize;
        if length == 0 {
            return Ok((0, 0));
        }
        Ok((address.checked_sub(self.base).ok_or(MalformedImage)? as usize, length))
    }

    /// Returns the start of the list of items of `size` bytes at `at`, and their number; the whole list is
    /// inside the image.
    pub(super) fn items(self, at: usize, size: u32) -> Result<(usize, usize), MalformedImage> {
        let (start, length) = self.span(at)?;
        let end = length.checked_mul(size as usize).and_then(|bytes| bytes.checked_add(start));
        end.filter(|end| *end <= self.bytes.len()).map(|_| (start, length)).ok_or(MalformedImage)
    }

    /// Returns the bytes of the span at `at`.
    pub(super) fn bytes(self, at: usize) -> Result<&'i [u8], MalformedImage> {
        let (start, length) = self.span(at)?;
        self.bytes.get(start..).and_then(|rest| rest.get(..length)).ok_or(MalformedImage)
    }

    /// Returns the text of the span at `at`.
    pub(super) fn text(self, at: usize) -> Result<&'i str, MalformedImage> {
        std::str::from_utf8(self.bytes(at)?).map_err(|_| MalformedImage)
    }
}
