//! Work that no call waits for: signing, indexing, the quota of sealed bytes, and retention.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use cofferdam_core::failpoint;
use cofferdam_core::warnings::WarningLog;

use super::log::{LogWriter, wait};
use super::sync;
use crate::error::{AuditError, AuditErrorKind};
use crate::index::{LogIndex, QuotaOutcome};

/// The delay after an entry, before it is signed for and indexed.
const MAINTENANCE_DELAY: Duration = Duration::from_secs(1);

/// The time between two runs of retention in a process.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The state of the work that no call waits for.
#[derive(Default)]
pub(super) struct Maintenance {
    /// True while a task waits to work, or works.
    is_due: AtomicBool,
    /// None until the first work, and after an error.
    index: Mutex<Option<LogIndex>>,
    /// The clients for which no more is sealed, since their quota is used up.
    quota: RwLock<QuotaOutcome>,
    retained: Mutex<Option<Instant>>,
    pub(super) warnings: WarningLog,
}

impl LogWriter {
    /// Signs for the own journal as it is, and returns the note.
    pub(super) fn sign(&self) -> Result<String, AuditError> {
        let journal = self.own_journal()?;
        failpoint::pass("checkpoint.before");
        // Of entries that the disk has: after a power cut nothing that is signed for may be missing.
        let (head, files) = journal.committer.with_journal(|journal| (journal.head(), journal.files()));
        sync(files.inspect_err(|error| self.failed(&journal, error))?)?;
        let note = self.checkpoints()?.sign(&journal.writer, head, self.clock.timestamp())?;
        failpoint::pass("checkpoint.after");
        Ok(note)
    }

    /// Completes when all earlier commands are durable.
    pub(super) fn flush(self: &Arc<Self>) -> Result<(), AuditError> {
        while self.working.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let journal = self.state().own.clone();
        match journal {
            // Everything that waits is written with it.
            Some(journal) => wait(self.write(&journal, Vec::new(), Box::new(|_| ()), None)),
            None => Ok(()),
        }
    }

    /// Has the new entries signed for and indexed soon.
    pub(super) fn maintain_soon(self: &Arc<Self>) {
        if self.maintenance.is_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.maintenance.is_due.store(false, Ordering::Relaxed);
            return;
        };
        let (own, clock) = (Arc::downgrade(self), Arc::clone(&self.clock));
        let due = clock.now() + MAINTENANCE_DELAY;
        runtime.spawn(async move {
            clock.sleep_until(due).await;
            let maintain = move || {
                let Some(own) = own.upgrade() else { return };
                own.maintenance.is_due.store(false, Ordering::Relaxed);
                own.maintain();
            };
            drop(tokio::task::spawn_blocking(maintain));
        });
    }

    fn maintain(self: &Arc<Self>) {
        self.warn("checkpoint", "no checkpoint was signed", self.sign().map(drop));
        self.warn("index", "the index of the audit log is behind", self.update_index());
        self.warn("retention", "old calls were not removed", self.retain());
    }

    /// Logs an error that is not the same as the last time.
    fn warn(&self, work: &'static str, what: &str, result: Result<(), AuditError>) {
        let warnings = &self.maintenance.warnings;
        match result {
            Ok(()) => drop(warnings.resolve(work)),
            Err(error) if warnings.is_new(work, &error) => {
                tracing::warn!(target: "cofferdam::audit", %error, "{what}");
            }
            Err(_) => {}
        }
    }

    fn update_index(&self) -> Result<(), AuditError> {
        let mut opened = self.maintenance.index.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = match opened.take() {
            Some(index) => index,
            None => LogIndex::open(self.root(), self.settings.busy_timeout)?,
        };
        index.update()?;
        let quota = index.enforce_quota(self.settings.sealed)?;
        if quota.dropped > 0 {
            let dropped = quota.dropped;
            tracing::warn!(target: "cofferdam::audit", dropped, "the quota of sealed bytes is used up: outcomes of the oldest calls are not given again; `cofferdam audit stats` says whose");
        }
        *self.maintenance.quota.write().unwrap_or_else(PoisonError::into_inner) = quota;
        *opened = Some(index);
        Ok(())
    }

    /// Returns true if no more may be sealed for this client.
    pub(super) fn is_full(&self, client: &str) -> bool {
        self.maintenance.quota.read().unwrap_or_else(PoisonError::into_inner).is_full(client)
    }

    /// Removes calls that are older than the operator keeps, once an hour.
    fn retain(self: &Arc<Self>) -> Result<(), AuditError> {
        let Some(retention) = self.settings.retention else { return Ok(()) };
        {
            let mut retained = self.maintenance.retained.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            if retained.is_some_and(|last| now.saturating_duration_since(last) < RETENTION_INTERVAL) {
                return Ok(());
            }
            *retained = Some(now);
        }
        let Ok(before) = self.clock.timestamp().checked_sub(retention) else { return Ok(()) };
        let pruned = match self.prune(before, false) {
            // Another process does it.
            Err(error) if error.kind() == AuditErrorKind::Locked => return Ok(()),
            pruned => pruned?,
        };
        if let Some(stop) = pruned.stopped
            && let Some(decide) = &stop.decide
        {
            let (audit_id, why) = (stop.audit_id.as_str(), stop.why.says());
            tracing::warn!(target: "cofferdam::audit", audit_id, "nothing younger than this call is pruned, since {why}: {decide}");
        }
        Ok(())
    }
}
