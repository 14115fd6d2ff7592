//! Compares the log, its newest signed statement and the vault with what `home.state` remembers of them.

use std::thread::sleep;
use std::time::Duration;

use cofferdam_core::home_state::{HomeState, StateError, StateLoss, StoredState};
use rusqlite::{Connection, OptionalExtension as _};

use super::head::head;
use super::signing::{base, newest};
use crate::anchor::Anchor;
use crate::checkpoint::Checkpoint;
use crate::error::AuditError;
use crate::note::NoteKey;

/// A home is written while it is compared: a loss is one that is found each time.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Complete,
    Lost(StateLoss),
    /// The home remembers no log yet, and nothing says that it ever did.
    NotBegun,
}

impl Comparison {
    pub(super) fn loss(self) -> Option<StateLoss> {
        match self {
            Self::Lost(loss) => Some(loss),
            Self::Complete | Self::NotBegun => None,
        }
    }
}

/// The files beside the log that say how far it had come.
pub(super) struct Witnesses<'a> {
    pub(super) state: &'a HomeState,
    pub(super) anchor: &'a Anchor,
    /// The key of the signed statements; none where `host.key` cannot be used.
    pub(super) key: Option<&'a NoteKey>,
}

impl Witnesses<'_> {
    /// Compares them with the log behind this connection, or with the absence of a log.
    pub(super) fn compare(&self, log: Option<&Connection>) -> Result<Comparison, AuditError> {
        for _ in 1..TRIES {
            match self.compare_once(log)? {
                Comparison::Lost(_) => sleep(PAUSE),
                found => return Ok(found),
            }
        }
        self.compare_once(log)
    }

    fn compare_once(&self, log: Option<&Connection>) -> Result<Comparison, AuditError> {
        let read = |note: &str| self.key.and_then(|key| Checkpoint::read(note, key).ok());
        // In this order: what is read later is never behind what it is compared with.
        let file = self.anchor.read()?.and_then(|note| read(&note));
        let last = log.map(newest).transpose()?.flatten().and_then(|(_, note)| read(&note));
        let vault_seen = self.state.has_counted_vault();
        let stored = self.state.read().map_err(AuditError::from_state)?;
        let end = log.map(head).transpose()?.map_or(0, |head| head.n);
        let signed_vault = [&file, &last].into_iter().flatten().filter_map(|said| said.vault).max();

        let progress = match stored {
            StoredState::Valid(progress) => progress,
            StoredState::Invalid => return Ok(Comparison::Lost(StateLoss::StateInvalid)),
            StoredState::Missing => match vault_seen {
                Ok(false) if signed_vault.is_none() => Default::default(),
                Ok(_) => return Ok(Comparison::Lost(StateLoss::StateMissing)),
                // It may have counters: nothing says that the home is a new one.
                Err(StateError::VaultRefused(_) | StateError::VaultDamaged) => {
                    return Ok(Comparison::Lost(StateLoss::VaultUnusable));
                }
                Err(error) => return Err(AuditError::from_state(error)),
            },
        };
        let highest_vault = progress.vault.map_or(0, |vault| vault.highest);
        if signed_vault.is_some_and(|signed| signed > highest_vault || progress.log.is_none()) {
            return Ok(Comparison::Lost(StateLoss::StateOlder));
        }
        let state = progress.log.map(|log| (log.n, log.hash));
        let file = file.map(|said| (said.n, said.hash));
        let remembered = state.into_iter().chain(file);
        for (n, hash) in remembered {
            if n > end {
                return Ok(Comparison::Lost(StateLoss::LogOlder { remembered: n, found: end }));
            }
            if let Some(log) = log
                && !has(log, self.key, n, hash)?
            {
                return Ok(Comparison::Lost(StateLoss::LogOther(n)));
            }
        }
        if state.is_none() {
            return Ok(Comparison::NotBegun);
        }
        let loss = self.state.vault_loss(&progress).map_err(AuditError::from_state)?;
        Ok(loss.map_or(Comparison::Complete, Comparison::Lost))
    }
}

/// Returns whether this is the hash of the `n`-th entry, or that entry was pruned: entries before
/// the signed base are covered by the base alone.
pub(super) fn has(
    log: &Connection,
    key: Option<&NoteKey>,
    n: u64,
    hash: [u8; 32],
) -> Result<bool, AuditError> {
    let select = "SELECT hash FROM entries WHERE n = ?1";
    let there: Option<[u8; 32]> = log.prepare_cached(select)?.query_row([n], |row| row.get(0)).optional()?;
    let base = base(log)?.and_then(|(_, note)| Checkpoint::read(&note, key?).ok());
    Ok(match there {
        Some(there) => there == hash,
        None => n == 0 || base.is_some_and(|base| base.n > n || base.n == n && base.hash == hash),
    })
}
