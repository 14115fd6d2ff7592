//! The file itself: read with its seal, replaced whole, one writer at a time.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::Mac as _;

use super::progress::{LogProgress, Progress, VaultMark, VaultProgress};
use crate::failpoint;
use crate::host_key::{self, KeyError, derived, keyed};
use crate::private_file::{self, FileError, FileLock, FilePolicy, StagedFile};

const FILE: &str = "home.state";
const PURPOSE: &[u8] = b"cofferdam home state 1";

/// Its longest is 4 KiB.
const POLICY: FilePolicy = FilePolicy::secret(4 * 1024);

/// How long a writer waits for the one before it, which only writes this one file.
const PATIENCE: Duration = Duration::from_secs(2);

/// The first bytes of a vault that has counters: its magic, its version, and then two numbers of 8 bytes.
pub(crate) const VAULT_MAGIC: &[u8; 16] = b"cofferdam vault\n";
const VAULT_VERSION: [u8; 2] = [0, 2];

/// Why `home.state` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("home.state: {0}")]
    Io(#[from] io::Error),
    /// It is not there, or does not hold, and so is not written either.
    #[error("home.state is missing or was changed; `cofferdam audit verify` says more")]
    Unusable,
}

impl From<FileError> for StateError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Refused(_) => Self::Unusable,
            FileError::Io(error) | FileError::Unsynced(error) => Self::Io(error),
        }
    }
}

/// What is found of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Missing,
    /// It is there, and this host did not write it so.
    Invalid,
    Valid(Progress),
}

/// The file `home.state` of a home directory.
#[derive(Debug, Clone)]
pub(crate) struct HomeState {
    home: PathBuf,
}

impl HomeState {
    pub(crate) fn of(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// What it says now. A missing `host.key` is not created.
    pub(crate) fn read(&self) -> Result<Stored, StateError> {
        let bytes = match private_file::read(&self.home.join(FILE), &POLICY) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Stored::Missing),
            Err(FileError::Refused(_)) => return Ok(Stored::Invalid),
            Err(error) => return Err(error.into()),
        };
        let key = match host_key::read(&self.home.join("host.key")) {
            Err(KeyError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Stored::Invalid);
            }
            key => key?,
        };
        Ok(opened(&bytes, &key).map_or(Stored::Invalid, Stored::Valid))
    }

    /// The header counters of the vault in this home; none where there is no vault. A vault of the first version has
    /// none: its counters are 0, as are those of a file that is no vault, which whoever opens it reports.
    pub(crate) fn vault_mark(&self) -> io::Result<Option<VaultMark>> {
        let file = match private_file::open(&self.home.join("vault"), &FilePolicy::secret(u64::MAX)) {
            Ok(Some(file)) => file.into_file(),
            Ok(None) => return Ok(None),
            Err(FileError::Refused(_)) => return Ok(Some(VaultMark::default())),
            Err(FileError::Io(error) | FileError::Unsynced(error)) => return Err(error),
        };
        let mut first = Vec::new();
        file.take(34).read_to_end(&mut first)?;
        let numbers = first.strip_prefix(VAULT_MAGIC).and_then(|rest| rest.strip_prefix(&VAULT_VERSION));
        let number = |at: usize| {
            let bytes = numbers.and_then(|numbers| numbers.get(at..at.saturating_add(8)));
            bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
        };
        Ok(Some(VaultMark { counter: number(0), log: number(8) }))
    }

    /// Creates the file if there is none. `log` is the log as it is now, where there is one. It is on the disk before
    /// this returns.
    pub(crate) fn create(&self, log: Option<LogProgress>) -> Result<(), StateError> {
        let key = host_key::read_or_make(&self.home.join("host.key"))?;
        let _lock = self.lock()?;
        if self.read()? != Stored::Missing {
            return Ok(());
        }
        let vault =
            self.vault_mark()?.map(|mark| VaultProgress { least: Some(mark.counter), highest: mark.counter });
        self.write(&Progress { log, vault }, &key, true)
    }

    /// Notes that the log has come so far. It never goes back.
    pub(crate) fn advance_log(&self, n: u64, hash: [u8; 32], sync: bool) -> Result<(), StateError> {
        self.change(sync, |progress| {
            let highest = progress.log.map_or(0, |log| log.highest).max(n);
            if progress.log.is_none_or(|log| log.n < n) {
                progress.log = Some(LogProgress { n, hash, highest });
            }
        })
    }

    /// Notes that the vault has come so far.
    pub(crate) fn advance_vault(&self, counter: u64) -> Result<(), StateError> {
        self.change(true, |progress| {
            let highest = progress.vault.map_or(0, |vault| vault.highest).max(counter);
            progress.vault = Some(VaultProgress { least: Some(highest), highest });
        })
    }

    /// Replaces what was remembered: the operator accepts the log and the vault as they are now.
    pub(crate) fn accept(&self, n: u64, hash: [u8; 32]) -> Result<(), StateError> {
        let key = host_key::read_or_make(&self.home.join("host.key"))?;
        let _lock = self.lock()?;
        let before = match self.read()? {
            Stored::Valid(progress) => progress,
            Stored::Missing | Stored::Invalid => Progress::default(),
        };
        let mark = self.vault_mark()?;
        let highest = before.log.map_or(0, |log| log.highest).max(n).max(mark.map_or(0, |mark| mark.log));
        let log = Some(LogProgress { n, hash, highest });
        let kept = before.vault.map_or(0, |vault| vault.highest);
        // A vault that is gone leaves its counter behind, for the next one to go on from.
        let (least, highest_vault) =
            (mark.map(|mark| mark.counter), kept.max(mark.map_or(0, |mark| mark.counter)));
        let vault = (before.vault.is_some() || mark.is_some())
            .then_some(VaultProgress { least, highest: highest_vault });
        self.write(&Progress { log, vault }, &key, true)
    }

    fn change(&self, sync: bool, change: impl FnOnce(&mut Progress)) -> Result<(), StateError> {
        let key = host_key::read(&self.home.join("host.key"))?;
        let _lock = self.lock()?;
        let Stored::Valid(before) = self.read()? else { return Err(StateError::Unusable) };
        let mut next = before;
        change(&mut next);
        if next == before {
            return Ok(());
        }
        self.write(&next, &key, sync)
    }

    fn write(&self, progress: &Progress, key: &[u8; 32], sync: bool) -> Result<(), StateError> {
        let mut file = StagedFile::begin(&self.home.join(FILE), &POLICY)?;
        if !sync {
            file = file.without_sync();
        }
        file.write_all(sealed(progress, key).as_bytes())?;
        failpoint::pass("state.before");
        file.replace()?;
        failpoint::pass("state.written");
        Ok(())
    }

    /// A lock on `host.key`, which is never replaced while the home is in use.
    fn lock(&self) -> Result<FileLock, StateError> {
        let lock = FileLock::acquire(&self.home.join("host.key"), PATIENCE)?;
        let busy = "another process has been writing it for 2 seconds";
        Ok(lock.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, busy))?)
    }
}

fn sealed(progress: &Progress, key: &[u8; 32]) -> String {
    let text = progress.text();
    let mut mac = keyed(&derived(key, PURPOSE));
    mac.update(text.as_bytes());
    let tag: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{text}mac {tag}\n")
}

fn opened(bytes: &[u8], key: &[u8; 32]) -> Option<Progress> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (text, _) = text.rsplit_once("mac ")?;
    let progress = Progress::parse(text)?;
    // The file is no oracle: whoever can try tags can read the right one.
    (sealed(&progress, key).as_bytes() == bytes).then_some(progress)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs;

    use super::*;

    fn state() -> (tempfile::TempDir, HomeState) {
        let home = tempfile::tempdir().unwrap();
        let state = HomeState::of(home.path());
        state.create(None).unwrap();
        (home, state)
    }

    fn progress(state: &HomeState) -> Progress {
        match state.read().unwrap() {
            Stored::Valid(progress) => progress,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_counters_only_go_forward() {
        let (_home, state) = state();
        state.advance_log(5, [5; 32], false).unwrap();
        state.advance_log(3, [3; 32], false).unwrap();
        state.advance_vault(2).unwrap();
        let log = Some(LogProgress { n: 5, hash: [5; 32], highest: 5 });
        let vault = Some(VaultProgress { least: Some(2), highest: 2 });
        assert_eq!(progress(&state), Progress { log, vault });
        // A loss that is accepted keeps the highest counters.
        state.accept(1, [1; 32]).unwrap();
        let log = Some(LogProgress { n: 1, hash: [1; 32], highest: 5 });
        assert_eq!(progress(&state).log, log);
    }

    #[test]
    fn a_changed_or_foreign_state_is_not_written_over() {
        let (home, state) = state();
        let path = home.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for changed in
            [text.replace("state 1", "state 1\nlog 0 0 00"), text.replace("mac ", "mac 0"), String::new()]
        {
            fs::write(&path, changed).unwrap();
            assert_eq!(state.read().unwrap(), Stored::Invalid);
            assert!(state.advance_log(1, [1; 32], false).is_err());
        }
        fs::write(&path, &text).unwrap();
        assert_eq!(progress(&state), Progress::default());
        fs::remove_file(home.path().join("host.key")).unwrap();
        assert_eq!(state.read().unwrap(), Stored::Invalid);
        fs::remove_file(&path).unwrap();
        assert_eq!(state.read().unwrap(), Stored::Missing);
    }
}
