//! The thread with the connections: it keeps one session for circuits and rate limits, and opens it again when it is lost.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::time::Duration;

use cofferdam_egress::resilience::{CircuitReplica, SharedCircuitChange};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_postgres::Client;
use uuid::Uuid;

use super::circuits::CircuitSession;
use super::rate_limits::{self, RateRequest};
use super::{Work, renewals};
use crate::database::{Database, DatabaseError};

/// The interval at which the copy of the circuits is read again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The longest time for one exchange with the database. A longer one counts as its loss.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between attempts to open the session.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The most requests that are answered with one exchange.
const MAX_BATCH: usize = 1024;

/// Neither a circuit nor a reservation is worth a wait for the disk: a crash of the server loses less than a second of them.
const SESSION: &str =
    "SET synchronous_commit = off; SET lock_timeout = '1s'; SET statement_timeout = '1500ms'";

/// The thread's state.
pub(super) struct Worker {
    database: Database,
    circuits: Arc<CircuitReplica>,
    is_away: Arc<AtomicBool>,
    /// The identity of this process among those that may probe.
    id: Uuid,
}

impl Worker {
    pub(super) fn new(database: Database, circuits: Arc<CircuitReplica>, is_away: Arc<AtomicBool>) -> Self {
        Self { database, circuits, is_away, id: Uuid::now_v7() }
    }

    /// Works until the queue is closed, and writes what is left of the changes.
    pub(super) fn run(
        self,
        queue: mpsc::UnboundedReceiver<Work>,
        changes: mpsc::Receiver<SharedCircuitChange>,
        started: &sync_mpsc::Sender<()>,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(self.work(queue, changes, started));
                // Renewals end with their connections.
                runtime.shutdown_timeout(Duration::from_millis(100));
            }
            Err(error) => {
                tracing::warn!(target: "cofferdam::cluster", %error, "state is not shared with the other hosts");
            }
        }
    }

    async fn work(
        self,
        mut queue: mpsc::UnboundedReceiver<Work>,
        mut changes: mpsc::Receiver<SharedCircuitChange>,
        started: &sync_mpsc::Sender<()>,
    ) {
        let mut session: Option<Session> = None;
        let mut retry = Instant::now();
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut rates, mut pending_changes) = (Vec::new(), Vec::new());
        loop {
            if session.is_none() && Instant::now() >= retry {
                session = self.open().await;
                retry = Instant::now() + RECONNECT_PAUSE;
                let _ = started.send(());
            }
            tokio::select! {
                work = queue.recv() => match work {
                    None => break,
                    Some(work) => {
                        let mut next = Some(work);
                        while let Some(work) = next {
                            self.take(work, &mut rates);
                            next = if rates.len() < MAX_BATCH { queue.try_recv().ok() } else { None };
                        }
                    }
                },
                // Without a session they wait in their queue.
                change = next_change(&mut changes), if session.is_some() => {
                    let mut next = Some(change);
                    while let Some(change) = next {
                        pending_changes.push(change);
                        next = if pending_changes.len() < MAX_BATCH { changes.try_recv().ok() } else { None };
                    }
                }
                _ = poll.tick() => {}
            }
            let requests = std::mem::take(&mut rates);
            let batch = std::mem::take(&mut pending_changes);
            // Dropped requests tell their callers that the state is away.
            let Some(open) = &mut session else { continue };
            let exchange = open.exchange(requests, &batch, &self.circuits, self.id);
            let failed = match timeout(EXCHANGE_TIMEOUT, exchange).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("it does not answer in time".to_owned()),
            };
            if let Some(reason) = failed {
                session = None;
                retry = Instant::now() + RECONNECT_PAUSE;
                self.note_away(Some(reason));
            }
        }
        // What other hosts have to know of the last calls.
        let mut left = Vec::new();
        while let Ok(change) = changes.try_recv() {
            left.push(change);
        }
        if let Some(open) = &mut session
            && !left.is_empty()
        {
            let exchange = open.exchange(Vec::new(), &left, &self.circuits, self.id);
            drop(timeout(EXCHANGE_TIMEOUT, exchange).await);
        }
    }

    fn take(&self, work: Work, rates: &mut Vec<RateRequest>) {
        match work {
            Work::Rate(request) => rates.push(request),
            Work::Renewal(request) => {
                tokio::spawn(renewals::serve(self.database.clone(), request));
            }
        }
    }

    async fn open(&self) -> Option<Session> {
        let opened = async {
            let client = self.database.connect().await?;
            client.batch_execute(SESSION).await.map_err(|error| DatabaseError::from_sql(&error))?;
            let mut session = Session::prepare(client).await?;
            session.exchange(Vec::new(), &[], &self.circuits, self.id).await?;
            Ok::<_, DatabaseError>(session)
        };
        match opened.await {
            Ok(session) => {
                self.note_away(None);
                Some(session)
            }
            Err(error) => {
                self.note_away(Some(error.to_string()));
                None
            }
        }
    }

    /// Notes whether the database is away, and says once that this changed.
    fn note_away(&self, reason: Option<String>) {
        let was_away = self.is_away.swap(reason.is_some(), Ordering::AcqRel);
        let is_first = self.circuits.set_away(reason.clone());
        match reason {
            Some(reason) if is_first || !was_away => tracing::warn!(
                target: "cofferdam::cluster", reason,
                "circuits and rate limits are this host's own until the database is back"
            ),
            None if was_away && !is_first => {}
            None if was_away => {
                tracing::info!(target: "cofferdam::cluster", "circuits and rate limits are shared with the other hosts");
            }
            _ => {}
        }
    }
}

/// Returns the next change; never if the host has none any more.
async fn next_change(changes: &mut mpsc::Receiver<SharedCircuitChange>) -> SharedCircuitChange {
    match changes.recv().await {
        Some(change) => change,
        None => pending().await,
    }
}

/// The session for circuits and rate limits.
struct Session {
    client: Client,
    circuits: CircuitSession,
    rates: rate_limits::RateStatements,
}

impl Session {
    async fn prepare(client: Client) -> Result<Self, DatabaseError> {
        let prepare = async {
            let circuits = CircuitSession::prepare(&client).await?;
            let rates = rate_limits::RateStatements::prepare(&client).await?;
            Ok::<_, tokio_postgres::Error>((circuits, rates))
        };
        let (circuits, rates) = prepare.await.map_err(|error| DatabaseError::from_sql(&error))?;
        Ok(Self { client, circuits, rates })
    }

    /// Answers requests for send times, writes changes of circuits, and reads the copy when that is due.
    async fn exchange(
        &mut self,
        requests: Vec<RateRequest>,
        changes: &[SharedCircuitChange],
        circuits: &CircuitReplica,
        id: Uuid,
    ) -> Result<(), DatabaseError> {
        let exchange = async {
            if !requests.is_empty() {
                self.rates.answer(&self.client, requests).await?;
            }
            self.circuits.write(&mut self.client, changes).await?;
            if !changes.is_empty() || self.circuits.is_due(POLL_INTERVAL) {
                self.circuits.read(&self.client, circuits, id).await?;
            }
            Ok::<_, tokio_postgres::Error>(())
        };
        exchange.await.map_err(|error| DatabaseError::from_sql(&error))
    }
}
