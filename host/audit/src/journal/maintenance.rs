//! Work that no call waits for: signing, indexing, the quota of sealed bytes, and retention.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::private_file::{self, FilePolicy, StagedFile};
use cofferdam_core::warnings::WarningLog;
use jiff::Timestamp;

use super::commit::allow_waiting;
use super::log::{HeldJournal, LogWriter};
use crate::error::{AuditError, AuditErrorKind};
use crate::index::LogIndex;
use crate::log::wait;
use crate::upkeep::{QuotaOutcome, retained, warn_once};

/// The delay after an entry, before it is signed for and indexed.
const MAINTENANCE_DELAY: Duration = Duration::from_secs(1);

/// The amount by which the thread that indexes is nicer than the one that calls for it: beside a busy thread it gets a
/// quarter of a processor, of which it needs a fifth to index 18,000 calls a second. At the priority of calls it would stop
/// some of them for milliseconds.
const NICE: i32 = 5;

/// The time between two runs of retention in a home.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The file with the time of the last run of retention, as RFC 3339.
const RETAINED: &str = "retained";
const POLICY: FilePolicy = FilePolicy::secret(64);

/// The state of the work that no call waits for.
#[derive(Default)]
pub(super) struct Maintenance {
    /// True while a task waits to work, or works.
    is_due: AtomicBool,
    /// None until the first work, and after an error.
    index: Mutex<Option<LogIndex>>,
    /// The clients for which no more is sealed, since their quota is used up.
    quota: RwLock<QuotaOutcome>,
    /// True if entries were written since the last work began.
    has_new: AtomicBool,
    pub(super) warnings: WarningLog,
}

/// Maintenance that waits to begin, unless its runtime ends before.
struct DueMaintenance(Weak<LogWriter>);

impl DueMaintenance {
    fn begin(self) {
        if let Some(own) = self.0.upgrade() {
            drop(self);
            own.maintain();
        }
    }
}

impl Drop for DueMaintenance {
    fn drop(&mut self) {
        if let Some(own) = self.0.upgrade() {
            own.maintenance.is_due.store(false, Ordering::Relaxed);
        }
    }
}

impl LogWriter {
    /// Signs for the journals of this process as they are, and returns the note.
    pub(super) fn sign(&self) -> Result<String, AuditError> {
        let own = self.own_journal()?;
        let adopted: Vec<_> =
            self.state().adopted.values().map(|adopted| Arc::clone(&adopted.journal)).collect();
        failpoint::pass("checkpoint.before");
        let note = self.sign_journals(&[&own].into_iter().chain(&adopted).collect::<Vec<_>>())?;
        failpoint::pass("checkpoint.after");
        Ok(note)
    }

    /// Completes when all earlier commands are durable.
    pub(super) fn flush(self: &Arc<Self>) -> Result<(), AuditError> {
        while self.working.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Everything that waits is written with it.
        let write = |journal| wait(self.write(journal, Vec::new(), Box::new(|_| ()), None));
        self.journals().iter().map(write).fold(Ok(()), Result::and)
    }

    /// Returns the journals that this process holds.
    pub(super) fn journals(&self) -> Vec<Arc<HeldJournal>> {
        let state = self.state();
        state.own.iter().chain(state.adopted.values().map(|it| &it.journal)).cloned().collect()
    }

    /// Has the new entries signed for and indexed soon.
    pub(super) fn maintain_soon(self: &Arc<Self>) {
        self.maintenance.has_new.store(true, Ordering::Relaxed);
        if self.maintenance.is_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let (due, clock) = (DueMaintenance(Arc::downgrade(self)), Arc::clone(&self.clock));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let at = clock.now() + MAINTENANCE_DELAY;
        runtime.spawn(async move {
            clock.sleep_until(at).await;
            drop(tokio::task::spawn_blocking(move || allow_waiting(|| due.begin())));
        });
    }

    /// Does once an hour what a living host does after a second: some homes are only used by short processes.
    pub(super) fn maintain_at_end(self: &Arc<Self>) {
        if self.maintenance.has_new.swap(false, Ordering::Relaxed) && self.is_retention_due() {
            self.index_and_retain();
        }
    }

    fn maintain(self: &Arc<Self>) {
        self.maintenance.has_new.store(false, Ordering::Relaxed);
        let signed = self.sign().map(drop);
        warn_once(&self.maintenance.warnings, "checkpoint", "no checkpoint was signed", signed);
        self.index_and_retain();
    }

    fn index_and_retain(self: &Arc<Self>) {
        let warnings = &self.maintenance.warnings;
        warn_once(warnings, "index", "the index of the audit log is behind", self.update_index());
        warn_once(warnings, "retention", "old calls were not removed", self.retain());
    }

    pub(super) fn update_index(&self) -> Result<(), AuditError> {
        let mut opened = self.maintenance.index.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = match opened.take() {
            Some(index) => index,
            None => LogIndex::open(self.root())?,
        };
        let quota = with_lower_priority(|| {
            index.update()?;
            index.enforce_quota(self.settings.sealed)
        })?;
        quota.warn();
        *self.maintenance.quota.write().unwrap_or_else(PoisonError::into_inner) = quota;
        *opened = Some(index);
        Ok(())
    }

    /// Returns true if no more may be sealed for this client.
    pub(super) fn is_full(&self, client: &str) -> bool {
        self.maintenance.quota.read().unwrap_or_else(PoisonError::into_inner).is_full(client)
    }

    /// Returns true if no process ran retention in the last hour.
    fn is_retention_due(&self) -> bool {
        last_retention(self.root()).is_none_or(|last| {
            self.clock.timestamp().duration_since(last).unsigned_abs() >= RETENTION_INTERVAL
        })
    }

    /// Removes calls that are older than the operator keeps, once an hour.
    pub(super) fn retain(self: &Arc<Self>) -> Result<(), AuditError> {
        if !self.is_retention_due() {
            return Ok(());
        }
        let stamp = StagedFile::begin(&self.root().join(RETAINED), &POLICY).and_then(|mut file| {
            file.write_all(self.clock.timestamp().to_string().as_bytes())?;
            file.without_sync().replace()
        });
        stamp.map_err(|error| AuditError::from_file(RETAINED, error))?;
        let Some(retention) = self.settings.retention else { return Ok(()) };
        let Ok(before) = self.log_time()?.removal_time().checked_sub(retention) else { return Ok(()) };
        retained(self.prune(before, false, None))
    }
}

/// Runs this on a thread of its own, since the priority of a thread cannot be raised again.
fn with_lower_priority<T: Send>(
    work: impl FnOnce() -> Result<T, AuditError> + Send,
) -> Result<T, AuditError> {
    let lower = || {
        // At the same priority, the work is done as well.
        let _ = rustix::process::nice(NICE);
        work()
    };
    let panicked = |_| Err(AuditError::new(AuditErrorKind::Other, "the thread that indexes panicked"));
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, lower)?;
        thread.join().unwrap_or_else(panicked)
    })
}

/// Returns the time of the last run of retention in the journals below `root`; none if it is not known.
pub(super) fn last_retention(root: &Path) -> Option<Timestamp> {
    let text = private_file::read(&root.join(RETAINED), &POLICY).ok().flatten()?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}
