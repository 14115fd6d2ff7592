//! Private files: the only place that opens, replaces and locks the files that decide what the host runs.
//!
//! A file is used only if no other user could have written it: it belongs to this user or to root, it is a
//! regular file with one name, its mode excludes other users, it is no larger than its policy says, and no
//! other user can rename anything on the path to it (`directory`). Each file has its rules as a
//! [`FilePolicy`]; a file that breaks one is rejected and not changed. Files are replaced atomically, with
//! the mode and the owner that they had, and are on the disk, with their names, before a write is reported as
//! done.

mod change;
mod directory;
mod policy;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::Zeroizing;

pub use change::{FileLock, SharedFileLock, SharedLockUse, StagedFile};
pub use policy::{FileError, FileFault, FilePolicy};

use crate::file_fingerprint::FileFingerprint;

/// Mode of the directories that the host creates.
const DIRECTORY_MODE: u32 = 0o700;

/// A file that was opened for reading and that satisfies its policy.
#[derive(Debug)]
pub struct PrivateFile {
    file: File,
    metadata: Metadata,
    max_bytes: u64,
}

impl PrivateFile {
    /// Returns the state of the file before any byte was read, so that a later change shows as another
    /// fingerprint.
    pub fn fingerprint(&self) -> FileFingerprint {
        FileFingerprint::from(&self.metadata)
    }

    /// Returns the whole content.
    pub fn read(self) -> Result<Vec<u8>, FileError> {
        let limit = self.max_bytes;
        let room = usize::try_from(self.metadata.len().min(limit)).unwrap_or_default().saturating_add(1);
        let mut bytes = Vec::with_capacity(room);
        self.file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(FileFault::TooLarge { limit }.into()) } else { Ok(bytes) }
    }

    /// Returns the whole content as text that is wiped from memory when it is dropped.
    pub fn read_secret_text(self) -> Result<Zeroizing<String>, FileError> {
        let limit = self.max_bytes;
        // A buffer that grows would leave copies behind.
        let room = usize::try_from(limit).unwrap_or_default().saturating_add(2);
        let mut text = Zeroizing::new(String::with_capacity(room));
        self.file.take(limit.saturating_add(1)).read_to_string(&mut text)?;
        if text.len() as u64 > limit { Err(FileFault::TooLarge { limit }.into()) } else { Ok(text) }
    }

    /// Returns the content as a key of `N` bytes; `None` if the file has another size.
    pub fn read_key<const N: usize>(mut self) -> Result<Option<Zeroizing<[u8; N]>>, FileError> {
        if self.metadata.len() != N as u64 {
            return Ok(None);
        }
        let mut key = Zeroizing::new([0; N]);
        self.file.read_exact(key.as_mut_slice())?;
        Ok(Some(key))
    }

    /// Returns the open file, for content that is too large to be held in memory twice.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Returns the size of the content in bytes when the file was opened.
    pub fn size(&self) -> u64 {
        self.metadata.len()
    }
}

/// Opens the file for reading; `None` if it, or a directory on the path to it, does not exist.
///
/// # Errors
/// The file, or a directory on the path to it, breaks a rule of `policy`, or the system reports an error.
pub fn open(path: &Path, policy: &FilePolicy) -> Result<Option<PrivateFile>, FileError> {
    let Some(path) = directory::resolve(path, policy)? else { return Ok(None) };
    let file = match open_plain(&path) {
        Ok(file) => file,
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    policy.for_opened(&file, &metadata).check(&metadata)?;
    Ok(Some(PrivateFile { file, metadata, max_bytes: policy.max_bytes() }))
}

/// Returns the whole content of the file; `None` if it does not exist.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path, policy: &FilePolicy) -> Result<Option<Vec<u8>>, FileError> {
    open(path, policy)?.map(PrivateFile::read).transpose()
}

/// Checks the file and the directories on the path to it without reading; false if it does not exist.
///
/// # Errors
/// As [`open`]. Unlike that, it needs no permission to read the file.
pub fn check(path: &Path, policy: &FilePolicy) -> Result<bool, FileError> {
    let Some(path) = directory::resolve(path, policy)? else { return Ok(false) };
    match path.symlink_metadata() {
        Ok(metadata) => policy.check(&metadata).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the state of the file at `path`; `None` if it does not exist or cannot be inspected.
pub fn fingerprint_of(path: &Path) -> Option<FileFingerprint> {
    path.symlink_metadata().ok().as_ref().map(FileFingerprint::from)
}

/// Returns whether the directory exists. Only this user and root may be able to change it and the directories
/// on the path to it.
///
/// # Errors
/// Another user can change it, or the system reports an error.
pub fn check_dir(path: &Path) -> Result<bool, FileError> {
    // Any name in it has the same path.
    Ok(directory::resolve(&path.join("file"), &FilePolicy::trusted(0))?.is_some())
}

/// Replaces the file by one with the content `bytes`, atomically and durably. An existing link is replaced,
/// never followed.
///
/// # Errors
/// A directory on the path breaks a rule of `policy`, or the system reports an error; the file is unchanged
/// then.
pub fn replace(path: &Path, bytes: &[u8], policy: &FilePolicy) -> Result<(), FileError> {
    let mut staged = StagedFile::begin(path, policy)?;
    staged.write_all(bytes)?;
    staged.replace()
}

/// Creates the file with the content `bytes`, atomically and durably.
///
/// # Errors
/// As [`replace`]; [`io::ErrorKind::AlreadyExists`] if a file of that name exists.
pub fn create_new(path: &Path, bytes: &[u8], policy: &FilePolicy) -> Result<(), FileError> {
    let mut staged = StagedFile::begin(path, policy)?;
    staged.write_all(bytes)?;
    staged.create_new()
}

/// Creates the directory and its missing parents, for this user only.
///
/// # Errors
/// The system reports an error.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Makes the names in the directory durable.
///
/// # Errors
/// The system reports an error.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns the directory that the file is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a file for reading. The path may have been replaced by a link, which is rejected, or by a pipe,
/// which would block.
fn open_plain(path: &Path) -> Result<File, FileError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(of_opening)
}

/// Converts the errors with which the system refuses to open a file that is not a regular one.
fn of_opening(error: io::Error) -> FileError {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match () {
        () if is(Errno::LOOP) => FileFault::SymbolicLink.into(),
        () if is(Errno::NXIO) || is(Errno::ISDIR) => FileFault::NotRegular.into(),
        () => error.into(),
    }
}
