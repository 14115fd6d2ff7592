//! The files of circuits: private files, replaced whole under one lock.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use cofferdam_core::private_file::{self, FileError, FileLock, FilePolicy, StagedFile};
use cofferdam_core::stamp::FileStamp;

/// The largest file: what 16 refused credentials and 1000 failures take, many times over.
const POLICY: FilePolicy = FilePolicy::trusted(256 * 1024);

/// The content of the file, with its stamp from before it was read; none where there is no file.
pub(super) fn read(path: &Path) -> Result<Option<(FileStamp, Vec<u8>)>, FileError> {
    let Some(file) = private_file::open(path, &POLICY)? else { return Ok(None) };
    let stamp = file.stamp();
    Ok(Some((stamp, file.read()?)))
}

/// Puts `text` in the file's place in one step. A power cut may lose it: a circuit that is forgotten is closed, and
/// opens again at the next failures.
pub(super) fn replace(path: &Path, text: &[u8], lock: &FileLock) -> Result<(), FileError> {
    let mut staged = StagedFile::begin_locked(path, &POLICY, lock)?.without_sync();
    staged.write_all(text)?;
    staged.replace()
}

/// Removes the file, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
