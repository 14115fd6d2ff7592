//! Locks among threads and processes, each on an empty file; the system releases them when a process ends.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::error::{FileError, FileFault};
use super::policy::{FilePolicy, is_own};
use super::staged::StagedFile;
use super::{create_dir, directory, of_opening, open_plain, parent};
use crate::file_fingerprint::FileFingerprint;

const POLL: Duration = Duration::from_millis(10);

/// A lock file is empty.
const LOCK_FILE: FilePolicy = FilePolicy::trusted(u64::MAX);

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Waits for the lock on the file at `path`, which is created if it does not exist; `None` if another
    /// process holds it for longer than `patience`. Blocks the thread.
    ///
    /// # Errors
    /// The file is not a lock file of this user's, or the system reports an error. Nothing is changed then.
    pub fn acquire(path: &Path, patience: Duration) -> Result<Option<Self>, FileError> {
        wait(patience, || Self::try_acquire(path))
    }

    /// Waits for the lock on a file that exists and may be read-only.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and as [`acquire`](Self::acquire).
    pub(crate) fn acquire_existing(path: &Path, patience: Duration) -> Result<Option<Self>, FileError> {
        let path = directory::resolve(path, &LOCK_FILE)?.ok_or(io::ErrorKind::NotFound)?;
        wait(patience, || Self::lock_file(open_plain(&path)?, &path))
    }

    /// Takes the lock; returns `None` while another process holds it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(path: &Path) -> Result<Option<Self>, FileError> {
        create_dir(parent(path))?;
        let path = directory::resolve(path, &LOCK_FILE)?.ok_or(io::ErrorKind::NotFound)?;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let mut options = OpenOptions::new();
        // The file is never written or truncated: it may turn out to be another file.
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        Self::lock_file(options.open(&path).map_err(of_opening)?, &path)
    }

    /// Locks the open file; returns `None` while another process holds the lock.
    fn lock_file(file: File, path: &Path) -> Result<Option<Self>, FileError> {
        let own = file.metadata()?;
        if !own.is_file() {
            return Err(FileFault::NotRegular.into());
        }
        if !is_own(own.uid()) {
            return Err(FileFault::ForeignOwner.into());
        }
        if own.nlink() > 1 {
            return Err(FileFault::HardLink.into());
        }
        if own.mode() & 0o077 != 0 {
            // A process that can open it can hold it. Locks of older versions were created with the umask
            // only.
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let lock = Self { file };
        // Its holder may have removed the file since it was opened: a lock on a removed file excludes no
        // other process.
        Ok(lock.is_at(path)?.then_some(lock))
    }

    /// Creates the file at `path`, which is locked from the beginning.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if a file of that name exists, and errors of the system.
    pub fn create_new(path: &Path) -> Result<Self, FileError> {
        let staged = StagedFile::begin(path, &LOCK_FILE)?.without_sync();
        let file = staged.file().try_clone()?;
        file.lock()?;
        staged.create_new()?;
        Ok(Self { file })
    }

    /// Returns whether the file at `path` is the one that is locked.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = FileFingerprint::from(&self.file.metadata()?);
        Ok(super::fingerprint_of(path).is_some_and(|there| there.is_same_file(&own)))
    }

    /// Removes what another process has written into the file.
    pub fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Returns whether another process holds the lock on the file at `path`.
    pub fn is_held(path: &Path) -> bool {
        open_plain(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

fn wait(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<Option<FileLock>, FileError>,
) -> Result<Option<FileLock>, FileError> {
    for _ in 0..=patience.as_millis() / POLL.as_millis() {
        if let Some(lock) = attempt()? {
            return Ok(Some(lock));
        }
        std::thread::sleep(POLL);
    }
    Ok(None)
}
