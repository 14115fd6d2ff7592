//! The file itself: read with its seal, replaced atomically, one writer at a time.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::Mac as _;
use sha2::{Digest as _, Sha256};

use super::progress::{HomeProgress, LogProgress, StateLoss, VaultMark, VaultProgress};
use crate::failpoint;
use crate::host_key::{self, HostKeyError, derived, hmac};
use crate::private_file::{self, FileError, FileFault, FileLock, FilePolicy, StagedFile};

const FILE: &str = "home.state";
const PURPOSE: &[u8] = b"cofferdam home state 1";

/// The largest size is 4 KiB.
const POLICY: FilePolicy = FilePolicy::secret(4 * 1024);

/// The time that a writer waits for another one, which only writes this file.
const PATIENCE: Duration = Duration::from_secs(2);

/// The first bytes of a vault. In the header of version 2 these follow: the version, two counters of 8 bytes,
/// the lock, and the first 8 bytes of the SHA-256 of all that.
pub const VAULT_MAGIC: &[u8; 16] = b"cofferdam vault\n";
const VAULT_VERSION: [u8; 2] = [0, 2];
const VAULT_HEADER_BYTES: usize = 128;
const VAULT_SUM_BYTES: usize = 8;

/// The upper bound of a vault's counters. A forged header with a higher one would leave no room for later
/// counters.
const MAX_COUNTER: u64 = 1 << 62;

/// The maximum number of changes by which an accepted vault may be ahead of `home.state`. A forged header can
/// use up no more of the counters than that.
const MAX_STEP: u64 = 1 << 32;

/// The reason why `home.state` cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant is its documentation")]
pub enum StateError {
    #[error(transparent)]
    Key(#[from] HostKeyError),
    #[error("home.state: {0}")]
    Io(#[from] io::Error),
    /// The vault cannot be compared: the file breaks this rule.
    #[error("the vault {0}")]
    VaultRefused(FileFault),
    /// The vault's header is damaged.
    #[error(
        "the vault is damaged (its header was cut short or changed): put a copy of it back, or move it away"
    )]
    VaultDamaged,
    /// The file is missing or invalid, and so is not written either.
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

/// The result of reading the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredState {
    /// There is no file.
    Missing,
    /// The file exists, but was not written by this host.
    Invalid,
    /// The file was written by this host.
    Valid(HomeProgress),
}

/// The file `home.state` of a home directory.
#[derive(Debug, Clone)]
pub struct HomeState {
    home: PathBuf,
}

impl HomeState {
    /// Creates the handle for this home directory; reads nothing.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// Reads the file. A missing `host.key` is not created.
    pub fn read(&self) -> Result<StoredState, StateError> {
        let bytes = match private_file::read(&self.home.join(FILE), &POLICY) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(StoredState::Missing),
            Err(FileError::Refused(_)) => return Ok(StoredState::Invalid),
            Err(error) => return Err(error.into()),
        };
        let key = match host_key::read(&self.home.join("host.key")) {
            Err(HostKeyError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(StoredState::Invalid);
            }
            key => key?,
        };
        Ok(opened(&bytes, &key).map_or(StoredState::Invalid, StoredState::Valid))
    }

    /// Returns the header counters of the vault in this home; `None` if there is no vault. The counters of a
    /// vault of version 1 are 0. Only the vault's key proves them.
    ///
    /// # Errors
    /// The vault cannot be read, or its header is damaged.
    pub fn vault_mark(&self) -> Result<Option<VaultMark>, StateError> {
        let file = match private_file::open(&self.home.join("vault"), &FilePolicy::secret(u64::MAX)) {
            Ok(Some(file)) => file.into_file(),
            Ok(None) => return Ok(None),
            Err(FileError::Refused(fault)) => return Err(StateError::VaultRefused(fault)),
            Err(error) => return Err(StateError::Io(error.into())),
        };
        let mut header = Vec::new();
        file.take(VAULT_HEADER_BYTES as u64).read_to_end(&mut header)?;
        let versioned = header.strip_prefix(VAULT_MAGIC).ok_or(StateError::VaultDamaged)?;
        match versioned.strip_prefix(&VAULT_VERSION) {
            Some(fields) => mark(&header, fields).map(Some).ok_or(StateError::VaultDamaged),
            // Opening a vault of an unknown version reports that.
            None => Ok(Some(VaultMark::default())),
        }
    }

    /// Compares the existing vault with `progress`.
    pub fn vault_loss(&self, progress: &HomeProgress) -> Result<Option<StateLoss>, StateError> {
        match self.vault_mark() {
            Ok(found) => Ok(progress.vault_loss(found)),
            Err(StateError::VaultRefused(_) | StateError::VaultDamaged) => {
                Ok(progress.expects_vault().then_some(StateLoss::VaultUnusable))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether the existing vault was written with a `home.state`, which gave it a counter.
    ///
    /// # Errors
    /// As [`vault_mark`](Self::vault_mark).
    pub fn has_counted_vault(&self) -> Result<bool, StateError> {
        Ok(self.vault_mark()?.is_some_and(|mark| mark.counter > 0))
    }

    /// Creates the file if there is none. `log` is the current progress of the log, if there is one. The file
    /// is on the disk before this returns.
    pub fn create(&self, log: Option<LogProgress>) -> Result<(), StateError> {
        let key = host_key::load_or_create(&self.home.join("host.key"))?;
        let lock = self.lock()?;
        if self.read()? != StoredState::Missing {
            return Ok(());
        }
        let vault = self.vault_mark()?;
        let vault = vault.map(|mark| VaultProgress { least: Some(mark.counter), highest: mark.counter });
        self.write(&HomeProgress { log, vault }, &key, &lock)
    }

    /// Records the log's progress, which never decreases.
    pub fn advance_log(&self, n: u64, hash: [u8; 32]) -> Result<(), StateError> {
        self.change(|progress| {
            let highest = progress.log.map_or(0, |log| log.highest).max(n);
            if progress.log.is_none_or(|log| log.n < n) {
                progress.log = Some(LogProgress { n, hash, highest });
            }
        })
    }

    /// Records the vault's progress.
    pub fn advance_vault(&self, counter: u64) -> Result<(), StateError> {
        self.change(|progress| {
            let highest = progress.vault.map_or(0, |vault| vault.highest).max(counter);
            progress.vault = Some(VaultProgress { least: Some(highest), highest });
        })
    }

    /// Replaces the stored progress: the operator accepts the current log and vault.
    pub fn accept(&self, n: u64, hash: [u8; 32]) -> Result<(), StateError> {
        let key = host_key::load_or_create(&self.home.join("host.key"))?;
        let lock = self.lock()?;
        let before = match self.read()? {
            StoredState::Valid(progress) => progress,
            StoredState::Missing | StoredState::Invalid => HomeProgress::default(),
        };
        let mark = self.vault_mark()?;
        let kept = before.vault.map_or(0, |vault| vault.highest);
        // Only the vault's key proves the counter, and it is not available here.
        if mark.is_some_and(|mark| mark.counter > kept.saturating_add(MAX_STEP)) {
            return Err(StateError::VaultDamaged);
        }
        let highest = before.log.map_or(0, |log| log.highest).max(n).max(mark.map_or(0, |mark| mark.log));
        let log = Some(LogProgress { n, hash, highest });
        // The counter of a missing vault is kept, and the next one continues from it.
        let (least, highest_vault) =
            (mark.map(|mark| mark.counter), kept.max(mark.map_or(0, |mark| mark.counter)));
        let vault = (before.vault.is_some() || mark.is_some())
            .then_some(VaultProgress { least, highest: highest_vault });
        self.write(&HomeProgress { log, vault }, &key, &lock)
    }

    fn change(&self, change: impl FnOnce(&mut HomeProgress)) -> Result<(), StateError> {
        let key = host_key::read(&self.home.join("host.key"))?;
        let lock = self.lock()?;
        let StoredState::Valid(before) = self.read()? else { return Err(StateError::Unusable) };
        let mut next = before;
        change(&mut next);
        if next == before {
            return Ok(());
        }
        self.write(&next, &key, &lock)
    }

    /// Replaces the file. It is on the disk before this returns: a vault is rejected if the file is damaged
    /// or behind.
    fn write(&self, progress: &HomeProgress, key: &[u8; 32], lock: &FileLock) -> Result<(), StateError> {
        let mut file = StagedFile::begin_locked(&self.home.join(FILE), &POLICY, lock)?;
        file.write_all(sealed(progress, key).as_bytes())?;
        failpoint::pass("state.before");
        file.replace()?;
        failpoint::pass("state.written");
        Ok(())
    }

    /// Takes a lock on `host.key`, which is never replaced while the home is in use, and may be read-only.
    fn lock(&self) -> Result<FileLock, StateError> {
        let lock = FileLock::acquire_existing(&self.home.join("host.key"), PATIENCE)?;
        let busy = "another process has been writing it for 2 seconds";
        Ok(lock.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, busy))?)
    }
}

/// Returns the counters in a header of version 2 with a valid checksum.
fn mark(header: &[u8], fields: &[u8]) -> Option<VaultMark> {
    let (summed, sum) = header.split_at_checked(VAULT_HEADER_BYTES - VAULT_SUM_BYTES)?;
    if Sha256::digest(summed).get(..VAULT_SUM_BYTES)? != sum {
        return None;
    }
    let (counter, rest) = fields.split_first_chunk()?;
    let mark =
        VaultMark { counter: u64::from_be_bytes(*counter), log: u64::from_be_bytes(*rest.first_chunk()?) };
    (mark.counter < MAX_COUNTER && mark.log < MAX_COUNTER).then_some(mark)
}

fn sealed(progress: &HomeProgress, key: &[u8; 32]) -> String {
    let text = progress.text();
    let mut mac = hmac(&derived(key, PURPOSE));
    mac.update(text.as_bytes());
    let tag: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{text}mac {tag}\n")
}

fn opened(bytes: &[u8], key: &[u8; 32]) -> Option<HomeProgress> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (text, _) = text.rsplit_once("mac ")?;
    let progress = HomeProgress::parse(text)?;
    // A constant-time comparison is not needed: a process that can try tags can read the right one.
    (sealed(&progress, key).as_bytes() == bytes).then_some(progress)
}

/// Returns the header of a vault with these counters, for tests.
pub fn vault_header(counter: u64, log: u64) -> Vec<u8> {
    let mut header = [&VAULT_MAGIC[..], &VAULT_VERSION, &counter.to_be_bytes(), &log.to_be_bytes()].concat();
    header.resize(VAULT_HEADER_BYTES - VAULT_SUM_BYTES, 0);
    let sum = Sha256::digest(&header);
    header.extend_from_slice(sum.get(..VAULT_SUM_BYTES).unwrap_or_default());
    header
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn state() -> (tempfile::TempDir, HomeState) {
        let home = tempfile::tempdir().unwrap();
        let state = HomeState::new(home.path());
        state.create(None).unwrap();
        (home, state)
    }

    fn progress(state: &HomeState) -> HomeProgress {
        match state.read().unwrap() {
            StoredState::Valid(progress) => progress,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn counters_only_increase() {
        let (_home, state) = state();
        state.advance_log(5, [5; 32]).unwrap();
        state.advance_log(3, [3; 32]).unwrap();
        state.advance_vault(2).unwrap();
        let log = Some(LogProgress { n: 5, hash: [5; 32], highest: 5 });
        let vault = Some(VaultProgress { least: Some(2), highest: 2 });
        assert_eq!(progress(&state), HomeProgress { log, vault });
        // A loss that is accepted keeps the highest counters.
        state.accept(1, [1; 32]).unwrap();
        let log = Some(LogProgress { n: 1, hash: [1; 32], highest: 5 });
        assert_eq!(progress(&state).log, log);
    }

    #[test]
    fn a_vault_without_a_sound_header_has_no_counters() {
        let (home, state) = state();
        let path = home.path().join("vault");
        let put = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        put(&vault_header(2, 0));
        assert_eq!(state.vault_mark().unwrap(), Some(VaultMark { counter: 2, log: 0 }));
        state.advance_vault(2).unwrap();
        let loss = || state.vault_loss(&progress(&state)).unwrap();
        assert_eq!(loss(), None);
        let mut changed = vault_header(2, 0);
        changed[20] ^= 1;
        let no_room = [vault_header(u64::MAX, 0), vault_header(2, MAX_COUNTER)];
        for bytes in no_room.iter().chain([&changed, &changed[..50].to_vec(), &Vec::new()]) {
            put(bytes);
            assert!(matches!(state.vault_mark(), Err(StateError::VaultDamaged)));
            assert_eq!(loss(), Some(StateLoss::VaultUnusable));
        }
        put(&vault_header(2, 0));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(state.vault_mark(), Err(StateError::VaultRefused(_))));
        assert_eq!(loss(), Some(StateLoss::VaultUnusable), "not an older one");
    }

    #[test]
    fn a_forged_counter_is_not_accepted() {
        let (home, state) = state();
        let path = home.path().join("vault");
        fs::write(&path, vault_header(MAX_COUNTER - 1, 0)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(state.accept(1, [1; 32]), Err(StateError::VaultDamaged)));
        fs::write(&path, vault_header(9, 0)).unwrap();
        state.accept(1, [1; 32]).unwrap();
    }

    #[test]
    fn a_read_only_key_is_locked_and_none_is_created() {
        let (home, state) = state();
        let key = home.path().join("host.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
        state.advance_log(1, [1; 32]).unwrap();
        fs::remove_file(&key).unwrap();
        assert!(state.lock().is_err() && !key.exists());
    }

    #[test]
    fn a_foreign_state_is_not_overwritten() {
        let (home, state) = state();
        let path = home.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for changed in
            [text.replace("state 1", "state 1\nlog 0 0 00"), text.replace("mac ", "mac 0"), String::new()]
        {
            fs::write(&path, changed).unwrap();
            assert_eq!(state.read().unwrap(), StoredState::Invalid);
            assert!(state.advance_log(1, [1; 32]).is_err());
        }
        fs::write(&path, &text).unwrap();
        assert_eq!(progress(&state), HomeProgress::default());
        fs::remove_file(home.path().join("host.key")).unwrap();
        assert_eq!(state.read().unwrap(), StoredState::Invalid);
        fs::remove_file(&path).unwrap();
        assert_eq!(state.read().unwrap(), StoredState::Missing);
    }
}
