//! The memory that a home has of its log and its vault, and the comparison of the log's signed statement with it.

use cofferdam_core::home_state::{HomeProgress, HomeState, StateError, StateLoss, StoredState};

use crate::error::AuditError;
use crate::journal::LogCheckpoint;

/// The state that a home remembers.
pub struct HomeMemory {
    state: StoredState,
    /// True if the vault has counters, none if it cannot be read.
    is_vault_counted: Option<bool>,
}

impl HomeMemory {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(state: &HomeState) -> Result<Self, AuditError> {
        // In this order: the state is written after the vault.
        let counted = state.has_counted_vault();
        let stored = state.read()?;
        let is_vault_counted = match counted {
            Ok(is_counted) => Some(is_counted),
            // It may have counters: nothing says that the home is a new one.
            Err(StateError::VaultRefused(_) | StateError::VaultDamaged) => None,
            Err(error) if stored == StoredState::Missing => return Err(error.into()),
            Err(_) => None,
        };
        Ok(Self { is_vault_counted, state: stored })
    }

    /// Returns true if the home remembers no log yet.
    pub fn is_new(&self) -> bool {
        match self.state {
            StoredState::Missing => true,
            StoredState::Valid(progress) => progress.log.is_none_or(|log| log.n == 0),
            StoredState::Invalid => false,
        }
    }

    /// Returns the progress of the home, if the statement about its journals is not behind it; none for a new home.
    ///
    /// # Errors
    /// The loss.
    pub fn progress(&self, checkpoint: Option<&LogCheckpoint>) -> Result<Option<HomeProgress>, StateLoss> {
        let progress = match self.state {
            StoredState::Valid(progress) => progress,
            StoredState::Invalid => return Err(StateLoss::StateInvalid),
            StoredState::Missing => match self.is_vault_counted {
                Some(false) if checkpoint.is_none() => return Ok(None),
                Some(_) => return Err(StateLoss::StateMissing),
                None => return Err(StateLoss::VaultUnusable),
            },
        };
        let signed_vault = checkpoint.and_then(|checkpoint| checkpoint.vault);
        if signed_vault.is_some_and(|signed| signed > progress.vault.map_or(0, |vault| vault.highest)) {
            return Err(StateLoss::StateOlder);
        }
        let Some(log) = progress.log else { return Ok(Some(progress)) };
        if log.n > checkpoint.map_or(0, LogCheckpoint::size) {
            return Err(StateLoss::LogOlder(log.n));
        }
        match checkpoint.is_some_and(|it| it.size() == log.n && it.root() != log.hash) {
            true => Err(StateLoss::LogOther(log.n)),
            false => Ok(Some(progress)),
        }
    }
}
