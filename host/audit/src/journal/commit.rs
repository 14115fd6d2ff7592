//! Group commit: entries of many callers in one write, without a thread of its own.
//!
//! A caller that finds the journal idle writes all waiting entries on its own thread. Others leave their entries with
//! it, and spin for a moment before their thread sleeps. Handing over to a writer thread would cost more than the write
//! itself, as a processor has to be woken.
//!
//! With `power` a write waits for the disk, so it runs on a thread for blocking work. A thread that has a call to go on
//! with writes only what waits when it begins, and leaves later entries to a new thread: while calls follow each other,
//! something always waits.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::Duration;

use cofferdam_core::clock::Clock;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::line::EntryDraft;
use super::{Durability, Journal};
use crate::error::{AuditError, AuditErrorKind};
use crate::log::LogFuture;

/// The most entries in one write.
const ENTRIES_AT_ONCE: usize = 1_024;

/// The most times that a caller spins for the result of a commit on another thread: for 40 us (AMD) to 100 us (Intel), in
/// which several commits end. A thread that sleeps is woken after a longer time than that.
const MAX_SPINS: usize = 2_000;

/// The interval at which [`JournalCommitter::finish`] checks whether everything is written.
const PAUSE: Duration = Duration::from_millis(1);

/// Commits the entries of many callers to one journal.
pub(crate) struct JournalCommitter {
    queue: Mutex<CommitQueue>,
    /// Only the thread that commits locks it, and those that look at the journal.
    journal: Mutex<Journal>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    /// True unless commits wait for the disk, or no other processor could commit meanwhile.
    spins: bool,
    /// False while a commit takes longer than a caller spins.
    may_spin: Arc<AtomicBool>,
}

#[derive(Default)]
struct CommitQueue {
    waiting: VecDeque<WaitingCommit>,
    /// True while a thread commits: it takes what is added meanwhile.
    is_committing: bool,
    /// True until that thread has begun.
    is_due: bool,
}

/// Entries that are written together.
struct WaitingCommit {
    drafts: Vec<EntryDraft>,
    done: AfterCommit,
    reply: oneshot::Sender<Result<(), AuditError>>,
    late: Option<Arc<LateEvents>>,
}

impl CommitQueue {
    /// Begins to commit. False if nothing waits, or if a thread commits already.
    fn begin(&mut self) -> bool {
        let begins = !self.waiting.is_empty() && !std::mem::replace(&mut self.is_committing, true);
        self.is_due |= begins;
        begins
    }
}

impl WaitingCommit {
    /// Takes the late events, now that no earlier entry of the call can fail any more.
    fn add_late_events(&mut self) {
        if let Some(late) = &self.late {
            self.drafts.splice(0..0, std::mem::take(&mut *lock(&late.events)));
        }
    }

    /// Reports the result. A panic in `done` of one caller does not fail the others.
    fn finish(self, result: &Result<(), AuditError>) {
        let Self { drafts, done, reply, late } = self;
        let is_done = catch_unwind(AssertUnwindSafe(|| done(Committed { drafts, result }))).is_ok();
        let is_heard = !matches!(reply.send(result.clone()), Err(Err(_)));
        late.filter(|_| !is_heard).inspect(|late| late.keep_entry());
        if !is_done {
            let _ = catch_unwind(|| {
                tracing::error!(target: "cofferdam::audit", "a thread panicked at the end of a commit");
            });
        }
    }
}

/// Entries that were written, all of them or none.
pub(crate) struct Committed<'r> {
    pub(super) drafts: Vec<EntryDraft>,
    pub(super) result: &'r Result<(), AuditError>,
}

/// The consequence of a commit, which is drawn before any caller gets the result, also if none waits for it.
pub(crate) type AfterCommit = Box<dyn FnOnce(Committed<'_>) + Send>;

/// The late events of a call, which are written before its next entry. They could not be written, and no caller waits
/// for them.
pub(crate) struct LateEvents {
    pub(super) events: Arc<Mutex<Vec<EntryDraft>>>,
    /// The entry that becomes one of them if its commit fails, and its caller has gone without the result.
    pub(super) entry: Option<EntryDraft>,
}

impl LateEvents {
    fn keep_entry(&self) {
        lock(&self.events).extend(self.entry.clone());
    }
}

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Runs work that may wait for the disk: its entries are written on this thread, unless another one writes. Left to a
/// thread for blocking work, they would wait forever once all of those wait for the log.
pub(super) fn allow_waiting<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            MAY_WAIT.set(self.0);
        }
    }
    // Also after a panic, which a runtime catches before the thread does other work.
    let _restored = Restored(MAY_WAIT.replace(true));
    work()
}

/// The future of a commit's result.
struct CommitResult {
    result: oneshot::Receiver<Result<(), AuditError>>,
    late: Option<Arc<LateEvents>>,
    /// [`JournalCommitter::may_spin`], until the future has spun.
    may_spin: Option<Arc<AtomicBool>>,
}

impl CommitResult {
    /// Waits for a moment for the thread that commits.
    fn spin_for_result(&mut self) -> Option<Result<(), AuditError>> {
        let may_spin = self.may_spin.take()?;
        for _ in 0..MAX_SPINS {
            match self.result.try_recv() {
                Err(TryRecvError::Empty) if !may_spin.load(Ordering::Relaxed) => return None,
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
                result => return Some(result.unwrap_or_else(|_| Err(panicked()))),
            }
        }
        // Until the commit is done, no other caller spins in vain.
        may_spin.store(false, Ordering::Relaxed);
        None
    }
}

/// Returns the error of a commit whose thread panicked.
pub(super) fn panicked() -> AuditError {
    AuditError::new(AuditErrorKind::Other, "a thread panicked while it wrote the journal")
}

impl Future for CommitResult {
    type Output = Result<(), AuditError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.spin_for_result() {
            return Poll::Ready(result);
        }
        Pin::new(&mut self.result).poll(context).map(|result| result.unwrap_or_else(|_| Err(panicked())))
    }
}

impl Drop for CommitResult {
    fn drop(&mut self) {
        let Some(late) = &self.late else { return };
        // From now on the result cannot be sent; it may have been already.
        self.result.close();
        if let Ok(Err(_)) = self.result.try_recv() {
            late.keep_entry();
        }
    }
}

impl JournalCommitter {
    pub(crate) fn new(journal: Journal, clock: Arc<dyn Clock>) -> Arc<Self> {
        let durability = journal.settings.durability;
        let is_alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let spins = durability == Durability::Process && !is_alone;
        let (queue, may_spin) = (Mutex::default(), Arc::new(AtomicBool::new(spins)));
        Arc::new(Self { queue, journal: Mutex::new(journal), clock, durability, spins, may_spin })
    }

    /// Appends these entries, all of them or none, and then calls `done`: on this thread, or on the one that commits
    /// already. The `late` events are appended first.
    pub(crate) fn commit(
        self: &Arc<Self>,
        drafts: Vec<EntryDraft>,
        done: AfterCommit,
        late: Option<LateEvents>,
    ) -> LogFuture<()> {
        let (reply, result) = oneshot::channel();
        let (late, may_spin) = (late.map(Arc::new), Some(Arc::clone(&self.may_spin)));
        let waits = CommitResult { result, late: late.clone(), may_spin };
        let leads = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(WaitingCommit { drafts, done, reply, late });
            queue.begin()
        };
        match leads {
            true => self.lead(),
            false if MAY_WAIT.get() => self.run_due(),
            false => {}
        }
        Box::pin(waits)
    }

    /// Looks at the journal between two commits.
    pub(crate) fn with_journal<T>(&self, look: impl FnOnce(&mut Journal) -> T) -> T {
        look(&mut lock(&self.journal))
    }

    /// Waits until all entries are written. This thread writes them if no other one has begun to.
    pub(crate) fn finish(self: &Arc<Self>) {
        self.run_due();
        while lock(&self.queue).is_committing {
            std::thread::sleep(PAUSE);
            self.run_due();
        }
    }

    /// Returns the journal, if nothing else uses it.
    pub(crate) fn into_journal(self: Arc<Self>) -> Option<Journal> {
        Arc::into_inner(self).map(|own| own.journal.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn lead(self: &Arc<Self>) {
        // Waiting for the disk takes milliseconds, in which the executor's threads have other work.
        if self.durability == Durability::Power
            && !MAY_WAIT.get()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let commits = RunOnDrop(Arc::clone(self));
            drop(runtime.spawn_blocking(move || drop(commits)));
        } else {
            self.run_due();
        }
    }

    /// Commits until nothing waits, unless another thread has begun to. A thread with other work commits only what waits
    /// now if it has to wait for the disk: calls that follow each other would never let it go on.
    fn run_due(self: &Arc<Self>) {
        let (is_due, waiting) = {
            let mut queue = lock(&self.queue);
            (std::mem::take(&mut queue.is_due), queue.waiting.len())
        };
        if is_due {
            let is_bounded = self.durability == Durability::Power && MAY_WAIT.get();
            self.run(if is_bounded { waiting } else { usize::MAX });
        }
    }

    /// Commits until nothing waits, or until `left` were committed and another thread goes on.
    fn run(self: &Arc<Self>, mut left: usize) {
        let mut idle = IdleOnDrop { committer: self, is_idle: false };
        while let Some(mut commits) = self.next_commits() {
            left = left.saturating_sub(commits.len());
            commits.iter_mut().for_each(WaitingCommit::add_late_events);
            let mut drafts: Vec<_> = commits.iter_mut().flat_map(|commit| &mut commit.drafts).collect();
            let result = lock(&self.journal).write(&mut drafts, self.clock.timestamp());
            self.may_spin.store(self.spins, Ordering::Relaxed);
            commits.into_iter().for_each(|commit| commit.finish(&result));
            if left == 0 && self.hand_over() {
                break;
            }
        }
        idle.is_idle = true;
    }

    /// Leaves what waits to a new thread, since all threads for blocking work may be waiting for it. False if nothing
    /// waits, or if no thread can be started.
    fn hand_over(self: &Arc<Self>) -> bool {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return false };
        let own = Arc::clone(self);
        let commits = move || {
            // The consequences of a commit may spawn tasks.
            let _runtime = runtime.enter();
            own.run_due();
        };
        // Locked until `is_due` is set, which the thread reads first.
        let mut queue = lock(&self.queue);
        let is_begun = !queue.waiting.is_empty() && std::thread::Builder::new().spawn(commits).is_ok();
        queue.is_due = is_begun;
        is_begun
    }

    /// Takes waiting commits; none if there are none, and then the next caller commits.
    fn next_commits(&self) -> Option<Vec<WaitingCommit>> {
        let mut queue = lock(&self.queue);
        let mut entries = 0_usize;
        let mut fits = |commit: &WaitingCommit| {
            entries = entries.saturating_add(commit.drafts.len());
            entries <= ENTRIES_AT_ONCE
        };
        let count = queue.waiting.iter().take_while(|commit| fits(commit)).count();
        if count == 0 && queue.waiting.is_empty() {
            queue.is_committing = false;
            return None;
        }
        Some(queue.waiting.drain(..count.max(1)).collect())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commits when it is dropped: on the thread that it was handed to, or where a runtime that ends drops it.
struct RunOnDrop(Arc<JournalCommitter>);

impl Drop for RunOnDrop {
    fn drop(&mut self) {
        self.0.run_due();
    }
}

/// Lets the next caller commit, also if the thread panicked: the callers that wait get an error then.
struct IdleOnDrop<'c> {
    committer: &'c JournalCommitter,
    /// True if nothing waits, or another thread commits it.
    is_idle: bool,
}

impl Drop for IdleOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_idle {
            let lost = {
                let mut queue = lock(&self.committer.queue);
                queue.is_committing = false;
                std::mem::take(&mut queue.waiting)
            };
            let failed = Err(panicked());
            lost.into_iter().for_each(|commit| commit.finish(&failed));
        }
    }
}
