//! Changes of private files: new content that replaces a file atomically, and locks among threads and processes,
//! each on an empty file; the system releases them when a process ends.

use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use tempfile::{Builder, NamedTempFile};

use super::policy::{FileError, FileFault, FileLocation, FilePolicy, is_own};
use super::{create_dir, directory, of_opening, open_plain, parent, sync_dir};
use crate::file_fingerprint::FileFingerprint;

/// A new content of a file, not yet in its place. Dropping it removes it; a killed process leaves a file
/// whose name begins with [`PREFIX`](Self::PREFIX).
#[derive(Debug)]
pub struct StagedFile {
    file: NamedTempFile,
    path: PathBuf,
    policy: FilePolicy,
    is_durable: bool,
}

impl StagedFile {
    /// The prefix of the names of files that are being written.
    pub const PREFIX: &str = ".cofferdam-";

    /// Begins a new content of the file at `path`. Missing directories of the home are created.
    pub fn begin(path: &Path, policy: &FilePolicy) -> Result<Self, FileError> {
        let mut builder = Builder::new();
        builder.prefix(Self::PREFIX);
        Self::begin_as(path, policy, &mut builder)
    }

    /// Begins a new content under a fixed name next to the file (`vault.tmp`), so that the next writer
    /// removes the leftover of a killed writer. The lock, which the caller holds, keeps writers from each
    /// other's file.
    pub fn begin_locked(path: &Path, policy: &FilePolicy, _lock: &FileLock) -> Result<Self, FileError> {
        let temporary = path.with_extension("tmp");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let name = temporary.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Self::begin_as(path, policy, Builder::new().prefix(name).rand_bytes(0))
    }

    fn begin_as(path: &Path, policy: &FilePolicy, builder: &mut Builder<'_, '_>) -> Result<Self, FileError> {
        let path = match policy.location() {
            FileLocation::Home => {
                create_dir(parent(path))?;
                directory::resolve(path, policy)?.ok_or(io::ErrorKind::NotFound)?
            }
            FileLocation::Named | FileLocation::Output => path.to_owned(),
        };
        let mode = Permissions::from_mode(policy.new_mode());
        let file = builder.permissions(mode).tempfile_in(parent(&path)).map_err(without_path)?;
        Ok(Self { file, path, policy: *policy, is_durable: true })
    }

    /// Does not wait for the disk: a power failure may lose the new content, or leave the old one.
    pub fn without_sync(mut self) -> Self {
        self.is_durable = false;
        self
    }

    /// Replaces the file by the new content. An existing file passes its mode, as far as the policy allows,
    /// and its owner to the new one; a link is replaced and not followed.
    pub fn replace(self) -> Result<(), FileError> {
        match fs::symlink_metadata(&self.path) {
            Ok(there) if there.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory).into()),
            Ok(there) if there.is_file() => self.keep(&there)?,
            // A device or a pipe that is replaced is lost to the whole machine.
            Ok(there) if !there.is_symlink() && matches!(self.policy.location(), FileLocation::Output) => {
                return Err(FileFault::NotRegular.into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.sync()?;
        self.file.persist(&self.path).map_err(|error| error.error)?;
        sync_names(self.is_durable, &self.path)
    }

    /// Creates the file with the new content if there is no file of that name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], and errors of the system.
    pub fn create_new(self) -> Result<(), FileError> {
        self.sync()?;
        self.file.persist_noclobber(&self.path).map_err(|error| error.error)?;
        sync_names(self.is_durable, &self.path)
    }

    /// Sets the mode and the owner of the old file on the new one.
    fn keep(&self, there: &Metadata) -> io::Result<()> {
        let file = self.file.as_file();
        let own = file.metadata()?;
        if own.uid() != there.uid() {
            fchown(file, Some(there.uid()), None)?;
        }
        let mut mode = self.policy.kept_mode(there.mode());
        if own.gid() != there.gid() && fchown(file, None, Some(there.gid())).is_err() {
            // For a group that this user is not in, the group's permissions are dropped rather than given to
            // another group.
            mode &= !0o070;
        }
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Waits until the content is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        if self.is_durable { self.file.as_file().sync_all() } else { Ok(()) }
    }
}

// To the file itself: the errors of `NamedTempFile` have its path.
impl io::Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// Removes the path from an error of the crate `tempfile`: with the random name in it, the same error would look like
/// another one each time.
fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

fn sync_names(is_durable: bool, path: &Path) -> Result<(), FileError> {
    if is_durable {
        sync_dir(parent(path)).map_err(FileError::Unsynced)?;
    }
    Ok(())
}

const POLL: Duration = Duration::from_millis(10);

/// A lock file is empty.
const LOCK_FILE: FilePolicy = FilePolicy::trusted(u64::MAX);

/// The way to lock a file: alone, or shared.
type LockKind = fn(&File) -> Result<(), TryLockError>;

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
        wait(patience, || Self::lock_file(open_plain(&path)?, &path, File::try_lock))
    }

    /// Takes the lock; returns `None` while another process holds it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(path: &Path) -> Result<Option<Self>, FileError> {
        Self::try_acquire_as(path, File::try_lock)
    }

    fn try_acquire_as(path: &Path, lock: LockKind) -> Result<Option<Self>, FileError> {
        create_dir(parent(path))?;
        let path = directory::resolve(path, &LOCK_FILE)?.ok_or(io::ErrorKind::NotFound)?;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let mut options = OpenOptions::new();
        // The file is never written or truncated: it may turn out to be another file.
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        Self::lock_file(options.open(&path).map_err(of_opening)?, &path, lock)
    }

    /// Locks the open file; returns `None` while another process holds the lock.
    fn lock_file(file: File, path: &Path, lock: LockKind) -> Result<Option<Self>, FileError> {
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
        match lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let lock = Self { file };
        // Its holder may have removed the file since it was opened: a lock on a removed file excludes no
        // other process.
        Ok(lock.is_at(path)?.then_some(lock))
    }

    /// Returns whether the file at `path` is the one that is locked.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = FileFingerprint::from(&self.file.metadata()?);
        Ok(super::fingerprint_of(path).is_some_and(|there| there.is_same_file(&own)))
    }

    /// Returns whether another process holds the lock on the file at `path`.
    pub fn is_held(path: &Path) -> bool {
        open_plain(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

/// A lock that is shared with other processes and among the threads of this process. Its file stays open.
#[derive(Debug)]
pub struct SharedFileLock {
    path: PathBuf,
    /// The most recently opened file.
    taken: Mutex<Option<Arc<CountedLock>>>,
}

/// A file that is locked while it has uses.
#[derive(Debug)]
struct CountedLock {
    lock: FileLock,
    uses: Mutex<usize>,
}

impl SharedFileLock {
    /// Creates a lock on the file at `path`. The file is opened when the lock is taken for the first time.
    pub fn new(path: PathBuf) -> Self {
        Self { path, taken: Mutex::default() }
    }

    /// Takes the lock; returns `None` while another process holds it alone.
    ///
    /// # Errors
    /// As [`FileLock::acquire`].
    pub fn try_acquire(&self) -> Result<Option<SharedLockUse>, FileError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counted) = &*taken {
            let mut uses = counted.uses.lock().unwrap_or_else(PoisonError::into_inner);
            if *uses == 0 && counted.lock.file.try_lock_shared().is_err() {
                return Ok(None);
            }
            // A lock on a file that was removed excludes no other process.
            if counted.lock.is_at(&self.path)? {
                *uses = uses.saturating_add(1);
                return Ok(Some(SharedLockUse(Arc::clone(counted))));
            }
        }
        let lock = FileLock::try_acquire_as(&self.path, File::try_lock_shared)?;
        Ok(lock.map(|lock| {
            let counted = Arc::new(CountedLock { lock, uses: Mutex::new(1) });
            SharedLockUse(Arc::clone(taken.insert(counted)))
        }))
    }

    /// Waits for the lock; `None` if another process holds it alone for longer than `patience`. Blocks the thread.
    ///
    /// # Errors
    /// As [`FileLock::acquire`].
    pub fn acquire(&self, patience: Duration) -> Result<Option<SharedLockUse>, FileError> {
        wait(patience, || self.try_acquire())
    }
}

/// A use of a lock, which is released with its last use.
#[derive(Debug)]
pub struct SharedLockUse(Arc<CountedLock>);

impl Drop for SharedLockUse {
    fn drop(&mut self) {
        let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        *uses = uses.saturating_sub(1);
        if *uses == 0 {
            let _ = self.0.lock.file.unlock();
        }
    }
}

impl Drop for FileLock {
    /// Releases the lock, which a child process that is being started would otherwise hold until it runs its own program.
    fn drop(&mut self) {
        // Closing the file releases it as well.
        let _ = self.file.unlock();
    }
}

fn wait<L>(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<Option<L>, FileError>,
) -> Result<Option<L>, FileError> {
    for _ in 0..=patience.as_millis() / POLL.as_millis() {
        if let Some(lock) = attempt()? {
            return Ok(Some(lock));
        }
        std::thread::sleep(POLL);
    }
    Ok(None)
}
