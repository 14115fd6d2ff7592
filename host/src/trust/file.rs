//! The keyring on disk: read whole, checked for who may write it, replaced atomically.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::keyring::Keyring;
use crate::error::{HostError, HostErrorKind};
use crate::stamp::FileStamp;

/// The largest keyring that is read, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// `keyring.toml` of a home directory. A file that is not there is an empty keyring: nothing is trusted.
#[derive(Debug, Clone)]
pub struct KeyringFile {
    path: PathBuf,
}

/// What the file looked like at one moment; a change of the file is a change of this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyringStamp(Option<FileStamp>);

impl KeyringStamp {
    /// Whether a later change is sure to show.
    #[cfg(feature = "server")]
    pub(crate) fn is_settled(&self) -> bool {
        self.0.is_none_or(|stamp| stamp.is_settled())
    }
}

impl KeyringFile {
    /// The keyring at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it.
    ///
    /// # Errors
    /// `keyring_invalid`: it is not a keyring, or others than its owner may write it.
    pub fn load(&self) -> Result<Keyring, HostError> {
        // Without NONBLOCK, a pipe put in the file's place would hang whoever opens it.
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = match fs::OpenOptions::new().read(true).custom_flags(nonblock).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Keyring::empty()),
            Err(error) => {
                return Err(self.unusable("cannot be read", "Check its permissions.").because(error));
            }
        };
        let unreadable = |error| self.unusable("cannot be read", "Check its permissions.").because(error);
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() || meta.len() > MAX_BYTES {
            return Err(self.unusable(
                "is not a file of at most 1 MiB",
                "Move it away; an absent keyring trusts nothing.",
            ));
        }
        let user = rustix::process::geteuid().as_raw();
        if meta.uid() != user && meta.uid() != 0 {
            let fix = "Whoever owns it decides what runs: move it away, and trust the keys again.";
            return Err(self.unusable("belongs to another user", fix));
        }
        if meta.permissions().mode() & 0o022 != 0 {
            let fix = "Whoever can write it decides what runs: chmod 600 it, after reading it once more.";
            return Err(self.unusable("can be written by others than its owner", fix));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unreadable)?;
        Keyring::parse("keyring.toml", &text).map_err(|error| {
            self.unusable("is not a keyring", "Correct it, or move it away and trust the keys again.")
                .because(error)
        })
    }

    /// Reads it, changes it, and replaces it; a change that fails leaves it as it was.
    ///
    /// # Errors
    /// `keyring_invalid` if it cannot be read, `registry_unavailable` if it cannot be written, and what
    /// `change` returns.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut Keyring) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let unwritable = |error: io::Error| {
            HostError::new(
                HostErrorKind::RegistryUnavailable,
                format!("The keyring could not be written ({}); it is as it was.", error.kind()),
            )
            .hint("Check that the home directory can be written and has room.")
            .because(format!("{}: {error}", self.path.display()))
        };
        let dir = self.path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unwritable)?;
        let lock = fs::File::create(dir.join(".keyring.lock")).map_err(unwritable)?;
        take(&lock).map_err(unwritable)?;
        let mut keyring = self.load()?;
        let done = change(&mut keyring)?;
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(keyring.to_text().as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&self.path).map_err(|error| error.error)
        };
        write().map(drop).map_err(unwritable)?;
        Ok(done)
    }

    /// What the file looks like now: one `stat`.
    pub(crate) fn stamp(&self) -> KeyringStamp {
        KeyringStamp(rustix::fs::stat(&self.path).ok().map(|stat| FileStamp::from(&stat)))
    }

    fn unusable(&self, how: &str, fix: &str) -> HostError {
        HostError::new(HostErrorKind::KeyringInvalid, format!("The keyring (keyring.toml) {how}."))
            .hint(fix)
            .because(self.path.display().to_string())
    }
}

/// Waits for the lock, up to half a minute: who holds it longer than that is stuck.
fn take(lock: &fs::File) -> io::Result<()> {
    for _ in 0..PATIENCE.as_millis() / POLL.as_millis() {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(POLL),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process holds .keyring.lock"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn absent_is_empty_and_writable_by_others_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        assert!(file.load().unwrap().entries().is_empty());
        file.update(|_| Ok(())).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(file.load().unwrap_err().kind(), HostErrorKind::KeyringInvalid);
    }

    #[test]
    fn a_pipe_in_its_place_is_refused_and_hangs_nobody() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, file.path(), kind, mode, 0).unwrap();
        assert_eq!(file.load().unwrap_err().kind(), HostErrorKind::KeyringInvalid);
    }

    #[test]
    fn a_failed_change_and_a_corrupt_file_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        fs::write(file.path(), "not = [a keyring").unwrap();
        let error = file.update(|_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::KeyringInvalid);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "not = [a keyring");
    }
}
