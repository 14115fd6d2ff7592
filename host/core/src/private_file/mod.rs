//! Private files: the one place that opens, replaces and locks the files that decide what the host runs.
//!
//! A file is used only if no other user could have written it: it belongs to this user or to root, it is a regular file
//! with one name, its mode keeps others out, it is no larger than its policy says, and no other user can rename anything
//! on the way to it (`directory`). Each file states its rules as a [`FilePolicy`]; a file that breaks one is refused and
//! left as it is. Files are replaced in one step, under the mode and the owner that they had, and are on the disk, with
//! their names, before a write is reported as done.

mod directory;
mod error;
mod lock;
mod policy;
mod staged;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::Zeroizing;

pub use error::{FileError, FileFault};
pub use lock::FileLock;
pub use policy::FilePolicy;
pub use staged::StagedFile;

use crate::stamp::FileStamp;

/// Mode of the directories that the host creates.
const DIRECTORY_MODE: u32 = 0o700;

/// A file that was opened for reading and that fulfils its policy.
#[derive(Debug)]
pub struct PrivateFile {
    file: File,
    metadata: Metadata,
    max_bytes: u64,
}

impl PrivateFile {
    /// The state of the file before any byte was read, so that a later change shows as another stamp.
    pub fn stamp(&self) -> FileStamp {
        FileStamp::from(&self.metadata)
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

    /// Returns the content as a key of `N` bytes; none if the file has another size.
    pub fn read_key<const N: usize>(mut self) -> Result<Option<Zeroizing<[u8; N]>>, FileError> {
        if self.metadata.len() != N as u64 {
            return Ok(None);
        }
        let mut key = Zeroizing::new([0; N]);
        self.file.read_exact(key.as_mut_slice())?;
        Ok(Some(key))
    }

    /// The open file, for content that is too large to be kept in memory twice.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Size of the content in bytes, as of the opening.
    pub fn size(&self) -> u64 {
        self.metadata.len()
    }
}

/// Opens the file for reading; none if it, or a directory on the way to it, does not exist.
///
/// # Errors
/// The file, or a directory on the way to it, breaks a rule of `policy`, or the system refuses.
pub fn open(path: &Path, policy: &FilePolicy) -> Result<Option<PrivateFile>, FileError> {
    let Some(path) = directory::resolve(path, policy)? else { return Ok(None) };
    let file = match open_plain(&path) {
        Ok(file) => file,
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    policy.check(&metadata)?;
    Ok(Some(PrivateFile { file, metadata, max_bytes: policy.max_bytes() }))
}

/// Returns the whole content of the file; none if it does not exist.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path, policy: &FilePolicy) -> Result<Option<Vec<u8>>, FileError> {
    open(path, policy)?.map(PrivateFile::read).transpose()
}

/// Checks the file and the directories on the way to it without reading; false if it does not exist.
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

/// The state of the file at `path`; none if it does not exist or cannot be looked at.
pub fn stamp_of(path: &Path) -> Option<FileStamp> {
    path.symlink_metadata().ok().as_ref().map(FileStamp::from)
}

/// Returns whether the directory is there; only this user and root may be able to change it, or what leads to it.
///
/// # Errors
/// Another user can change it, or the system refuses.
pub fn check_dir(path: &Path) -> Result<bool, FileError> {
    // Any name in it has the same way.
    Ok(directory::resolve(&path.join("file"), &FilePolicy::trusted(0))?.is_some())
}

/// Puts `bytes` into the place of the file in one step, durably. What is there is replaced, never followed.
///
/// # Errors
/// A directory on the way breaks a rule of `policy`, or the system refuses; the file is then as it was.
pub fn replace(path: &Path, bytes: &[u8], policy: &FilePolicy) -> Result<(), FileError> {
    let mut staged = StagedFile::begin(path, policy)?;
    staged.write_all(bytes)?;
    staged.replace()
}

/// Creates the file with `bytes` in it in one step, durably.
///
/// # Errors
/// As [`replace`]; [`io::ErrorKind::AlreadyExists`] if anything has that name.
pub fn create_new(path: &Path, bytes: &[u8], policy: &FilePolicy) -> Result<(), FileError> {
    let mut staged = StagedFile::begin(path, policy)?;
    staged.write_all(bytes)?;
    staged.create_new()
}

/// Creates the directory and what is missing above it, for this user alone.
///
/// # Errors
/// The system refuses.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Makes the names in the directory durable.
///
/// # Errors
/// The system refuses.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The directory that the file is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a file for reading that may have been replaced by a link, which is refused, or by a pipe, which would block.
fn open_plain(path: &Path) -> Result<File, FileError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(of_opening)
}

/// The reasons for which the system refuses to open what is not a regular file.
fn of_opening(error: io::Error) -> FileError {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match () {
        () if is(Errno::LOOP) => FileFault::SymbolicLink.into(),
        () if is(Errno::NXIO) || is(Errno::ISDIR) => FileFault::NotRegular.into(),
        () => error.into(),
    }
}
