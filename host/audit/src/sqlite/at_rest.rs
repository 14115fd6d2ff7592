//! Reads a record where nothing can be written beside it: on a read-only file system, in a directory of somebody else's,
//! on a full disk.
//!
//! Readers of a record that is written write, too: what they see they mark in the shared memory beside it. Where that
//! cannot be, the file is read as one that nobody changes. It is whole only if nothing stands in its log.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use crate::error::{AuditError, AuditTrouble};

/// What does not mean a part of a path's name in a URI.
const IN_A_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// Whether a record that could not be opened for this reason may be read as it lies there.
pub(super) fn is_worth_a_try(error: &AuditError) -> bool {
    matches!(error.trouble(), AuditTrouble::ReadOnly | AuditTrouble::Full | AuditTrouble::Io)
}

/// Opens it as a file that nobody changes.
///
/// # Errors
/// `unmerged`: what was written last stands in the log beside it.
pub(super) fn open(path: &Path, refused: &AuditError) -> Result<Connection, AuditError> {
    if !log_is_empty(path).map_err(AuditError::from_io)? {
        return Err(AuditError::new(AuditTrouble::Unmerged, refused));
    }
    let name = percent_encode(path.as_os_str().as_bytes(), IN_A_NAME);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    // An absolute path follows an authority, which is empty.
    let scheme = if path.is_absolute() { "file://" } else { "file:" };
    Ok(Connection::open_with_flags(format!("{scheme}{name}?immutable=1"), flags)?)
}

fn log_is_empty(path: &Path) -> io::Result<bool> {
    let mut log = OsString::from(path);
    log.push("-wal");
    match fs::symlink_metadata(PathBuf::from(log)) {
        Ok(log) => Ok(log.len() == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}
