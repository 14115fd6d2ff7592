//! The vault as one sealed file in a private directory, opened once and cached while it is unchanged.
//!
//! All bindings are one sealed message, and the header in front of it is authenticated with it: without the
//! key, no name, host, connector or secret can be read, changed, swapped or dropped. An older copy of the
//! whole file stays valid, so the home stores the vault's counter in `home.state`: a vault that is older or
//! missing is rejected until the operator accepts the loss.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::home_state::{HomeProgress, HomeState, StateError, StateLoss, StoredState, VaultMark};
use cofferdam_core::private_file::{self, FileError, FileFault, FileLock, FilePolicy, StagedFile};
use cofferdam_core::secret::Secret;
use zeroize::Zeroizing;

use super::binding::Bindings;
use super::error::VaultError;
use super::name::BindingName;
use super::seal::{HeaderProblem, KeyDerivation, VaultHeader};
use super::seal::{KEY_BYTES, VaultKey};
use super::unlock::{KeySources, PassphraseSource, SuppliedPassphrase};
use super::{Vault, contents};

/// Longer than any writer takes, including the derivation of a passphrase's key.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of times that the vault and `home.state` are read before a difference counts.
const READ_ATTEMPTS: u32 = 3;

/// The kind of a vault's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// A file of random bytes.
    KeyFile,
    /// A passphrase.
    Passphrase,
}

/// The new lock of a vault.
pub enum NewLock {
    /// The vault's key file, created if it does not exist.
    KeyFile,
    /// This passphrase.
    Passphrase(Arc<Secret>),
}

/// The properties of a vault that are known without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultStatus {
    /// The lock; `None` if there is no vault yet.
    pub lock: Option<LockKind>,
    /// The lock that a new vault would get.
    pub new_lock: LockKind,
    /// True if the key file exists.
    pub has_key_file: bool,
}

/// A vault file.
///
/// It is opened at the first use, and read again only when one `stat` shows another file. Opening derives the
/// key from a passphrase, which takes about a tenth of a second and 64 MiB: call it on a thread that may
/// block.
pub struct VaultFile {
    path: PathBuf,
    keys: KeySources,
    /// The time that a writer waits for another one.
    pub(super) lock_timeout: Duration,
    opened: Mutex<UnlockedVault>,
    seen: RwLock<Option<CachedBindings>>,
}

/// The state of an opened vault.
#[derive(Default)]
struct UnlockedVault {
    key: Option<VaultKey>,
    /// The contents that were read last, with their header: the same nonce means the same contents.
    last: Option<(VaultHeader, Arc<Bindings>)>,
}

/// The contents at a moment after which a change of the file is certain to be detected.
struct CachedBindings {
    stamp: Option<FileFingerprint>,
    bindings: Arc<Bindings>,
}

impl VaultFile {
    /// Creates the vault at `path`, locked by the key file next to it, `<path>.key`. Reads and writes
    /// nothing: a vault that does not exist has no bindings, and the first change creates it and its key
    /// file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let keys = KeySources::new(name(&path), path.with_extension("key"));
        Self { path, keys, lock_timeout: LOCK_TIMEOUT, opened: Mutex::default(), seen: RwLock::default() }
    }

    /// Uses another key file: 32 bytes that only its owner can read.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.keys.key_file = path.into();
        self
    }

    /// Locks with this passphrase and requires it: a vault that a key file opens is rejected, since an
    /// attacker may have put it there to read later bindings.
    #[must_use]
    pub fn passphrase(mut self, passphrase: Secret) -> Self {
        self.keys.passphrase = Some(SuppliedPassphrase::Fixed(Arc::new(passphrase)));
        self
    }

    /// Like [`passphrase`](Self::passphrase), with a passphrase that is fetched only when it is needed.
    #[must_use]
    pub fn passphrase_from(mut self, source: PassphraseSource) -> Self {
        self.keys.passphrase = Some(SuppliedPassphrase::From(source));
        self
    }

    /// Sets the source of the passphrase for the case that the vault is locked with one and none was given.
    #[must_use]
    pub fn passphrase_prompt(mut self, source: PassphraseSource) -> Self {
        self.keys.prompt = Some(source);
        self
    }

    /// Returns the properties that are known without opening the vault.
    ///
    /// # Errors
    /// The file exists and is not a vault.
    pub fn status(&self) -> Result<VaultStatus, VaultError> {
        let lock = match read_vault(&self.path)? {
            None => None,
            Some((_, bytes)) => Some(self.header(&bytes)?.0.kdf.lock()),
        };
        let new_lock = if self.keys.passphrase.is_some() { LockKind::Passphrase } else { LockKind::KeyFile };
        Ok(VaultStatus { lock, new_lock, has_key_file: self.keys.key_file.exists() })
    }

    /// Changes the lock of the vault atomically and keeps all bindings; creates an empty vault if there is
    /// none.
    ///
    /// # Errors
    /// The vault cannot be opened with its current lock, or cannot be written. It is unchanged then.
    pub fn relock(&self, lock: &NewLock) -> Result<(), VaultError> {
        // Slow work and prompts come first, before other writers have to wait.
        self.read(&mut self.opened(), false)?;
        let key = match lock {
            NewLock::KeyFile => self.keys.new_by_file()?,
            NewLock::Passphrase(passphrase) => self.keys.new_by_passphrase(passphrase)?,
        };
        let lock = VaultLock::acquire(&self.path, self.lock_timeout)?;
        let mut opened = self.opened();
        let (_, bindings) = self.read(&mut opened, false)?;
        opened.key = Some(key);
        self.write(&mut opened, bindings, &lock)
    }

    fn opened(&self) -> MutexGuard<'_, UnlockedVault> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the current contents of the file. With `insist`, the lock has to be the requested one.
    fn read(
        &self,
        opened: &mut UnlockedVault,
        insist: bool,
    ) -> Result<(Option<FileFingerprint>, Arc<Bindings>), VaultError> {
        let Some((stamp, bytes)) = self.newest()? else {
            opened.last = None;
            return Ok((None, Arc::default()));
        };
        let (header, sealed) = self.header(&bytes)?;
        if insist && self.keys.passphrase.is_some() && header.kdf == KeyDerivation::KeyFile {
            return Err(VaultError::Locked {
                message: format!(
                    "The vault ({}) is locked with a key file, and a passphrase was given.",
                    name(&self.path)
                ),
                hint: "If you did not lock it so, somebody may have replaced it. Lock it with the passphrase: `cofferdam binding lock --passphrase`; or give no passphrase.".into(),
            });
        }
        self.keys.unlock(&mut opened.key, &header)?;
        let key = opened.key.as_ref().filter(|key| key.matches(&header));
        let plain = key.and_then(|key| key.open(&header, sealed)).ok_or_else(|| self.damaged())?;
        if let Some((last, bindings)) = &opened.last
            && *last == header
        {
            return Ok((Some(stamp), Arc::clone(bindings)));
        }
        // serde's own message could quote the contents.
        let bindings = contents::read(&plain).map(Arc::new).map_err(|_| {
            let hint = "Another version of cofferdam may have written it: use that one.";
            unusable(&self.what(), "opens, and its contents are not known here", hint)
        })?;
        opened.last = Some((header, Arc::clone(&bindings)));
        Ok((Some(stamp), bindings))
    }

    /// Seals the contents and replaces the file.
    fn write(
        &self,
        opened: &mut UnlockedVault,
        bindings: Arc<Bindings>,
        lock: &VaultLock,
    ) -> Result<(), VaultError> {
        let refused = |message: &str| VaultError::Refused {
            message: format!("{message}; nothing was changed."),
            hint: "Revoke bindings that are not used.".into(),
        };
        let contents = contents::write(&bindings).map_err(|_| refused("The bindings cannot be written"))?;
        let Some(key) = &opened.key else { return Err(self.damaged()) };
        let mark = self.next_mark(opened.last.as_ref().map(|(header, _)| header))?;
        let file = key.seal(contents, mark).map_err(|problem| self.keys.none(&problem))?;
        if file.len() as u64 > MAX_BYTES {
            return Err(refused("The vault would have more than 16 MiB"));
        }
        let stamp = replace_vault(&self.path, &file, lock)?;
        failpoint::pass("vault.written");
        if let (Some(mark), Some(state)) = (mark, self.home_state())
            && let Err(error) = state.advance_vault(mark.counter)
        {
            // The vault is one change ahead of it, as after a crash. The next change catches up, or fails.
            tracing::warn!(target: "cofferdam::vault", %error, "home.state does not know of the last change of the vault");
        }
        opened.last = self.header(&file).ok().map(|(header, _)| (header, Arc::clone(&bindings)));
        self.remember(stamp, bindings);
        Ok(())
    }

    /// Returns the `home.state` next to the vault; `None` for a vault of another name.
    fn home_state(&self) -> Option<HomeState> {
        let home =
            self.path.parent().filter(|_| self.path.file_name().is_some_and(|name| name == "vault"))?;
        Some(HomeState::new(home))
    }

    /// Reads the bytes of the vault. A vault that is missing, or older than the home's state, is rejected.
    fn newest(&self) -> Result<Option<(FileFingerprint, Vec<u8>)>, VaultError> {
        let Some(state) = self.home_state() else { return read_vault(&self.path) };
        let mut tries = READ_ATTEMPTS;
        let loss = loop {
            let stored = state.read().map_err(no_state)?;
            let vault = read_vault(&self.path)?;
            let found = match &vault {
                Some((_, bytes)) => Some(self.header(bytes)?.0.mark.unwrap_or_default()),
                None => None,
            };
            let loss = match stored {
                StoredState::Valid(progress) => progress.vault_loss(found),
                StoredState::Invalid => Some(StateLoss::StateInvalid),
                // The home was created before `home.state` existed; its vault has no counter.
                StoredState::Missing => {
                    found.filter(|mark| mark.counter > 0).map(|_| StateLoss::StateMissing)
                }
            };
            tries -= 1;
            match loss {
                None => return Ok(vault),
                Some(loss) if tries == 0 => break loss,
                // Another process may have written one of the two in between.
                Some(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let hint = "Put the newest copy back. If there is none, `cofferdam audit verify --accept-loss` goes on with \
                    what is there: revoke and bind again what may have been changed since.";
        Err(VaultError::Unusable { message: format!("The vault is not used: {loss}."), hint: hint.into() })
    }

    /// Returns the counters of the next version of the vault; the lock must be held.
    fn next_mark(&self, last: Option<&VaultHeader>) -> Result<Option<VaultMark>, VaultError> {
        let Some(state) = self.home_state() else { return Ok(None) };
        let found = last.map(|header| header.mark.unwrap_or_default());
        state.create(None).map_err(no_state)?;
        if let Some(mark) = found {
            // After a crash it may be one change behind, but no more.
            state.advance_vault(mark.counter).map_err(no_state)?;
        }
        match state.read().map_err(no_state)? {
            StoredState::Valid(progress) => Ok(Some(HomeProgress::next_mark(&progress, found))),
            StoredState::Missing | StoredState::Invalid => Err(no_state(StateError::Unusable)),
        }
    }

    fn remember(&self, stamp: Option<FileFingerprint>, bindings: Arc<Bindings>) {
        let sure = stamp.is_none_or(|stamp| stamp.is_stable());
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) =
            sure.then_some(CachedBindings { stamp, bindings });
    }

    fn header<'f>(&self, file: &'f [u8]) -> Result<(VaultHeader, &'f [u8]), VaultError> {
        VaultHeader::read(file).map_err(|problem| {
            let copy = "Put a copy of it back, or move it away and bind anew.";
            let (how, hint) = match problem {
                HeaderProblem::Empty => ("is empty".to_owned(), copy),
                HeaderProblem::Foreign => ("is not a vault".to_owned(), copy),
                HeaderProblem::Version(version) => (
                    format!("is of format version {version}, and this program knows up to 2"),
                    "Use a newer cofferdam.",
                ),
                HeaderProblem::Damaged => ("is damaged: it was cut short or changed".to_owned(), copy),
                HeaderProblem::Excessive => {
                    ("asks for more memory or time than any vault does".to_owned(), copy)
                }
            };
            unusable(&self.what(), &how, hint)
        })
    }

    fn what(&self) -> String {
        format!("The vault ({})", name(&self.path))
    }

    fn damaged(&self) -> VaultError {
        let hint = "Put a copy of it back, or move it away and bind anew.";
        unusable(&self.what(), "is damaged: it was cut short or changed after it was sealed", hint)
    }

    /// Returns the path of the vault.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the key file, which may not exist.
    #[must_use]
    pub fn key_file_path(&self) -> &Path {
        &self.keys.key_file
    }
}

/// Reports that `home.state` cannot be read or written. Without it a vault is neither used nor changed.
fn no_state(error: StateError) -> VaultError {
    let source = match error {
        StateError::Io(error) => error,
        other => std::io::Error::other(other),
    };
    VaultError::Io { message: format!("The vault is neither used nor changed: {source}."), source }
}

impl KeyDerivation {
    fn lock(self) -> LockKind {
        match self {
            Self::KeyFile => LockKind::KeyFile,
            Self::Argon2id { .. } => LockKind::Passphrase,
        }
    }
}

impl Vault for VaultFile {
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError> {
        if let Some(bindings) = self.known() {
            return Ok(bindings);
        }
        let mut opened = self.opened();
        // Another thread may have read it meanwhile.
        if let Some(bindings) = self.known() {
            return Ok(bindings);
        }
        let (stamp, bindings) = self.read(&mut opened, true)?;
        self.remember(stamp, Arc::clone(&bindings));
        Ok(bindings)
    }

    fn known(&self) -> Option<Arc<Bindings>> {
        let stamp = private_file::fingerprint_of(&self.path);
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().filter(|seen| seen.stamp == stamp).map(|seen| Arc::clone(&seen.bindings))
    }

    fn check_writable(&self, _: &BindingName) -> Result<(), VaultError> {
        let lock = VaultLock::acquire(&self.path, self.lock_timeout)?;
        check_writable(&self.path, &lock)
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        // Slow work and prompts come first, before other writers have to wait.
        self.read(&mut self.opened(), true)?;
        let lock = VaultLock::acquire(&self.path, self.lock_timeout)?;
        let mut opened = self.opened();
        let (stamp, bindings) = self.read(&mut opened, true)?;
        let mut next = (*bindings).clone();
        change(&mut next)?;
        if contents::is_same(&bindings, &next) {
            self.remember(stamp, bindings);
            return Ok(());
        }
        if stamp.is_none() {
            opened.key = Some(self.keys.new_key()?);
        }
        self.write(&mut opened, Arc::new(next), &lock)
    }
}

/// The largest vault, in bytes: thousands of bindings.
pub(super) const MAX_BYTES: u64 = 16 * 1024 * 1024;

const VAULT: FilePolicy = FilePolicy::secret(MAX_BYTES);

/// The operator may store the key elsewhere and link it, or have a service manager provide it.
const KEY: FilePolicy = FilePolicy::secret(u64::MAX).named().handed_over();

const NEW_KEY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The bytes that a change may add to a vault: new tokens, which are rarely longer.
const SLACK_BYTES: u64 = 64 * 1024;

/// Reads the current vault file; `None` if there is none.
pub(super) fn read_vault(path: &Path) -> Result<Option<(FileFingerprint, Vec<u8>)>, VaultError> {
    let what = format!("The vault ({})", name(path));
    let failed = |error| unreadable(&what, error);
    let Some(file) = private_file::open(path, &VAULT).map_err(failed)? else { return Ok(None) };
    let stamp = file.fingerprint();
    Ok(Some((stamp, file.read().map_err(failed)?)))
}

/// Reads the bytes of a key file; `None` if there is none.
pub(super) fn read_key(path: &Path) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, VaultError> {
    let what = format!("The vault's key file ({})", name(path));
    let failed = |error| unreadable(&what, error);
    let Some(file) = private_file::open(path, &KEY).map_err(failed)? else { return Ok(None) };
    file.read_key()
        .map_err(failed)?
        .map(Some)
        .ok_or_else(|| unusable(&what, "does not have 32 bytes", "Put the key file back from a copy of it."))
}

/// Creates a key file of random bytes, or returns the key of another process that was faster.
pub(super) fn make_key(path: &Path) -> Result<Zeroizing<[u8; KEY_BYTES]>, VaultError> {
    let failed = |error| unwritable("The vault's key file", path, error);
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(key.as_mut_slice()).map_err(|error| failed(io::Error::from(error).into()))?;
    match private_file::create_new(path, key.as_slice(), &NEW_KEY) {
        Ok(()) => Ok(key),
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Replaces the vault by `bytes`. If the process is killed at any point, either the old or the new vault
/// remains.
pub(super) fn replace_vault(
    path: &Path,
    bytes: &[u8],
    lock: &VaultLock,
) -> Result<Option<FileFingerprint>, VaultError> {
    let write = || -> Result<(), FileError> {
        let mut staged = StagedFile::begin_locked(path, &VAULT, &lock.0)?;
        staged.write_all(bytes)?;
        staged.replace()
    };
    write().map_err(|error| unwritable("The vault", path, error))?;
    Ok(private_file::fingerprint_of(path))
}

/// Returns whether a vault of about the same size could be written.
pub(super) fn check_writable(path: &Path, lock: &VaultLock) -> Result<(), VaultError> {
    let size = fs::metadata(path).map_or(0, |meta| meta.len().min(MAX_BYTES)) + SLACK_BYTES;
    let write = || -> Result<(), FileError> {
        let mut staged = StagedFile::begin_locked(path, &VAULT, &lock.0)?;
        staged.write_all(&vec![0; usize::try_from(size).unwrap_or_default()])?;
        Ok(staged.sync()?)
    };
    write().map_err(|error| unwritable("The vault", path, error))
}

/// Held while the vault changes.
#[derive(Debug)]
pub(super) struct VaultLock(FileLock);

impl VaultLock {
    /// Waits until no other process is changing the vault.
    pub(super) fn acquire(vault: &Path, patience: Duration) -> Result<Self, VaultError> {
        let lock = FileLock::acquire(&vault.with_extension("lock"), patience);
        match lock.map_err(|error| unwritable("The vault", vault, error))? {
            Some(lock) => Ok(Self(lock)),
            None => Err(VaultError::Unusable {
                message: format!(
                    "Another process has been changing the vault ({}) for {} seconds; nothing was changed.",
                    name(vault),
                    patience.as_secs()
                ),
                hint: "Try again when it has ended; `fuser` on the lock file beside the vault names it."
                    .into(),
            }),
        }
    }
}

/// Returns the file name without directories: messages reach callers, which must not learn about directories.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    cofferdam_core::failure::sanitize_line(&name, 100)
}

pub(super) fn unusable(what: &str, how: &str, hint: &str) -> VaultError {
    VaultError::Unusable { message: format!("{what} {how}; it was left as it is."), hint: hint.to_owned() }
}

fn unreadable(what: &str, error: FileError) -> VaultError {
    match error {
        FileError::Refused(fault) => refused(what, &fault),
        FileError::Io(source) | FileError::Unsynced(source) => {
            VaultError::Io { message: format!("{what} cannot be read: {}.", source.kind()), source }
        }
    }
}

fn unwritable(what: &str, path: &Path, error: FileError) -> VaultError {
    let what = format!("{what} ({})", name(path));
    match error {
        FileError::Refused(fault) => refused(&what, &fault),
        FileError::Unsynced(source) => {
            let message = format!(
                "{what} was changed, but the system does not say that it will survive a power cut: {}.",
                source.kind()
            );
            VaultError::Io { message, source }
        }
        FileError::Io(source) => {
            let message = format!("{what} cannot be written: {}; it is as it was.", source.kind());
            VaultError::Io { message, source }
        }
    }
}

fn refused(what: &str, fault: &FileFault) -> VaultError {
    unusable(what, &fault.to_string(), fault.fix())
}
