//! A worker: takes jobs from the queue, as many at once as it has lanes, until it is told to end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{AckKind, Message};
use cofferdam_core::error::HostError;
use cofferdam_core::rng::{RandomSource, SystemRng};
use cofferdam_runtime::host::Host;
use cofferdam_server::server::Shutdown;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use super::authentication::JobId;
use super::metrics::JobMetrics;
use super::queue::JobQueue;
use super::record::WorkerPresence;
use super::settings::JobTrace;

/// The time of one request for a job. The server answers a request that waits as soon as there is a job.
const PULL: Duration = Duration::from_secs(30);

/// The pause after an error of the queue.
const PAUSE: Duration = Duration::from_millis(500);

/// The time between two announcements that the worker lives.
const PRESENCE: Duration = Duration::from_secs(10);

/// The time for cancelled calls to be recorded and handed back.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The name of the worker, which no other one has.
    pub name: String,
    /// The number of jobs that run at once.
    pub concurrency: u32,
    /// The number of runs without an end after which a job is dead: it ends its workers.
    pub max_interruptions: u32,
    /// The time for running jobs once the worker is told to end. Then their calls are cancelled.
    pub grace: Duration,
}

/// A worker. Cheap to clone.
#[derive(Clone)]
pub struct Worker(pub(super) Arc<WorkerContext>);

/// The state that all lanes of a worker share.
pub(super) struct WorkerContext {
    pub(super) queue: JobQueue,
    pub(super) host: Host,
    pub(super) settings: WorkerSettings,
    pub(super) metrics: Arc<JobMetrics>,
    pub(super) trace: Option<Arc<dyn JobTrace>>,
    pub(super) rng: Arc<dyn RandomSource>,
    pub(super) shutdown: Shutdown,
    /// True if the last request for a job failed, and that was logged.
    is_troubled: AtomicBool,
    /// The jobs that this worker runs now.
    running: Mutex<HashSet<JobId>>,
}

/// A job that this worker runs, until this is dropped.
pub(super) struct RunningJob<'w> {
    worker: &'w WorkerContext,
    id: JobId,
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.worker.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl WorkerContext {
    /// Notes that this worker runs the job. None if it does already: the message was delivered again.
    pub(super) fn begin(&self, id: &JobId) -> Option<RunningJob<'_>> {
        let is_new = self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        is_new.then(|| RunningJob { worker: self, id: id.clone() })
    }
}

impl Worker {
    /// Creates a worker that runs the jobs of `queue` with `host`, until `shutdown` begins.
    #[must_use]
    pub fn new(
        queue: JobQueue,
        host: Host,
        settings: WorkerSettings,
        metrics: Arc<JobMetrics>,
        trace: Option<Arc<dyn JobTrace>>,
        shutdown: Shutdown,
    ) -> Self {
        let (running, is_troubled) = (Mutex::default(), AtomicBool::new(false));
        let rng = Arc::new(SystemRng);
        Self(Arc::new(WorkerContext {
            queue,
            host,
            settings,
            metrics,
            trace,
            rng,
            shutdown,
            is_troubled,
            running,
        }))
    }

    /// Takes and runs jobs until the shutdown begins. Then it takes no more, lets running ones end within the grace, has
    /// their calls cancelled, and gives their jobs back. Errors of the queue are logged, and it goes on.
    pub async fn run(&self) {
        let shutdown = self.0.shutdown.clone();
        let mut lanes = JoinSet::new();
        for _ in 0..self.0.settings.concurrency.max(1) {
            lanes.spawn(lane(Arc::clone(&self.0)));
        }
        let present = tokio::spawn(announce(Arc::clone(&self.0)));
        shutdown.begun().await;
        let ended = async |lanes: &mut JoinSet<()>| while lanes.join_next().await.is_some() {};
        if timeout(self.0.settings.grace, ended(&mut lanes)).await.is_err() {
            shutdown.cancel();
            if timeout(DRAIN_TIMEOUT, ended(&mut lanes)).await.is_err() {
                tracing::warn!(target: "cofferdam::jobs", jobs = lanes.len(), "jobs were left to other workers");
            }
        }
        lanes.shutdown().await;
        present.abort();
        if let Ok(streams) = self.0.queue.streams().await {
            streams.records.withdraw(&self.0.settings.name).await;
        }
        self.0.queue.connection().flush().await;
    }
}

/// Announces every few seconds that the worker lives.
async fn announce(worker: Arc<WorkerContext>) {
    let presence =
        WorkerPresence { worker: worker.settings.name.clone(), concurrency: worker.settings.concurrency };
    let mut every = interval(PRESENCE);
    let mut reconnections = worker.queue.connection().reconnections();
    let mut ticks = 0_u64;
    loop {
        tokio::select! {
            _ = every.tick() => {
                ticks = ticks.saturating_add(1);
                if ticks == 2 && !worker.queue.connection().is_connected() {
                    tracing::warn!(target: "cofferdam::jobs", "NATS is not reached yet; it is tried again");
                }
            }
            Ok(()) = reconnections.changed() => {}
        }
        let announced = async { worker.queue.streams().await?.records.announce(&presence).await };
        if let Err(error) = announced.await {
            tracing::debug!(target: "cofferdam::jobs", %error, "the worker could not be announced");
        }
    }
}

/// Takes and runs one job after the other.
async fn lane(worker: Arc<WorkerContext>) {
    let mut consumer: Option<Consumer<pull::Config>> = None;
    let mut reconnections = worker.queue.connection().reconnections();
    while !worker.shutdown.has_begun() {
        if !worker.queue.connection().is_connected() {
            // The connection says itself that it is lost.
            tokio::select! {
                () = worker.shutdown.begun() => return,
                _ = reconnections.changed() => {}
                () = sleep(PAUSE) => {}
            }
            continue;
        }
        let taken = async {
            match &consumer {
                Some(consumer) => next_message(&worker, consumer).await,
                None => {
                    consumer = Some(worker.queue.consumer().await?);
                    Ok(None)
                }
            }
        };
        match taken.await {
            Ok(Some(message)) => {
                worker.is_troubled.store(false, Ordering::Relaxed);
                worker.handle(message).await;
            }
            Ok(None) => {}
            Err(error) => {
                consumer = None;
                // All lanes have the same trouble.
                if !worker.is_troubled.swap(true, Ordering::Relaxed) {
                    tracing::warn!(target: "cofferdam::jobs", %error, "no jobs can be taken; it is tried again");
                }
                tokio::select! {
                    () = worker.shutdown.begun() => {}
                    () = sleep(PAUSE) => {}
                }
            }
        }
    }
}

/// Waits for the next job. None if the request timed out, the connection was made again, or the shutdown begins.
async fn next_message(
    worker: &WorkerContext,
    consumer: &Consumer<pull::Config>,
) -> Result<Option<Message>, HostError> {
    let connection = worker.queue.connection();
    let mut reconnections = connection.reconnections();
    reconnections.mark_unchanged();
    let batch = consumer.batch().max_messages(1).expires(PULL).messages().await;
    let mut batch = batch.map_err(|error| connection.unavailable(error.kind()))?;
    tokio::select! {
        biased;
        () = worker.shutdown.begun() => {
            // A job that has arrived meanwhile goes back at once, not after the time of its acknowledgement.
            if let Some(Some(Ok(message))) = batch.next().now_or_never() {
                drop(message.ack_with(AckKind::Nak(None)).await);
            }
            Ok(None)
        }
        message = batch.next() => match message {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(message)),
            Some(Err(error)) => Err(connection.unavailable(error)),
        },
        // The request is lost with its connection.
        _ = reconnections.changed() => Ok(None),
        () = sleep(PULL + PAUSE) => Ok(None),
    }
}
