//! The state that all calls of a host share for their recording: the audit log, the settings, and the seal of payloads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cofferdam_audit::{AuditError, AuditLog, Part, Sealed, Sealer};
use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;

/// The audit log of a host, with the settings and the seal of its entries.
pub(crate) struct AuditContext {
    log: Arc<dyn AuditLog>,
    settings: AuditSettings,
    key_file: PathBuf,
    sealer: OnceLock<Sealer>,
    /// True if the last write failed, after all its retries or with its single try.
    unwritable: AtomicBool,
}

/// The operator's settings for recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditSettings {
    /// The actor of calls that name none.
    pub(crate) actor: Arc<str>,
    /// True if requests and outcomes are kept, sealed, so that calls can be resumed and outcomes replayed.
    pub(crate) keeps: bool,
    /// The time that the outcome of a finished call is kept for its key.
    pub(crate) key_ttl: Duration,
    /// The most bytes of each text that are readable in the audit log. 0: no payloads.
    pub(crate) field_bytes: usize,
}

impl Default for AuditSettings {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self { actor: "host".into(), keeps: true, key_ttl: day, field_bytes: 65_536 }
    }
}

impl AuditContext {
    /// Records in `log`. Payloads are sealed with a key that is derived from the one in `key_file`.
    pub(crate) fn new(log: Arc<dyn AuditLog>, key_file: PathBuf, settings: AuditSettings) -> Self {
        Self { log, settings, key_file, sealer: OnceLock::new(), unwritable: AtomicBool::new(false) }
    }

    /// Returns the audit log.
    pub(crate) fn log(&self) -> &Arc<dyn AuditLog> {
        &self.log
    }

    /// Returns the operator's settings.
    pub(crate) fn settings(&self) -> &AuditSettings {
        &self.settings
    }

    /// True if the last write to the log failed. Then a call that has done nothing yet does not wait for retries.
    pub(super) fn is_unwritable(&self) -> bool {
        self.unwritable.load(Ordering::Relaxed)
    }

    /// Notes whether the log could be written.
    pub(super) fn note_unwritable(&self, unwritable: bool) {
        self.unwritable.store(unwritable, Ordering::Relaxed);
    }

    /// Waits until every submitted entry is written, or its write has failed.
    pub(crate) async fn flush(&self) {
        if let Err(error) = self.log.flush().await {
            // The writer has logged a warning about it.
            tracing::debug!(target: "cofferdam::audit", %error, "the audit log was not written");
        }
    }

    /// Prepares the seal if payloads are kept.
    ///
    /// # Errors
    /// The key file is not private to its owner, or cannot be read or created. No payload is kept without a seal.
    pub(super) fn ready(&self) -> Result<(), AuditError> {
        match self.settings.keeps {
            true => self.sealer().map(drop),
            false => Ok(()),
        }
    }

    /// Seals a part of a call if payloads are kept.
    pub(super) fn seal(
        &self,
        audit_id: &AuditId,
        part: Part,
        text: Vec<u8>,
    ) -> Result<Option<Sealed>, AuditError> {
        match self.settings.keeps {
            true => self.sealer()?.seal(audit_id, part, text).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the key that opens sealed texts.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub(super) fn sealer(&self) -> Result<&Sealer, AuditError> {
        if let Some(sealer) = self.sealer.get() {
            return Ok(sealer);
        }
        let key = host_key::load_or_create(&self.key_file)?;
        Ok(self.sealer.get_or_init(|| Sealer::new(&key)))
    }
}
