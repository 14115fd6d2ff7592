//! Group commit: entries of many callers in one write, without a thread of its own.
//!
//! A caller that finds the journal idle writes all waiting entries on its own thread. Others leave their entries with
//! it. Handing over to a writer thread would cost more than the write itself, as a processor has to be woken. With many
//! calls for each thread, a caller first lets others run that are ready: they add their entries, and one write has them
//! all.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use cofferdam_core::clock::Clock;
use tokio::sync::oneshot;

use super::line::EntryDraft;
use super::{Durability, Journal};
use crate::error::{AuditError, AuditErrorKind};

/// The most entries in one write.
const ENTRIES_AT_ONCE: usize = 1_024;

/// The number of open calls for each thread of the executor above which an entry waits for those of other callers.
/// In the benchmark `throughput`, on 2 threads, waiting gains nothing with 8 callers and makes p99 worse; with 64 it gains
/// a quarter.
const CALLS_A_THREAD: usize = 4;

/// Commits the entries of many callers to one journal.
pub(crate) struct JournalCommitter {
    queue: Mutex<CommitQueue>,
    /// Only the thread that commits locks it, and those that look at the journal.
    journal: Mutex<Journal>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    /// The calls without an end after the last commit.
    open_calls: AtomicUsize,
}

#[derive(Default)]
struct CommitQueue {
    waiting: VecDeque<WaitingCommit>,
    /// True while a thread commits: it takes what is added meanwhile.
    is_committing: bool,
}

/// Entries that are written together.
struct WaitingCommit {
    drafts: Vec<EntryDraft>,
    done: AfterCommit,
    reply: oneshot::Sender<Result<(), AuditError>>,
    unheard: Option<Arc<UnheardFailure>>,
}

impl CommitQueue {
    /// Begins to commit. False if nothing waits, or if a thread commits already.
    fn begin(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.is_committing, true)
    }
}

impl WaitingCommit {
    /// Reports the result. A panic in `done` or `unheard` of one caller does not fail the others.
    fn finish(self, result: &Result<(), AuditError>) {
        let Self { done, reply, unheard, .. } = self;
        let is_done = catch_unwind(AssertUnwindSafe(|| done(result))).is_ok();
        let is_heard = !matches!(reply.send(result.clone()), Err(Err(_)));
        let unheard = unheard.filter(|_| !is_heard);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            unheard.inspect(|unheard| unheard());
            if !is_done {
                tracing::error!(target: "cofferdam::audit", "a thread panicked at the end of a commit");
            }
        }));
    }
}

/// The consequence of a commit, which is drawn before any caller gets the result, also if none waits for it.
pub(crate) type AfterCommit = Box<dyn FnOnce(&Result<(), AuditError>) + Send>;

/// The future of a commit, which goes on if it is dropped.
pub(crate) type CommitFuture = Pin<Box<dyn Future<Output = Result<(), AuditError>> + Send>>;

/// The consequence of a failed commit whose caller has gone without the result.
pub(crate) type UnheardFailure = dyn Fn() + Send + Sync;

/// The future of a commit's result. It commits what waits, unless another thread is committing.
struct CommitResult {
    /// Alive while entries wait, since `done` of their commits holds the log.
    committer: Weak<JournalCommitter>,
    result: oneshot::Receiver<Result<(), AuditError>>,
    unheard: Option<Arc<UnheardFailure>>,
    /// True until other callers could add their entries.
    lets_others_add: bool,
}

impl CommitResult {
    fn start(&self) {
        if let Some(committer) = self.committer.upgrade() {
            committer.start();
        }
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Result<(), AuditError>> {
        Pin::new(&mut self.result).poll(context).map(|result| {
            let lost = |_| {
                Err(AuditError::new(AuditErrorKind::Other, "a thread panicked while it wrote the journal"))
            };
            result.unwrap_or_else(lost)
        })
    }
}

impl Future for CommitResult {
    type Output = Result<(), AuditError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(result) = self.poll_result(context) {
            return Poll::Ready(result);
        }
        if std::mem::take(&mut self.lets_others_add) {
            // The executor polls it again after the tasks that are ready now.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.start();
        self.poll_result(context)
    }
}

impl Drop for CommitResult {
    fn drop(&mut self) {
        if !self.result.is_terminated() {
            self.start();
        }
        let Some(unheard) = &self.unheard else { return };
        // From now on the result cannot be sent; it may have been already.
        self.result.close();
        if let Ok(Err(_)) = self.result.try_recv() {
            unheard();
        }
    }
}

impl JournalCommitter {
    pub(crate) fn new(journal: Journal, clock: Arc<dyn Clock>) -> Arc<Self> {
        let durability = journal.settings.durability;
        let (queue, open_calls) = (Mutex::default(), AtomicUsize::new(journal.unended().count()));
        Arc::new(Self { queue, journal: Mutex::new(journal), clock, durability, open_calls })
    }

    /// Appends these entries, all of them or none, and then calls `done`: at once, or when the returned future is awaited
    /// or dropped. `unheard` is called if that is a failure, and the future was dropped before.
    pub(crate) fn commit(
        self: &Arc<Self>,
        drafts: Vec<EntryDraft>,
        done: AfterCommit,
        unheard: Option<Arc<UnheardFailure>>,
    ) -> CommitFuture {
        let (reply, result) = oneshot::channel();
        let (committer, lets_others_add) = (Arc::downgrade(self), self.has_many_calls());
        let waits = CommitResult { committer, result, unheard: unheard.clone(), lets_others_add };
        let leads = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(WaitingCommit { drafts, done, reply, unheard });
            !lets_others_add && queue.begin()
        };
        if leads {
            self.lead();
        }
        Box::pin(waits)
    }

    /// Looks at the journal between two commits.
    pub(crate) fn with_journal<T>(&self, look: impl FnOnce(&mut Journal) -> T) -> T {
        look(&mut lock(&self.journal))
    }

    /// Returns the journal, if nothing else uses it.
    pub(crate) fn into_journal(self: Arc<Self>) -> Option<Journal> {
        Arc::into_inner(self).map(|own| own.journal.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has what waits committed, unless that is under way.
    pub(super) fn start(self: &Arc<Self>) {
        let leads = lock(&self.queue).begin();
        if leads {
            self.lead();
        }
    }

    fn lead(self: &Arc<Self>) {
        match (self.durability, tokio::runtime::Handle::try_current()) {
            // Waiting for the disk takes milliseconds, in which the executor's threads have other work.
            (Durability::Power, Ok(runtime)) => {
                let commits = RunOnDrop(Arc::clone(self));
                drop(runtime.spawn_blocking(move || drop(commits)));
            }
            _ => self.run(),
        }
    }

    /// Commits until nothing waits.
    fn run(&self) {
        let mut idle = IdleOnDrop { committer: self, is_idle: false };
        while let Some(commits) = self.next_commits() {
            let drafts: Vec<_> = commits.iter().flat_map(|commit| &commit.drafts).collect();
            let result = {
                let mut journal = lock(&self.journal);
                let result = journal.write(&drafts, self.clock.timestamp());
                self.open_calls.store(journal.unended().count(), Ordering::Relaxed);
                result
            };
            commits.into_iter().for_each(|commit| commit.finish(&result));
        }
        idle.is_idle = true;
    }

    /// Returns true if many other calls may be ready to run and to add entries.
    fn has_many_calls(&self) -> bool {
        let calls = self.open_calls.load(Ordering::Relaxed);
        // With `power`, entries are added while the disk is waited for.
        self.durability == Durability::Process
            && calls > CALLS_A_THREAD
            && tokio::runtime::Handle::try_current()
                .is_ok_and(|runtime| calls > CALLS_A_THREAD.saturating_mul(runtime.metrics().num_workers()))
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commits when it is dropped: on the thread that it was handed to, or where a runtime that ends drops it.
struct RunOnDrop(Arc<JournalCommitter>);

impl Drop for RunOnDrop {
    fn drop(&mut self) {
        self.0.run();
    }
}

/// Lets the next caller commit, also if the thread panicked: the callers that wait get an error then.
struct IdleOnDrop<'c> {
    committer: &'c JournalCommitter,
    /// True if nothing waits.
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
            let panicked = "a thread panicked while it wrote the journal";
            let failed = Err(AuditError::new(AuditErrorKind::Other, panicked));
            lost.into_iter().for_each(|commit| commit.finish(&failed));
        }
    }
}
