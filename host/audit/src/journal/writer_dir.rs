//! The directory of one writer. The process that holds its lock, and no other, appends to the journal in it.
//!
//! A process that only looks at the journal of a dead process takes the lock for a moment, too. One that keeps the journal
//! also locks a second file, by which others know that it lives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::private_file::{self, FileLock, FilePolicy};
use uuid::Uuid;

use super::segment::segments;
use crate::error::{AuditError, AuditErrorKind};
use crate::settings::BUSY_TIMEOUT;

/// The lock file of a writer.
const LOCK: &str = "lock";

/// The lock file of a process that keeps the directory.
const OWNER: &str = "owner";

/// Others could hold the lock of a file that they can read.
const OWNER_POLICY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The pause before it is tried again to take a directory that has no owner.
const PAUSE: Duration = Duration::from_millis(5);

/// The most directories that are created until one is not taken by another process.
const TRIES: u32 = 32;

/// A directory that this process writes to.
#[derive(Debug)]
pub(crate) struct WriterDir {
    path: PathBuf,
    name: String,
    /// None once the directory was given back.
    lock: Option<FileLock>,
    owner: Option<FileLock>,
}

impl WriterDir {
    /// Creates a directory.
    pub(crate) fn create(root: &Path) -> Result<Self, AuditError> {
        for _ in 0..TRIES {
            // None if a process that looks for a free journal took it first.
            if let Some(taken) = Self::try_take(root, &Uuid::now_v7().to_string())? {
                return Ok(taken);
            }
        }
        Err(AuditError::new(AuditErrorKind::Locked, "another process holds a new directory"))
    }

    /// Takes this directory; none while another process holds it.
    pub(crate) fn try_take(root: &Path, name: &str) -> Result<Option<Self>, AuditError> {
        let path = root.join(name);
        let lock =
            FileLock::try_acquire(&path.join(LOCK)).map_err(|error| AuditError::from_file(LOCK, error))?;
        Ok(lock.map(|lock| Self { path, name: name.to_owned(), lock: Some(lock), owner: None }))
    }

    /// Takes this directory; none also if something else than a file is in the place of its lock.
    pub(crate) fn try_take_regular(root: &Path, name: &str) -> Result<Option<Self>, AuditError> {
        if Self::lacks_lock(root, name) {
            tracing::warn!(target: "cofferdam::audit", writer = name, "the lock of a journal is missing: a process may hold the one that was removed. Put an empty file back while no host runs");
            return Ok(None);
        }
        match Self::try_take(root, name) {
            Err(error) if error.kind() == AuditErrorKind::Corrupt => {
                tracing::warn!(target: "cofferdam::audit", writer = name, %error, "a journal cannot be locked, and is not continued");
                Ok(None)
            }
            taken => taken,
        }
    }

    /// Takes this directory as [`try_take_regular`](Self::try_take_regular) does, and waits for processes that only look at
    /// it.
    pub(crate) fn take_free(root: &Path, name: &str) -> Result<Option<Self>, AuditError> {
        for _ in 0..BUSY_TIMEOUT.as_millis() / PAUSE.as_millis() {
            let taken = Self::try_take_regular(root, name)?;
            if taken.is_some() || Self::is_held(root, name) {
                return Ok(taken);
            }
            std::thread::sleep(PAUSE);
        }
        Self::try_take_regular(root, name)
    }

    /// Keeps the directory: others know that this process lives.
    pub(crate) fn keep(&mut self) -> Result<(), AuditError> {
        let path = self.path.join(OWNER);
        private_file::check(&path, &OWNER_POLICY).map_err(|error| AuditError::from_file(OWNER, error))?;
        // Others take it for a moment, to look whether the directory has an owner.
        let owner = FileLock::acquire(&path, BUSY_TIMEOUT);
        let owner = owner.map_err(|error| AuditError::from_file(OWNER, error))?;
        let busy =
            || AuditError::new(AuditErrorKind::Locked, "another process holds the owner file of a journal");
        self.owner = Some(owner.ok_or_else(busy)?);
        Ok(())
    }

    /// Lets other processes take the directory.
    pub(crate) fn give_back(&mut self) {
        (self.lock, self.owner) = (None, None);
    }

    /// Returns whether a process keeps this directory.
    pub(crate) fn is_held(root: &Path, name: &str) -> bool {
        FileLock::is_held(&root.join(name).join(OWNER)) || Self::lacks_lock(root, name)
    }

    /// Returns true if the lock of a journal was removed, which no host does. The process that holds it may live.
    fn lacks_lock(root: &Path, name: &str) -> bool {
        let path = root.join(name);
        let is_missing = matches!(path.join(LOCK).try_exists(), Ok(false));
        is_missing && segments(&path).is_ok_and(|segments| !segments.is_empty())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Checks that the lock is the one at its path: another process could hold one that was put there instead.
    pub(crate) fn check(&self) -> Result<(), AuditError> {
        let is_at = |lock: &FileLock| lock.is_at(&self.path.join(LOCK));
        match self.lock.as_ref().map_or(Ok(false), is_at)? {
            true => Ok(()),
            false => Err(AuditError::new(AuditErrorKind::Replaced, "the lock of the journal was replaced")),
        }
    }
}

/// Returns the names of the writers below `root`, in the order in which they were created.
pub(crate) fn names(root: &Path) -> Result<Vec<String>, AuditError> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        // In the one spelling that hosts use: auditors look for the same names.
        let is_of_writer = |name: &&str| Uuid::try_parse(name).is_ok_and(|uuid| uuid.to_string() == **name);
        let name = name.to_str().filter(is_of_writer);
        // Other things than directories of writers are not theirs.
        names.extend(name.filter(|_| entry.path().is_dir()).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}
