//! The vault as one sealed file in a directory of its owner's, opened once and kept while it is unchanged.
//!
//! All that is bound is one sealed message, and the header in front of it is authenticated with it: no
//! name, host, connector or secret can be read, changed, swapped or dropped without the key. An older copy of the whole
//! file is as valid as it ever was, and so the home remembers in `home.state` how far its vault had come: one that is
//! older or missing is refused until the operator accepts the loss.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::home_state::{HomeState, Loss, Progress, StateError, Stored, VaultMark};
use cofferdam_core::private_file;
use cofferdam_core::secret::Secret;
use cofferdam_core::stamp::FileStamp;

use super::bindings::Bindings;
use super::disk::{self, VaultLock, unusable};
use super::error::VaultError;
use super::header::{Header, HeaderProblem, Kdf};
use super::seal::Key;
use super::unlock::{Given, Keys, PassphraseSource};
use super::{Vault, contents};

/// Longer than any writer takes, its passphrase's key included.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of times that the vault and `home.state` are read before a difference counts.
const TRIES: u32 = 3;

/// What locks a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// A file of random bytes.
    KeyFile,
    /// A passphrase.
    Passphrase,
}

/// What is to lock a vault from now on.
pub enum NewLock {
    /// The vault's key file, made if it is not there.
    KeyFile,
    /// This passphrase.
    Passphrase(Arc<Secret>),
}

/// What can be said of a vault without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultStatus {
    /// What locks it; none where there is no vault yet.
    pub lock: Option<LockKind>,
    /// What a new one would be locked by.
    pub new_lock: LockKind,
    /// Whether the key file is there.
    pub has_key_file: bool,
}

/// A vault file.
///
/// It is opened at the first use, and read again only when one `stat` shows another file. Opening derives
/// the key from a passphrase, which takes about a tenth of a second and 64 MiB: do it on a thread that may block.
pub struct VaultFile {
    path: PathBuf,
    keys: Keys,
    /// How long a writer waits for the one before it.
    pub(super) patience: Duration,
    opened: Mutex<Opened>,
    seen: RwLock<Option<Seen>>,
}

/// What opening left behind.
#[derive(Default)]
struct Opened {
    key: Option<Key>,
    /// The nonce of the contents that were read last: the same one is the same contents.
    last: Option<(Header, Arc<Bindings>)>,
}

/// The contents at a moment after which a change of the file is sure to show.
struct Seen {
    stamp: Option<FileStamp>,
    bindings: Arc<Bindings>,
}

impl VaultFile {
    /// The vault at `path`, locked by the key file beside it, `<path>.key`. Touches nothing: a vault that
    /// does not exist binds nothing, and is made by the first change, as is the key file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let keys = Keys::new(disk::name(&path), path.with_extension("key"));
        Self { path, keys, patience: PATIENCE, opened: Mutex::default(), seen: RwLock::default() }
    }

    /// Uses another key file: 32 bytes that its owner alone can read.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.keys.key_file = path.into();
        self
    }

    /// Locks with this passphrase, and insists on it: a vault that a key file opens is refused, since
    /// somebody else may have put it there to read what is bound next.
    #[must_use]
    pub fn passphrase(mut self, passphrase: Secret) -> Self {
        self.keys.passphrase = Some(Given::Fixed(Arc::new(passphrase)));
        self
    }

    /// The same, with a passphrase that is fetched when it is needed, and not before.
    #[must_use]
    pub fn passphrase_from(mut self, source: PassphraseSource) -> Self {
        self.keys.passphrase = Some(Given::From(source));
        self
    }

    /// Where the passphrase comes from if the vault turns out to be locked with one and none was given.
    #[must_use]
    pub fn ask(mut self, source: PassphraseSource) -> Self {
        self.keys.ask = Some(source);
        self
    }

    /// What can be said without opening it.
    ///
    /// # Errors
    /// It is there and is no vault.
    pub fn status(&self) -> Result<VaultStatus, VaultError> {
        let lock = match disk::read_vault(&self.path)? {
            None => None,
            Some((_, bytes)) => Some(self.header(&bytes)?.0.kdf.lock()),
        };
        let new_lock = if self.keys.passphrase.is_some() { LockKind::Passphrase } else { LockKind::KeyFile };
        Ok(VaultStatus { lock, new_lock, has_key_file: self.keys.key_file.exists() })
    }

    /// Locks the vault anew, with all that is bound, in one step; makes an empty one where there is none.
    ///
    /// # Errors
    /// It cannot be opened as it is locked now, or not be written; it is as it was then.
    pub fn relock(&self, lock: &NewLock) -> Result<(), VaultError> {
        // Whatever takes long, or asks somebody, is done before others have to wait.
        self.read(&mut self.opened(), false)?;
        let key = match lock {
            NewLock::KeyFile => self.keys.new_by_file()?,
            NewLock::Passphrase(passphrase) => self.keys.new_by_passphrase(passphrase)?,
        };
        let lock = VaultLock::acquire(&self.path, self.patience)?;
        let mut opened = self.opened();
        let (_, bindings) = self.read(&mut opened, false)?;
        opened.key = Some(key);
        self.write(&mut opened, bindings, &lock)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file holds now. With `insist`, the lock has to be the one that was asked for.
    fn read(
        &self,
        opened: &mut Opened,
        insist: bool,
    ) -> Result<(Option<FileStamp>, Arc<Bindings>), VaultError> {
        let Some((stamp, bytes)) = self.newest()? else {
            opened.last = None;
            return Ok((None, Arc::default()));
        };
        let (header, sealed) = self.header(&bytes)?;
        if insist && self.keys.passphrase.is_some() && header.kdf == Kdf::KeyFile {
            return Err(VaultError::Locked {
                message: format!(
                    "The vault ({}) is locked with a key file, and a passphrase was given.",
                    disk::name(&self.path)
                ),
                hint: "If you did not lock it so, somebody may have replaced it. Lock it with the passphrase: `cofferdam binding lock --passphrase`; or give no passphrase.".into(),
            });
        }
        self.keys.unlock(&mut opened.key, &header)?;
        let key = opened.key.as_ref().filter(|key| key.fits(&header));
        let plain = key.and_then(|key| key.open(&header, sealed)).ok_or_else(|| self.damaged())?;
        if let Some((last, bindings)) = &opened.last
            && *last == header
        {
            return Ok((Some(stamp), Arc::clone(bindings)));
        }
        // What serde says of it could quote it.
        let bindings = contents::read(&plain).map(Arc::new).map_err(|_| {
            let hint = "Another version of cofferdam may have written it: use that one.";
            unusable(&self.what(), "opens, and its contents are not known here", hint)
        })?;
        opened.last = Some((header, Arc::clone(&bindings)));
        Ok((Some(stamp), bindings))
    }

    /// Seals and replaces the file.
    fn write(
        &self,
        opened: &mut Opened,
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
        if file.len() as u64 > disk::MAX_BYTES {
            return Err(refused("The vault would have more than 16 MiB"));
        }
        let stamp = disk::replace_vault(&self.path, &file, lock)?;
        failpoint::pass("vault.written");
        if let (Some(mark), Some(state)) = (mark, self.home_state())
            && let Err(error) = state.advance_vault(mark.counter)
        {
            // The vault is one ahead of it, as after a crash. The next change catches up, or fails.
            tracing::warn!(target: "cofferdam::vault", %error, "home.state does not know of the last change of the vault");
        }
        opened.last = self.header(&file).ok().map(|(header, _)| (header, Arc::clone(&bindings)));
        self.remember(stamp, bindings);
        Ok(())
    }

    /// Returns the `home.state` beside the vault; none for a vault of another name.
    fn home_state(&self) -> Option<HomeState> {
        let home =
            self.path.parent().filter(|_| self.path.file_name().is_some_and(|name| name == "vault"))?;
        Some(HomeState::of(home))
    }

    /// The bytes of the vault. One that is missing or older than the home remembers is refused.
    fn newest(&self) -> Result<Option<(FileStamp, Vec<u8>)>, VaultError> {
        let Some(state) = self.home_state() else { return disk::read_vault(&self.path) };
        let mut tries = TRIES;
        let loss = loop {
            let stored = state.read().map_err(no_state)?;
            let vault = disk::read_vault(&self.path)?;
            let found = match &vault {
                Some((_, bytes)) => Some(self.header(bytes)?.0.mark.unwrap_or_default()),
                None => None,
            };
            let loss = match stored {
                Stored::Valid(progress) => progress.vault_loss(found),
                Stored::Invalid => Some(Loss::StateInvalid),
                // The home is older than `home.state`; its vault has no counter.
                Stored::Missing => found.filter(|mark| mark.counter > 0).map(|_| Loss::StateMissing),
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

    /// The counters of the vault that is written next; the lock must be held.
    fn next_mark(&self, last: Option<&Header>) -> Result<Option<VaultMark>, VaultError> {
        let Some(state) = self.home_state() else { return Ok(None) };
        let found = last.map(|header| header.mark.unwrap_or_default());
        state.create(None).map_err(no_state)?;
        if let Some(mark) = found {
            // After a crash it may be behind by one change, and by no more.
            state.advance_vault(mark.counter).map_err(no_state)?;
        }
        match state.read().map_err(no_state)? {
            Stored::Valid(progress) => Ok(Some(Progress::next_mark(&progress, found))),
            Stored::Missing | Stored::Invalid => Err(no_state(StateError::Unusable)),
        }
    }

    fn remember(&self, stamp: Option<FileStamp>, bindings: Arc<Bindings>) {
        let sure = stamp.is_none_or(|stamp| stamp.is_settled());
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = sure.then_some(Seen { stamp, bindings });
    }

    fn header<'f>(&self, file: &'f [u8]) -> Result<(Header, &'f [u8]), VaultError> {
        Header::read(file).map_err(|problem| {
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
        format!("The vault ({})", disk::name(&self.path))
    }

    fn damaged(&self) -> VaultError {
        let hint = "Put a copy of it back, or move it away and bind anew.";
        unusable(&self.what(), "is damaged: it was cut short or changed after it was sealed", hint)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its key file is, or would be.
    #[must_use]
    pub fn key_file_path(&self) -> &Path {
        &self.keys.key_file
    }
}

/// `home.state` cannot be read or written, without which a vault is neither used nor changed.
fn no_state(error: StateError) -> VaultError {
    let source = match error {
        StateError::Io(error) => error,
        other => std::io::Error::other(other),
    };
    VaultError::Io { message: format!("The vault is neither used nor changed: {source}."), source }
}

/// Whether both would be written alike.
fn alike(one: &Bindings, other: &Bindings) -> bool {
    match (contents::write(one), contents::write(other)) {
        (Ok(one), Ok(other)) => *one == *other,
        _ => false,
    }
}

impl Kdf {
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
        // Whoever was first has read it meanwhile.
        if let Some(bindings) = self.known() {
            return Ok(bindings);
        }
        let (stamp, bindings) = self.read(&mut opened, true)?;
        self.remember(stamp, Arc::clone(&bindings));
        Ok(bindings)
    }

    fn known(&self) -> Option<Arc<Bindings>> {
        let stamp = private_file::stamp_of(&self.path);
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().filter(|seen| seen.stamp == stamp).map(|seen| Arc::clone(&seen.bindings))
    }

    fn check_writable(&self) -> Result<(), VaultError> {
        let lock = VaultLock::acquire(&self.path, self.patience)?;
        disk::check_writable(&self.path, &lock)
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        // Whatever takes long, or asks somebody, is done before others have to wait.
        self.read(&mut self.opened(), true)?;
        let lock = VaultLock::acquire(&self.path, self.patience)?;
        let mut opened = self.opened();
        let (stamp, bindings) = self.read(&mut opened, true)?;
        let mut next = (*bindings).clone();
        change(&mut next)?;
        if alike(&bindings, &next) {
            self.remember(stamp, bindings);
            return Ok(());
        }
        if stamp.is_none() {
            opened.key = Some(self.keys.new_key()?);
        }
        self.write(&mut opened, Arc::new(next), &lock)
    }
}
