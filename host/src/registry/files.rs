//! Files of the package directory: read without following links and within bounds, written whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::error::RegistryError;

/// For the owner alone: packages are not secret, but who may write them decides what runs.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes `path` and what is missing above it.
pub(super) fn make_dir(path: &Path) -> Result<(), RegistryError> {
    let failed = RegistryError::io("making a directory", path);
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path).map_err(failed)
}

/// Opens the file `names` below `root`, where none of the names may be a symbolic link and the last
/// must be a regular file; none where a part of the way is missing.
///
/// `root` itself may be a link: where a user keeps the packages is their own affair.
pub(super) fn open_below(root: &Path, names: &[&str]) -> Result<Option<File>, RegistryError> {
    let Some((file, directories)) = names.split_last() else { return Ok(None) };
    let mut path = root.to_owned();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = match openat(CWD, root, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(RegistryError::io("opening", path)(errno.into())),
    };
    for name in directories {
        path.push(name);
        directory = match openat(&directory, *name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            // A link to a directory is "not a directory" or "too many links", as the system likes.
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(foreign(&path, "a directory")),
            Err(errno) => return Err(RegistryError::io("opening", path)(errno.into())),
        };
    }
    path.push(file);
    // Without NONBLOCK, a pipe put in the file's place would hang whoever opens it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(&directory, *file, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Err(foreign(&path, "a file")),
        Err(errno) => return Err(RegistryError::io("opening", path)(errno.into())),
    };
    let metadata = opened.metadata().map_err(RegistryError::io("reading", &path))?;
    if metadata.is_file() { Ok(Some(opened)) } else { Err(foreign(&path, "a file")) }
}

/// Everything in `file`, which must not have more than `limit` bytes; looked at before anything is read.
pub(super) fn read_whole(file: &File, path: &Path, limit: u64) -> Result<Vec<u8>, RegistryError> {
    let too_large = |bytes| Err(RegistryError::TooLarge { bytes, limit, path: path.to_owned() });
    let size = file.metadata().map_err(RegistryError::io("reading", path))?.len();
    if size > limit {
        return too_large(size);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).saturating_add(1));
    file.take(limit + 1).read_to_end(&mut bytes).map_err(RegistryError::io("reading", path))?;
    if bytes.len() as u64 > limit { too_large(bytes.len() as u64) } else { Ok(bytes) }
}

/// Writes a new file, durably.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(RegistryError::io("writing a file", path))
}

/// Moves `from` to `to` in one step, durably.
pub(super) fn move_into_place(from: &Path, to: &Path) -> Result<(), RegistryError> {
    fs::rename(from, to).map_err(RegistryError::io("moving a file into place", to))?;
    to.parent().map_or(Ok(()), sync_dir)
}

/// Makes the names in `path` durable.
pub(super) fn sync_dir(path: &Path) -> Result<(), RegistryError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(RegistryError::io("syncing a directory", path))
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
