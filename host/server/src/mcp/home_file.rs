//! The JSON files of the home directory that decide what agents are offered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::{self, FileError, FileLock, FilePolicy};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest file, in bytes: ten thousand tools, and room.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const POLICY: FilePolicy = FilePolicy::trusted(MAX_BYTES as u64);

/// The time that a writer waits for another one, which names and writes a few thousand tools.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// One of these files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HomeFile {
    path: PathBuf,
    about: &'static HomeFileTexts,
}

/// The texts of the errors about a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HomeFileTexts {
    /// The kind of the file: "a file of pins".
    pub(super) what: &'static str,
    /// The consequence if it cannot be used: "no tool can keep its name".
    pub(super) consequence: &'static str,
    pub(super) hint: &'static str,
}

impl HomeFile {
    pub(super) fn new(path: impl Into<PathBuf>, about: &'static HomeFileTexts) -> Self {
        Self { path: path.into(), about }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; none if it does not exist.
    ///
    /// # Errors
    /// `configuration`: others can write the file, it cannot be read, or `accepted` returns none for its document.
    pub(super) fn read<D: DeserializeOwned, T>(
        &self,
        accepted: impl FnOnce(D) -> Option<T>,
    ) -> Result<Option<T>, HostError> {
        let bytes = private_file::read(&self.path, &POLICY).map_err(|error| self.failed("read", error))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let document = serde_json::from_slice(&bytes).ok().and_then(accepted);
        document.map(Some).ok_or_else(|| self.unusable(&format!("is not {}", self.about.what)))
    }

    /// Replaces the file in one step.
    ///
    /// # Errors
    /// `configuration`: it cannot be written.
    pub(super) fn write(&self, document: &impl Serialize) -> Result<(), HostError> {
        let mut json = serde_json::to_vec_pretty(document).unwrap_or_default();
        json.push(b'\n');
        // A file that is too large could not be read any more.
        if json.len() > MAX_BYTES {
            return Err(self.unusable("has no room for more"));
        }
        private_file::replace(&self.path, &json, &POLICY).map_err(|error| self.failed("written", error))
    }

    /// Locks the file against other processes that change it.
    ///
    /// # Errors
    /// `configuration`: another process holds the lock for 5 s, or the lock file cannot be used.
    pub(super) fn lock(&self) -> Result<FileLock, HostError> {
        let lock = FileLock::acquire(&self.path.with_extension("lock"), LOCK_TIMEOUT);
        let lock = lock.map_err(|error| self.failed("locked", error))?;
        lock.ok_or_else(|| self.unusable("is locked by another process"))
    }

    fn failed(&self, doing: &str, error: FileError) -> HostError {
        match error {
            FileError::Refused(fault) => fault.into_host_error(
                HostErrorKind::Configuration,
                &format!("{} in the home directory", self.name()),
            ),
            error => self.unusable(&format!("cannot be {doing}")).with_source(error),
        }
    }

    fn unusable(&self, how: &str) -> HostError {
        let message = format!("{} in the home directory {how}: {}.", self.name(), self.about.consequence);
        HostError::new(HostErrorKind::Configuration, message).with_hint(self.about.hint)
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}
