//! Files of the package directory: private files, reached without links below its root. Packages are not
//! secret, but write access to them decides what runs.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FileFault, FileLock, FilePolicy};

use super::error::RegistryError;

/// A process that holds the lock for longer than this is stuck.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates `path` and what is missing above it.
pub(super) fn make_dir(path: &Path) -> Result<(), RegistryError> {
    private_file::create_dir(path).map_err(RegistryError::io("making a directory", path))
}

/// Reads the file `names` below `root`, with its stamp from before it was read, where none of the names may be a
/// symbolic link; none where a part of the way is missing.
///
/// `root` itself may be a link: where a user keeps the packages is their own affair.
pub(super) fn read_below(
    root: &Path,
    names: &[&str],
    limit: u64,
) -> Result<Option<(Vec<u8>, FileFingerprint)>, RegistryError> {
    let Some((file, directories)) = names.split_last() else { return Ok(None) };
    let mut path = root.to_owned();
    for name in directories {
        path.push(name);
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(foreign(&path, "a directory")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RegistryError::io("opening", path)(error)),
        }
    }
    path.push(file);
    let read = || -> Result<_, FileError> {
        let Some(file) = private_file::open(&path, &FilePolicy::trusted(limit))? else { return Ok(None) };
        let stamp = file.fingerprint();
        Ok(Some((file.read()?, stamp)))
    };
    read().map_err(|error| unusable("reading", &path, error))
}

fn unusable(doing: &'static str, path: &Path, error: FileError) -> RegistryError {
    let path = path.to_owned();
    match error {
        FileError::Refused(FileFault::SymbolicLink | FileFault::NotRegular) => foreign(&path, "a file"),
        FileError::Refused(FileFault::TooLarge { limit }) => {
            let bytes = path.symlink_metadata().map_or(limit, |metadata| metadata.len());
            RegistryError::TooLarge { bytes, limit, path }
        }
        FileError::Refused(fault) => RegistryError::exposed(&fault, path),
        error => RegistryError::io(doing, path)(error.into()),
    }
}

/// Writes a new file, durably.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
    private_file::create_new(path, bytes, &FilePolicy::trusted(u64::MAX))
        .map_err(|error| unusable("writing a file", path, error))
}

/// Waits for the lock under which the package directory changes.
pub(super) fn lock(path: &Path) -> Result<FileLock, RegistryError> {
    let lock = FileLock::acquire(path, LOCK_TIMEOUT).map_err(|error| unusable("locking", path, error))?;
    lock.ok_or_else(|| RegistryError::Locked { path: path.to_owned() })
}

/// Moves `from` to `to` in one step, durably.
pub(super) fn move_into_place(from: &Path, to: &Path) -> Result<(), RegistryError> {
    fs::rename(from, to).map_err(RegistryError::io("moving a file into place", to))?;
    to.parent().map_or(Ok(()), sync_dir)
}

/// Makes the names in `path` durable.
pub(super) fn sync_dir(path: &Path) -> Result<(), RegistryError> {
    private_file::sync_dir(path).map_err(RegistryError::io("syncing a directory", path))
}

/// Removes a file or a directory with all that is in it; a symbolic link itself, never what it points to.
pub(super) fn remove(path: &Path) -> Result<(), RegistryError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RegistryError::io("removing", path)(error))
        }
        _ => Ok(()),
    }
}

fn foreign(path: &Path, expected: &'static str) -> RegistryError {
    let what = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => "a symbolic link",
        Ok(metadata) if metadata.is_dir() => "a directory",
        Ok(metadata) if metadata.is_file() => "a file",
        _ => "something else",
    };
    RegistryError::Foreign { what, expected, path: path.to_owned() }
}
