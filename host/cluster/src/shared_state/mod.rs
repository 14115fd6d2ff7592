//! The state that the hosts of a cluster share: circuits, rate limits, and the renewal of tokens, in the database of the
//! audit log.
//!
//! One thread of each process has the connections. Calls give it work through channels and never wait long for it: while
//! the database is away, a host goes on with circuits and rate limits of its own, and says so once. All times are those of
//! the database's clock, so that the hosts' clocks need not agree.

mod circuits;
mod rate_limits;
mod renewals;
#[cfg(test)]
mod tests;
mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_core::host_key::{self, HostKeyError};
use cofferdam_egress::credentials::SharedRenewals;
use cofferdam_egress::resilience::CircuitReplica;
use cofferdam_runtime::host::SharedState;
use tokio::sync::mpsc;

use self::rate_limits::{LeasedLimits, RateRequest};
use self::renewals::{DatabaseRenewals, RenewalRequest};
use crate::database::{Database, DatabaseError, DatabaseErrorKind};

/// The longest time for which the start of a process waits for the circuits of the cluster, and its end for the
/// observations that it has not written.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// The label of the key that shared tokens are sealed with.
const TOKENS_LABEL: &[u8] = b"cofferdam cluster token renewals v1";

/// The work of the thread that has the connections.
enum Work {
    Rate(RateRequest),
    Renewal(RenewalRequest),
}

/// The thread with the connections. Dropping it ends the thread after what it still has to write.
struct WorkerHandle {
    work: Option<mpsc::UnboundedSender<Work>>,
    is_away: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    ended: Mutex<sync_mpsc::Receiver<()>>,
}

impl std::fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerHandle").finish_non_exhaustive()
    }
}

impl WorkerHandle {
    /// Returns whether the database is away. A request is then not worth a wait.
    fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire)
    }

    /// Gives work to the thread; false if it has ended.
    fn send(&self, work: Work) -> bool {
        self.work.as_ref().is_some_and(|sender| sender.send(work).is_ok())
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        drop(self.work.take());
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(START_TIMEOUT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

/// Starts to share state with the other hosts of the cluster. Waits for the circuits, for two seconds at most: if the
/// database does not answer by then, this host goes on with its own.
///
/// # Errors
/// The key in the home directory cannot be used, or is missing while the database cannot be used; the thread cannot be
/// started.
pub fn start(database: &Database, home: &Path) -> Result<SharedState, DatabaseError> {
    let host_key = cluster_key(database, home)?;
    let (circuits, worker) = start_worker(database.clone())?;
    let key = host_key::derived(&host_key, TOKENS_LABEL);
    let renewals = SharedRenewals::new(Arc::new(DatabaseRenewals::new(Arc::clone(&worker))), key);
    Ok(SharedState { circuits, rates: Arc::new(LeasedLimits::new(worker)), renewals })
}

/// Starts the thread, and waits for the circuits.
fn start_worker(database: Database) -> Result<(Arc<CircuitReplica>, Arc<WorkerHandle>), DatabaseError> {
    let (circuits, changes) = CircuitReplica::new();
    let (work, queue) = mpsc::unbounded_channel();
    let (started, wait) = sync_mpsc::channel();
    let (ending, ended) = sync_mpsc::channel();
    let is_away = Arc::new(AtomicBool::new(true));
    let worker = worker::Worker::new(database, Arc::clone(&circuits), Arc::clone(&is_away));
    let thread = std::thread::Builder::new().name("cofferdam-shared".into()).spawn(move || {
        worker.run(queue, changes, &started);
        let _ = ending.send(());
    });
    let thread = thread.map_err(|error| {
        DatabaseError::new(
            DatabaseErrorKind::Busy,
            format!("the thread of the shared state cannot be started: {}", error.kind()),
            "See the limits of the machine.",
        )
    })?;
    // Without an answer the copy is empty, and is filled as soon as there is one.
    let _ = wait.recv_timeout(START_TIMEOUT);
    let worker =
        Arc::new(WorkerHandle { work: Some(work), is_away, thread: Some(thread), ended: Mutex::new(ended) });
    Ok((circuits, worker))
}

/// Returns the key of the cluster's hosts. That of a new cluster is made with its tables, by whichever host comes first.
fn cluster_key(database: &Database, home: &Path) -> Result<[u8; 32], DatabaseError> {
    let path = home.join("host.key");
    let unusable = |error: HostKeyError| {
        DatabaseError::new(DatabaseErrorKind::Busy, error, "All hosts of a cluster have the same host.key.")
    };
    if path.exists() {
        return host_key::read(&path).map_err(unusable);
    }
    let database = database.clone();
    // On a thread of its own: the caller may run in a runtime.
    let opened = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| runtime.block_on(database.connect()).map(drop))
    });
    if let Ok(Ok(Err(error))) = opened.join() {
        return Err(error);
    }
    host_key::read(&path).map_err(unusable)
}
