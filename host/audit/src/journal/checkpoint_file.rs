//! The file with the signed statement about all journals, and its comparison with what the home remembers.
//!
//! The file is changed under a lock that processes of the home share. It is on the disk before `home.state` remembers
//! it, so that after a power cut `home.state` is never ahead.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::home_state::{HomeState, StateLoss, StoredState};
use cofferdam_core::host_key;
use cofferdam_core::private_file::{self, FileError, FileFault, FileLock, FilePolicy};
use jiff::Timestamp;

use super::line::ChainHead;
use super::log_checkpoint::{LogCheckpoint, SignedJournal, StoredCheckpoint, begin_journals, end_journals};
use super::segment::hash_of;
use crate::error::{AuditError, AuditErrorKind};
use crate::home_memory::HomeMemory;
use crate::note::{NoteKey, NoteSigner};

/// The file, and the lock of those that change it, in the directory of the journals.
const FILE: &str = "checkpoint";
const LOCK: &str = "checkpoint.lock";

/// The most bytes of a statement: room for thousands of writers.
const POLICY: FilePolicy = FilePolicy::trusted(4 * 1024 * 1024);

/// A home is written while it is compared: a loss is one that is found each time.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);

/// The maximum wait of a process for its turn to sign. It is longer than for other files: a process takes turns with every
/// other one, and each of them writes to the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The signed statement of a home, and the state that remembers it, for a process that signs.
pub(super) struct CheckpointFile {
    pub(super) reader: CheckpointReader,
    pub(super) signer: NoteSigner,
}

/// The same for a process that only reads.
pub(super) struct CheckpointReader {
    root: PathBuf,
    state: HomeState,
    /// None if `host.key` cannot be used.
    key: Option<NoteKey>,
}

impl CheckpointFile {
    pub(super) fn new(home: &Path, root: &Path, host_key: &[u8; 32]) -> Self {
        let signer = NoteSigner::new(host_key);
        let (root, state, key) = (root.to_owned(), HomeState::new(home), Some(signer.key()));
        Self { reader: CheckpointReader { root, state, key }, signer }
    }

    /// Signs for a writer that has no entry yet, unless that was done.
    pub(super) fn register(&self, writer: &str, now: Timestamp) -> Result<(), AuditError> {
        match self.reader.read()? {
            StoredCheckpoint::Valid(checkpoint) if checkpoint.journals.contains_key(writer) => Ok(()),
            _ => self.sign(&[(writer, ChainHead::EMPTY)], now).map(drop),
        }
    }

    /// Signs that the journals of these writers have these heads, and returns the note.
    pub(super) fn sign(&self, heads: &[(&str, ChainHead)], now: Timestamp) -> Result<String, AuditError> {
        self.change(now, |journals| end_journals(journals, heads))
    }

    /// Signs that journals begin after these entries, and returns the note.
    pub(super) fn prune(
        &self,
        bases: &BTreeMap<String, ChainHead>,
        now: Timestamp,
    ) -> Result<String, AuditError> {
        self.change(now, |journals| begin_journals(journals, bases))
    }

    /// Signs a changed statement.
    fn change(
        &self,
        now: Timestamp,
        change: impl FnOnce(&mut BTreeMap<String, SignedJournal>),
    ) -> Result<String, AuditError> {
        let _lock = self.lock()?;
        let (stored, memory) = (self.reader.read()?, HomeMemory::read(&self.reader.state)?);
        let checkpoint = stored.signable(memory.is_new(), "audit/checkpoint")?;
        // A statement over a loss would grow past what the home remembers, and hide it.
        let progress = memory.progress(checkpoint.as_ref());
        let progress = progress.map_err(|loss| AuditError::new(AuditErrorKind::Tampered, loss))?;
        if progress.is_none() {
            // Before the first statement: from then on one without a state is a loss.
            self.reader.state.create(None)?;
        }
        let mut journals = checkpoint.map(|checkpoint| checkpoint.journals).unwrap_or_default();
        change(&mut journals);
        let checkpoint = self.statement(journals, now);
        let note = self.write(&checkpoint)?;
        self.reader.state.advance_log(checkpoint.size(), checkpoint.root())?;
        Ok(note)
    }

    /// Signs for the journals as they are, whatever was signed before: the operator accepts that.
    pub(super) fn accept(
        &self,
        journals: BTreeMap<String, SignedJournal>,
        now: Timestamp,
    ) -> Result<String, AuditError> {
        let _lock = self.lock()?;
        let checkpoint = self.statement(journals, now);
        let note = self.write(&checkpoint)?;
        self.reader.state.accept(checkpoint.size(), checkpoint.root())?;
        Ok(note)
    }

    /// Returns the journals of the statement in the file; none if that is missing or was changed.
    pub(super) fn journals(&self) -> Result<Option<BTreeMap<String, SignedJournal>>, AuditError> {
        Ok(self.reader.read()?.valid().map(|checkpoint| checkpoint.journals))
    }

    fn lock(&self) -> Result<FileLock, AuditError> {
        let lock = FileLock::acquire(&self.reader.root.join(LOCK), PATIENCE);
        let lock = lock.map_err(|error| AuditError::from_file(LOCK, error))?;
        lock.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "another process signs"))
    }

    fn statement(&self, journals: BTreeMap<String, SignedJournal>, at: Timestamp) -> LogCheckpoint {
        let vault = match self.reader.state.read() {
            Ok(StoredState::Valid(progress)) => progress.vault.map_or(0, |vault| vault.highest),
            _ => 0,
        };
        LogCheckpoint { at, vault: Some(vault), journals, export: None }
    }

    fn write(&self, checkpoint: &LogCheckpoint) -> Result<String, AuditError> {
        let note = checkpoint.sign(&self.signer);
        let path = self.reader.root.join(FILE);
        private_file::replace(&path, note.as_bytes(), &POLICY).map_err(io::Error::from)?;
        failpoint::pass("checkpoint.written");
        Ok(note)
    }
}

/// Returns the text of the file; none if there is no file, an empty one if a host cannot have written it.
pub(super) fn text(root: &Path) -> Result<Option<String>, AuditError> {
    match private_file::read(&root.join(FILE), &POLICY) {
        Ok(bytes) => Ok(bytes.map(|bytes| String::from_utf8(bytes).unwrap_or_default())),
        // The host never made it.
        Err(FileError::Refused(
            FileFault::SymbolicLink | FileFault::NotRegular | FileFault::TooLarge { .. },
        )) => Ok(Some(String::new())),
        Err(error) => Err(AuditError::from_file(FILE, error)),
    }
}

impl CheckpointReader {
    pub(super) fn new(home: &Path, root: &Path) -> Self {
        let key = host_key::read(&home.join("host.key")).ok().map(|key| NoteSigner::new(&key).key());
        Self { root: root.to_owned(), state: HomeState::new(home), key }
    }

    /// Returns the signed ends of journals; none if the statement is missing or was changed.
    pub(super) fn heads(&self) -> Result<BTreeMap<String, ChainHead>, AuditError> {
        let journals = self.read()?.valid().map(|checkpoint| checkpoint.journals).unwrap_or_default();
        Ok(journals.into_iter().map(|(writer, journal)| (writer, journal.head)).collect())
    }

    fn read(&self) -> Result<StoredCheckpoint, AuditError> {
        Ok(StoredCheckpoint::read(text(&self.root)?.as_deref(), self.key.as_ref()))
    }

    /// Checks that the vault can be compared with what the home remembers.
    pub(super) fn check_vault(&self) -> Result<(), AuditError> {
        Ok(self.state.vault_mark().map(drop)?)
    }

    /// Returns what is missing of the journals, or beside them, as far as the home remembers.
    pub(super) fn loss(&self) -> Result<Option<StateLoss>, AuditError> {
        for _ in 1..TRIES {
            if self.loss_now()?.is_none() {
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
        self.loss_now()
    }

    fn loss_now(&self) -> Result<Option<StateLoss>, AuditError> {
        // In this order: what is read later is never behind what it is compared with.
        let memory = HomeMemory::read(&self.state)?;
        let checkpoint = self.read()?.valid();
        let progress = match memory.progress(checkpoint.as_ref()) {
            Ok(Some(progress)) => progress,
            Ok(None) => return Ok(None),
            Err(loss) => return Ok(Some(loss)),
        };
        for (writer, SignedJournal { head, base }) in
            checkpoint.iter().flat_map(|checkpoint| &checkpoint.journals)
        {
            if head.n == base.n {
                continue;
            }
            match hash_of(&self.root.join(writer), head.n)? {
                Some(hash) if hash == head.hash => {}
                Some(_) => return Ok(Some(StateLoss::LogOther(head.n))),
                None => return Ok(Some(StateLoss::LogOlder(head.n))),
            }
        }
        Ok(self.state.vault_loss(&progress)?)
    }
}
