//! The record of a host, as its operator reads, proves and prunes it.

use std::sync::Arc;

use super::Host;
use crate::audit::{AuditError, AuditLog, AuditReader, AuditTrouble};
use crate::error::{HostError, HostErrorKind};

/// The record of a host. Cheap to clone. What reads it blocks: not for an executor's threads.
#[derive(Clone)]
pub struct Audit {
    log: Arc<dyn AuditLog>,
}

impl Host {
    /// The record of the host's calls.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }
}

impl Audit {
    pub(super) fn new(log: Arc<dyn AuditLog>) -> Self {
        Self { log }
    }

    /// A reader of its own, which sees all that was durable when it was asked for.
    ///
    /// # Errors
    /// `audit_unavailable`: there is no record yet, or it cannot be read.
    pub fn reader(&self) -> Result<Box<dyn AuditReader>, HostError> {
        self.log.reader().map_err(unreadable)
    }

    /// As [`Audit::reader`]; none where nothing was recorded yet.
    ///
    /// # Errors
    /// `audit_unavailable`: it cannot be read.
    pub fn existing(&self) -> Result<Option<Box<dyn AuditReader>>, HostError> {
        match self.log.reader() {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if error.trouble() == AuditTrouble::Absent => Ok(None),
            Err(error) => Err(unreadable(error)),
        }
    }
}

/// The record cannot be read.
pub(crate) fn unreadable(error: AuditError) -> HostError {
    let message = format!("The record cannot be read: {}.", error.trouble().says());
    HostError::new(HostErrorKind::AuditUnavailable, message)
        .hint("It is the file audit.db of the home directory; `--verbose` says more.")
        .because(error)
}
