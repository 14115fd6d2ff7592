//! The file with the signed statement about all journals, and its comparison with what the home remembers.
//!
//! The file is changed under a lock that processes of the home share. It is on the disk before `home.state` remembers
//! it, so that after a power cut `home.state` is never ahead.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::home_state::{HomeState, LogProgress, StateError, StateLoss, StoredState};
use cofferdam_core::private_file::{self, FileError, FileFault, FileLock, FilePolicy, StagedFile};
use jiff::Timestamp;

use super::line::ChainHead;
use super::log_checkpoint::{LogCheckpoint, SignedJournal};
use super::segment::hash_of;
use crate::error::{AuditError, AuditErrorKind};
use crate::note::NoteSigner;

/// The file, and the lock of those that change it, in the directory of the journals.
const FILE: &str = "checkpoint";
const LOCK: &str = "checkpoint.lock";

/// The most bytes of a statement: room for thousands of writers.
const POLICY: FilePolicy = FilePolicy::trusted(4 * 1024 * 1024);

/// A home is written while it is compared: a loss is one that is found each time.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);

/// The signed statement of a home, and the state that remembers it.
pub(super) struct CheckpointFile {
    root: PathBuf,
    state: HomeState,
    signer: NoteSigner,
    patience: Duration,
}

/// The content of the file.
enum StoredCheckpoint {
    Missing,
    /// Something that this host did not sign.
    Invalid,
    Valid(LogCheckpoint),
}

impl CheckpointFile {
    pub(super) fn new(home: &Path, root: &Path, host_key: &[u8; 32], patience: Duration) -> Self {
        let (state, signer) = (HomeState::new(home), NoteSigner::new(host_key));
        Self { root: root.to_owned(), state, signer, patience }
    }

    fn read(&self) -> Result<StoredCheckpoint, AuditError> {
        let bytes = match private_file::read(&self.root.join(FILE), &POLICY) {
            Ok(None) => return Ok(StoredCheckpoint::Missing),
            Ok(Some(bytes)) => bytes,
            // The host never made it.
            Err(FileError::Refused(
                FileFault::SymbolicLink | FileFault::NotRegular | FileFault::TooLarge { .. },
            )) => return Ok(StoredCheckpoint::Invalid),
            Err(error) => return Err(AuditError::from_file(FILE, error)),
        };
        let note = std::str::from_utf8(&bytes).ok();
        let read = note.and_then(|note| LogCheckpoint::read(note, &self.signer.key()).ok());
        Ok(read.map_or(StoredCheckpoint::Invalid, StoredCheckpoint::Valid))
    }

    /// Signs for a writer that has no entry yet, unless that was done.
    pub(super) fn register(&self, writer: &str, now: Timestamp) -> Result<(), AuditError> {
        match self.read()? {
            StoredCheckpoint::Valid(checkpoint) if checkpoint.journals.contains_key(writer) => Ok(()),
            _ => self.sign(writer, ChainHead::EMPTY, now).map(drop),
        }
    }

    /// Signs that this writer's journal has this head, and returns the note.
    ///
    /// A statement that is missing or was changed is evidence, and stays as it is.
    pub(super) fn sign(&self, writer: &str, head: ChainHead, now: Timestamp) -> Result<String, AuditError> {
        let lock = FileLock::acquire(&self.root.join(LOCK), self.patience);
        let lock = lock.map_err(|error| AuditError::from_file(LOCK, error))?;
        let _lock = lock.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "another process signs"))?;
        let mut journals = match self.read()? {
            StoredCheckpoint::Valid(checkpoint) => checkpoint.journals,
            StoredCheckpoint::Missing if self.is_new()? => BTreeMap::new(),
            StoredCheckpoint::Missing => return Err(self.unsignable("was removed")),
            StoredCheckpoint::Invalid => return Err(self.unsignable("was changed")),
        };
        let empty = SignedJournal { head: ChainHead::EMPTY, base: ChainHead::EMPTY };
        let journal = journals.entry(writer.to_owned()).or_insert(empty);
        if journal.head.n <= head.n {
            journal.head = head;
        }
        let vault = match self.state.read() {
            Ok(StoredState::Valid(progress)) => progress.vault.map_or(0, |vault| vault.highest),
            _ => 0,
        };
        let checkpoint = LogCheckpoint { at: now, vault: Some(vault), journals };
        let note = checkpoint.sign(&self.signer);
        let mut file = StagedFile::begin(&self.root.join(FILE), &POLICY)
            .map_err(|error| AuditError::from_io(error.into()))?;
        file.write_all(note.as_bytes()).map_err(AuditError::from_io)?;
        file.replace().map_err(|error| AuditError::from_io(error.into()))?;
        failpoint::pass("checkpoint.written");
        self.remember(&checkpoint)?;
        Ok(note)
    }

    /// Has the home remember the statement.
    fn remember(&self, checkpoint: &LogCheckpoint) -> Result<(), AuditError> {
        let (n, hash) = (checkpoint.size(), checkpoint.root());
        if let StoredState::Missing = self.state.read().map_err(AuditError::from_state)? {
            let log = LogProgress { n, hash, highest: n };
            return self.state.create(Some(log)).map_err(AuditError::from_state);
        }
        self.state.advance_log(n, hash).map_err(AuditError::from_state)
    }

    /// Returns true if the home remembers no log yet.
    fn is_new(&self) -> Result<bool, AuditError> {
        match self.state.read().map_err(AuditError::from_state)? {
            StoredState::Missing => Ok(true),
            StoredState::Valid(progress) => Ok(progress.log.is_none_or(|log| log.n == 0)),
            StoredState::Invalid => Ok(false),
        }
    }

    fn unsignable(&self, what: &str) -> AuditError {
        let what =
            format_args!("audit/{FILE} {what}, and is not made again; `cofferdam audit verify` says more");
        AuditError::new(AuditErrorKind::Tampered, what)
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
        let vault_seen = self.state.has_counted_vault();
        let stored = self.state.read().map_err(AuditError::from_state)?;
        let checkpoint = match self.read()? {
            StoredCheckpoint::Valid(checkpoint) => Some(checkpoint),
            StoredCheckpoint::Missing | StoredCheckpoint::Invalid => None,
        };
        let signed_vault = checkpoint.as_ref().and_then(|checkpoint| checkpoint.vault);
        let progress = match stored {
            StoredState::Valid(progress) => progress,
            StoredState::Invalid => return Ok(Some(StateLoss::StateInvalid)),
            StoredState::Missing => match vault_seen {
                Ok(false) if checkpoint.is_none() => return Ok(None),
                Ok(_) => return Ok(Some(StateLoss::StateMissing)),
                // It may have counters: nothing says that the home is a new one.
                Err(StateError::VaultRefused(_) | StateError::VaultDamaged) => {
                    return Ok(Some(StateLoss::VaultUnusable));
                }
                Err(error) => return Err(AuditError::from_state(error)),
            },
        };
        let highest_vault = progress.vault.map_or(0, |vault| vault.highest);
        if signed_vault.is_some_and(|signed| signed > highest_vault) {
            return Ok(Some(StateLoss::StateOlder));
        }
        if let Some(log) = progress.log {
            let found = checkpoint.as_ref().map_or(0, LogCheckpoint::size);
            if log.n > found {
                return Ok(Some(StateLoss::LogOlder { remembered: log.n, found }));
            }
            if checkpoint.as_ref().is_some_and(|it| it.size() == log.n && it.root() != log.hash) {
                return Ok(Some(StateLoss::LogOther(log.n)));
            }
        }
        for (writer, SignedJournal { head, base }) in
            checkpoint.iter().flat_map(|checkpoint| &checkpoint.journals)
        {
            if head.n == base.n {
                continue;
            }
            match hash_of(&self.root.join(writer), head.n)? {
                Some(hash) if hash == head.hash => {}
                Some(_) => return Ok(Some(StateLoss::LogOther(head.n))),
                None => return Ok(Some(StateLoss::LogOlder { remembered: head.n, found: base.n })),
            }
        }
        self.state.vault_loss(&progress).map_err(AuditError::from_state)
    }
}
