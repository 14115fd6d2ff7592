//! Group commit: entries of many callers in one write, without a thread of its own.
//!
//! A caller that finds the journal idle writes all waiting entries on its own thread. Others leave their entries with
//! it. Handing over to a writer thread would cost more than the write itself, as a processor has to be woken.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use cofferdam_core::clock::Clock;
use tokio::sync::oneshot;

use super::line::EntryDraft;
use super::{Durability, Journal};
use crate::error::{AuditError, AuditErrorKind};

/// The most entries in one write.
const ENTRIES_AT_ONCE: usize = 1_024;

/// Commits the entries of many callers to one journal.
pub(crate) struct JournalCommitter {
    queue: Mutex<CommitQueue>,
    /// Only the thread that commits locks it, and those that look at the journal.
    journal: Mutex<Journal>,
    clock: Arc<dyn Clock>,
    durability: Durability,
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

/// The consequence of a commit, which is drawn before any caller gets the result, also if none waits for it.
pub(crate) type AfterCommit = Box<dyn FnOnce(&Result<(), AuditError>) + Send>;

/// The future of a commit, which goes on if it is dropped.
pub(crate) type CommitFuture = Pin<Box<dyn Future<Output = Result<(), AuditError>> + Send>>;

/// The consequence of a failed commit whose caller has gone without the result.
pub(crate) type UnheardFailure = dyn Fn() + Send + Sync;

/// Waits for the result of a commit.
struct CommitResult {
    result: oneshot::Receiver<Result<(), AuditError>>,
    unheard: Option<Arc<UnheardFailure>>,
}

impl Future for CommitResult {
    type Output = Result<(), AuditError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(context).map(|result| {
            let lost = |_| {
                Err(AuditError::new(AuditErrorKind::Other, "a thread panicked while it wrote the journal"))
            };
            result.unwrap_or_else(lost)
        })
    }
}

impl Drop for CommitResult {
    fn drop(&mut self) {
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
        Arc::new(Self { queue: Mutex::default(), journal: Mutex::new(journal), clock, durability })
    }

    /// Appends these entries, all of them or none, and then calls `done`. The returned future only waits for the
    /// result. `unheard` is called if that is a failure, and the future was dropped before.
    pub(crate) fn commit(
        self: &Arc<Self>,
        drafts: Vec<EntryDraft>,
        done: AfterCommit,
        unheard: Option<Arc<UnheardFailure>>,
    ) -> CommitFuture {
        let (reply, result) = oneshot::channel();
        let waits = CommitResult { result, unheard: unheard.clone() };
        let is_idle = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(WaitingCommit { drafts, done, reply, unheard });
            !std::mem::replace(&mut queue.is_committing, true)
        };
        if is_idle {
            self.start();
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

    fn start(self: &Arc<Self>) {
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
        let _idle = IdleOnDrop(self);
        while let Some(commits) = self.next_commits() {
            let drafts: Vec<_> = commits.iter().flat_map(|commit| &commit.drafts).collect();
            let result = lock(&self.journal).write(&drafts, self.clock.timestamp());
            for WaitingCommit { done, reply, unheard, .. } in commits {
                done(&result);
                if let (Err(Err(_)), Some(unheard)) = (reply.send(result.clone()), unheard) {
                    unheard();
                }
            }
        }
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
struct IdleOnDrop<'c>(&'c JournalCommitter);

impl Drop for IdleOnDrop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut queue = lock(&self.0.queue);
            queue.waiting.clear();
            queue.is_committing = false;
        }
    }
}
