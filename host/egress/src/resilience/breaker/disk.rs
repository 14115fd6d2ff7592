//! The files of circuits: private files, replaced atomically under one lock.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FileLock, FilePolicy, StagedFile};

/// The largest file: many times the size of 16 rejected credentials and 1000 failures.
const POLICY: FilePolicy = FilePolicy::trusted(256 * 1024);

/// Reads the content of the file, with its fingerprint from before the read; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<(FileFingerprint, Vec<u8>)>, FileError> {
    let Some(file) = private_file::open(path, &POLICY)? else { return Ok(None) };
    let stamp = file.fingerprint();
    Ok(Some((stamp, file.read()?)))
}

/// Replaces the file's content atomically. A power failure may lose it: a lost circuit is closed, and opens
/// again after the next failures.
pub(super) fn replace(path: &Path, text: &[u8], lock: &FileLock) -> Result<(), FileError> {
    let mut staged = StagedFile::begin_locked(path, &POLICY, lock)?.without_sync();
    staged.write_all(text)?;
    staged.replace()
}

/// Removes the file if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
