//! Bytes and lines of a file, from a position on, whatever the position of the open file is.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::error::AuditError;
use crate::journal::LINE_BYTES;

/// The bytes that are read at once to find the end of one line.
const NEXT_LINE: usize = 4 * 1024;

/// Reads up to `size` bytes from this position on into `buffer`.
pub(super) fn read_at(
    file: &File,
    buffer: &mut Vec<u8>,
    from: u64,
    size: usize,
) -> Result<usize, AuditError> {
    buffer.resize(size, 0);
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, from.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(more) => read = read.saturating_add(more),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    buffer.truncate(read);
    Ok(read)
}

/// Returns the length of the line that begins at this position; none if it has no end.
pub(super) fn line_length(buffer: &[u8], position: usize) -> Option<usize> {
    memchr::memchr(b'\n', buffer.get(position..)?)
}

/// Reads the whole line that begins at this position; none at the end.
pub(super) fn next_line(file: &File, position: u64) -> Result<Option<Vec<u8>>, AuditError> {
    let (mut bytes, mut size) = (Vec::new(), NEXT_LINE);
    loop {
        let read = read_at(file, &mut bytes, position, size)?;
        if let Some(length) = line_length(&bytes, 0) {
            bytes.truncate(length);
            return Ok(Some(bytes));
        }
        if read < size || size as u64 > LINE_BYTES {
            return Ok(None);
        }
        size = size.saturating_mul(8);
    }
}
