//! The keyring on disk: a private file that is read whole and replaced in one step.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FileFault, FileLock, FilePolicy, StagedFile};

use super::keyring::Keyring;

/// The keyring decides what runs. It holds public keys, which others may read.
const POLICY: FilePolicy = FilePolicy::trusted(MAX_BYTES);

const MAX_BYTES: u64 = 1024 * 1024;

const PATIENCE: Duration = Duration::from_secs(30);

/// `keyring.toml` of a home directory. A file that is not there is an empty keyring: nothing is trusted.
#[derive(Debug, Clone)]
pub struct KeyringFile {
    path: PathBuf,
}

/// The state of the file at one moment; any change of the file changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyringFingerprint(Option<FileFingerprint>);

impl KeyringFingerprint {
    /// Returns true if a later change is sure to show.
    pub fn is_stable(&self) -> bool {
        self.0.is_none_or(|stamp| stamp.is_stable())
    }
}

impl KeyringFile {
    /// The keyring at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it.
    ///
    /// # Errors
    /// `keyring_invalid`: it is not a keyring, or others than its owner may write it.
    pub fn load(&self) -> Result<Keyring, HostError> {
        let bytes = match private_file::read(&self.path, &POLICY) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Keyring::empty()),
            Err(FileError::Refused(fault)) => return Err(refused(fault)),
            Err(error) => {
                return Err(self.unusable("cannot be read", "Check its permissions.").with_source(error));
            }
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let fix = "Move it away; an absent keyring trusts nothing.";
            self.unusable("is not UTF-8 text", fix).with_source(error)
        })?;
        Keyring::parse("keyring.toml", &text).map_err(|error| {
            self.unusable("is not a keyring", "Correct it, or move it away and trust the keys again.")
                .with_source(error)
        })
    }

    /// Reads it, changes it, and replaces it; a change that fails leaves it as it was.
    ///
    /// # Errors
    /// `keyring_invalid` if it cannot be read, `registry_unavailable` if it cannot be written, `validation` if it would
    /// be too large, and what `change` returns.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut Keyring) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let unwritable = |error: FileError| {
            let error = match error {
                FileError::Refused(fault) => return refused(fault),
                error => io::Error::from(error),
            };
            HostError::new(
                HostErrorKind::RegistryUnavailable,
                format!("The keyring could not be written ({}); it is as it was.", error.kind()),
            )
            .with_hint("Check that the home directory can be written and has room.")
            .with_source(format!("{}: {error}", self.path.display()))
        };
        let lock = self.path.with_file_name(".keyring.lock");
        let held = FileLock::acquire(&lock, PATIENCE).map_err(unwritable)?;
        let Some(held) = held else {
            let reason = "another process holds .keyring.lock";
            return Err(unwritable(io::Error::new(io::ErrorKind::ResourceBusy, reason).into()));
        };
        let mut keyring = self.load()?;
        let done = change(&mut keyring)?;
        let text = keyring.to_text();
        if text.len() as u64 > MAX_BYTES {
            // It could not be read again, and then nothing would be trusted.
            let message = "The keyring would have more than 1 MiB; it is as it was.";
            return Err(HostError::new(HostErrorKind::Validation, message)
                .with_hint("Remove keys and thresholds that are no longer needed."));
        }
        let write = || -> Result<(), FileError> {
            let mut staged = StagedFile::begin_locked(&self.path, &POLICY, &held)?;
            staged.write_all(text.as_bytes())?;
            staged.replace()
        };
        write().map_err(unwritable)?;
        Ok(done)
    }

    /// Returns the present fingerprint of the file, by one `stat`.
    pub fn fingerprint(&self) -> KeyringFingerprint {
        KeyringFingerprint(private_file::fingerprint_of(&self.path))
    }

    fn unusable(&self, how: &str, fix: &str) -> HostError {
        HostError::new(HostErrorKind::KeyringInvalid, format!("The keyring (keyring.toml) {how}."))
            .with_hint(fix)
            .with_source(self.path.display().to_string())
    }
}

fn refused(fault: FileFault) -> HostError {
    fault.into_host_error(HostErrorKind::KeyringInvalid, "The keyring (keyring.toml)")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_linked_keyring_or_lock_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        file.update(|_| Ok(())).unwrap();
        let (lock, other) = (home.path().join(".keyring.lock"), home.path().join("other"));
        fs::write(&other, "somebody else's text").unwrap();
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&other, &lock).unwrap();
        assert_eq!(file.update(|_| Ok(())).unwrap_err().kind(), HostErrorKind::KeyringInvalid);
        assert_eq!(fs::read_to_string(&other).unwrap(), "somebody else's text");
        fs::remove_file(&lock).unwrap();
        fs::rename(file.path(), &other).unwrap();
        std::os::unix::fs::symlink(&other, file.path()).unwrap();
        assert_eq!(file.load().unwrap_err().kind(), HostErrorKind::KeyringInvalid);
        fs::remove_file(file.path()).unwrap();
        fs::hard_link(&other, file.path()).unwrap();
        let error = file.load().unwrap_err();
        assert!(error.message().contains("hard link"), "{error}");
    }

    #[test]
    fn a_home_writable_by_others_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        file.update(|_| Ok(())).unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = file.load().unwrap_err();
        assert!(error.message().contains("another user can change"), "{error}");
        assert!(file.update(|_| Ok(())).is_err());
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(file.load().is_ok());
    }

    #[test]
    fn an_absent_keyring_is_empty_and_a_writable_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        assert!(file.load().unwrap().entries().is_empty());
        file.update(|_| Ok(())).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(file.load().unwrap_err().kind(), HostErrorKind::KeyringInvalid);
    }

    #[test]
    fn a_pipe_in_its_place_is_refused_without_hanging() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, file.path(), kind, mode, 0).unwrap();
        assert_eq!(file.load().unwrap_err().kind(), HostErrorKind::KeyringInvalid);
    }

    #[test]
    fn the_next_change_removes_the_rest_of_a_killed_one() {
        let home = tempfile::tempdir().unwrap();
        let file = KeyringFile::new(home.path().join("keyring.toml"));
        fs::write(home.path().join("keyring.tmp"), "half").unwrap();
        file.update(|_| Ok(())).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".keyring.lock", "keyring.toml"]);
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
