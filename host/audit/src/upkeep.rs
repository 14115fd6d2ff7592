//! Work that no call waits for, as far as every store does it alike: the quota of sealed bytes, retention, warnings.

use std::collections::HashSet;

use cofferdam_core::failure::AuditId;
use cofferdam_core::warnings::WarningLog;

use crate::command::{PruneStop, Pruned};
use crate::error::{AuditError, AuditErrorKind};

/// The result of enforcing the quota of sealed bytes.
#[derive(Debug, Default)]
pub struct QuotaOutcome {
    /// The number of calls whose sealed parts were dropped.
    pub dropped: usize,
    /// The clients that are above their quota with nothing left to drop.
    pub clients: HashSet<String>,
    /// True if all clients together are.
    pub is_all: bool,
}

impl QuotaOutcome {
    /// Returns true if nothing more may be sealed for the client.
    #[must_use]
    pub fn is_full(&self, client: &str) -> bool {
        self.is_all || self.clients.contains(client)
    }

    /// Warns of what was dropped.
    pub fn warn(&self) {
        if self.dropped > 0 {
            tracing::warn!(target: "cofferdam::audit", dropped = self.dropped, "the quota of sealed bytes is used up: outcomes of the oldest calls are not given again; `cofferdam audit stats` says whose");
        }
    }
}

/// Returns less than a quota, so that not every enforcement after this one has to make room.
#[must_use]
pub fn below_quota(quota: u64) -> u64 {
    quota.saturating_sub(quota / 10)
}

/// Logs the error of this work, unless it is the same as the last time.
pub fn warn_once(warnings: &WarningLog, work: &str, what: &str, result: Result<(), AuditError>) {
    match result {
        Ok(()) => drop(warnings.resolve(work)),
        Err(error) if warnings.is_new(work, &error) => {
            tracing::warn!(target: "cofferdam::audit", %error, "{what}");
        }
        Err(_) => {}
    }
}

/// Returns the result of retention, and warns of an entry that stays until an operator decides about it.
///
/// # Errors
/// Pruning failed, and not because another process does it.
pub fn retained(pruned: Result<Pruned, AuditError>) -> Result<(), AuditError> {
    let stopped = match pruned {
        Err(error) if error.kind() == AuditErrorKind::Locked => return Ok(()),
        pruned => pruned?.stopped,
    };
    if let Some(PruneStop { audit_id, why, decide: Some(decide) }) = stopped {
        let (audit_id, why) = (audit_id.as_ref().map(AuditId::as_str), why.says());
        let what = "nothing after this entry is pruned";
        tracing::warn!(target: "cofferdam::audit", audit_id, "{what}, since {why}: {decide}");
    }
    Ok(())
}
