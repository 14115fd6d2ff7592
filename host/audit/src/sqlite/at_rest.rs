//! Reads an audit log in a place without write access or space: a read-only file system, a directory of another
//! user, a full disk.
//!
//! Readers of a live audit log write as well: they mark their view in the shared memory next to it. If that is
//! impossible, the file is opened as immutable. It is complete only if its write-ahead log is empty.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use crate::error::{AuditError, AuditErrorKind};

/// Escapes all characters but those of a path in a URI.
const IN_A_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// Returns true if an audit log that could not be opened for this reason may be read as an immutable file.
pub(super) fn is_worth_a_try(error: &AuditError) -> bool {
    matches!(error.kind(), AuditErrorKind::ReadOnly | AuditErrorKind::Full | AuditErrorKind::Io)
}

/// Opens the file as immutable.
///
/// # Errors
/// `unmerged`: the newest entries are still in the write-ahead log.
pub(super) fn open(path: &Path, refused: &AuditError) -> Result<Connection, AuditError> {
    if !log_is_empty(path).map_err(AuditError::from_io)? {
        return Err(AuditError::new(AuditErrorKind::Unmerged, refused));
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
