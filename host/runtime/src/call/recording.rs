//! How calls are recorded: where, under whose name, how much of them is kept and for how long, and the seal of what is.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cofferdam_audit::{AuditError, AuditLog, Order, Part, Sealed, Sealer, written};
use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;

/// What all calls of a host have in common on record.
pub(crate) struct Recording {
    log: Arc<dyn AuditLog>,
    settings: RecordSettings,
    key_file: PathBuf,
    sealer: OnceLock<Sealer>,
    /// Whether the last write failed, after all its waits or as the next one that did not wait.
    unwritable: AtomicBool,
}

/// What the operator says of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordSettings {
    /// Who asks where a call does not say.
    pub(crate) actor: Arc<str>,
    /// Whether requests and outcomes are kept, sealed, to be done or given again.
    pub(crate) keeps: bool,
    /// How long the outcome of a finished call stands for its key.
    pub(crate) key_ttl: Duration,
    /// The most bytes of each text that can be read in the record; 0: no payloads.
    pub(crate) field_bytes: usize,
}

impl Default for RecordSettings {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self { actor: "host".into(), keeps: true, key_ttl: day, field_bytes: 65_536 }
    }
}

impl Recording {
    /// Records in `log`; what is kept is sealed with a key derived from the one in `key_file`.
    pub(crate) fn new(log: Arc<dyn AuditLog>, key_file: PathBuf, settings: RecordSettings) -> Self {
        Self { log, settings, key_file, sealer: OnceLock::new(), unwritable: AtomicBool::new(false) }
    }

    /// Where.
    pub(crate) fn log(&self) -> &Arc<dyn AuditLog> {
        &self.log
    }

    /// What the operator says of it.
    pub(crate) fn settings(&self) -> &RecordSettings {
        &self.settings
    }

    /// Whether the log could not be written when it was last tried: then a call that has done nothing yet does not
    /// wait for it again.
    pub(super) fn is_unwritable(&self) -> bool {
        self.unwritable.load(Ordering::Relaxed)
    }

    /// Notes whether the log could be written.
    pub(super) fn note_unwritable(&self, unwritable: bool) {
        self.unwritable.store(unwritable, Ordering::Relaxed);
    }

    /// Waits until all that was given to the record is written, or cannot be.
    pub(crate) async fn flushed(&self) {
        let (reply, answer) = written();
        self.log.submit(Order::Flush { reply });
        if let Err(error) = answer.done().await {
            // Its writer warned of that.
            tracing::debug!(target: "cofferdam::audit", %error, "the record was not written");
        }
    }

    /// Makes the seal ready, if anything is to be kept.
    ///
    /// # Errors
    /// The key file is not the owner's alone, or cannot be read or made: nothing is kept without a seal.
    pub(super) fn ready(&self) -> Result<(), AuditError> {
        match self.settings.keeps {
            true => self.sealer().map(drop),
            false => Ok(()),
        }
    }

    /// Seals a part of a call, if anything is to be kept.
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

    /// What was sealed is opened with this.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub(super) fn sealer(&self) -> Result<&Sealer, AuditError> {
        if let Some(sealer) = self.sealer.get() {
            return Ok(sealer);
        }
        let key = host_key::read_or_make(&self.key_file).map_err(AuditError::from_key)?;
        Ok(self.sealer.get_or_init(|| Sealer::new(&key)))
    }
}
