//! The pool of idle and shared connections.
//!
//! This is an own pool rather than that of hyper-util's client: that one's connector sees only a URI, so that
//! the deadline and the phase of one request cannot reach it; it may finish connecting for a request that is
//! gone; and after a failure it cannot tell whether bytes were sent. The rest is small: an HTTP/1.1
//! connection comes back only when both its messages are complete, and an HTTP/2 connection is shared again
//! and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cofferdam_model::manifest::UrlScheme;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::authority::RequestTarget;
use super::connection::Http1Connection;
use super::multiplexed::{H2Connection, StreamLease};
use super::progress::ConnectProgress;

/// The number of idle connections of one connector, all targets together, and the same number of shared ones.
/// If it were lower than the number of its concurrent calls, each call above it would connect again.
const CONNECTIONS: usize = 128;

/// The time that a connection stays idle. Servers drop idle ones after 5 to 75 seconds; the shorter the time,
/// the rarer a request is written to a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(20);

/// The properties that two requests must have in common to share a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolKey {
    pub(super) target: RequestTarget,
    /// The bindings and their version; see [`Authorization`](super::Authorization).
    pub(super) identity: Option<Arc<str>>,
}

/// The connections of one connector that accept another request.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool(Mutex<PoolState>);

/// A connection for one more request.
#[derive(Debug)]
pub(super) enum Checkout {
    /// HTTP/1.1: exclusive to this request, but may be closed by now.
    Own(Http1Connection),
    /// HTTP/2.
    Shared(StreamLease),
}

#[derive(Debug, Default)]
struct PoolState {
    connections: Vec<(PoolKey, Instant, Http1Connection)>,
    shared: Vec<(PoolKey, Arc<H2Connection>)>,
    /// The targets whose servers spoke HTTP/1.1 when last connected to.
    one_at_a_time: Vec<RequestTarget>,
    /// The locks of the requests that are connecting now.
    turns: Vec<(PoolKey, Weak<ConnectProgress>)>,
    reaped: bool,
}

impl PoolState {
    fn discard_stale(&mut self) {
        let now = Instant::now();
        self.connections.retain(|(_, since, connection)| {
            now.saturating_duration_since(*since) < IDLE && !connection.sender.is_closed()
        });
        self.shared.retain(|(_, connection)| {
            !connection.is_over() && connection.idle().is_none_or(|idle| idle < IDLE)
        });
        self.turns.retain(|(_, turn)| turn.strong_count() > 0);
    }
}

impl ConnectionPool {
    /// Returns a connection of this key, if one accepts another request; for HTTP/1.1, the one used last.
    pub(super) fn take(&self, key: &PoolKey) -> Option<Checkout> {
        let mut waiting = self.lock();
        waiting.discard_stale();
        let mut shared = waiting.shared.iter().filter(|(of, _)| of == key);
        if let Some(share) = shared.find_map(|(_, connection)| connection.share()) {
            return Some(Checkout::Shared(share));
        }
        let position = waiting.connections.iter().rposition(|(of, ..)| of == key)?;
        Some(Checkout::Own(waiting.connections.remove(position).2))
    }

    /// Takes back a connection whose request was completely sent and whose response was completely read.
    pub(super) fn put(self: &Arc<Self>, key: PoolKey, connection: Http1Connection) {
        let mut waiting = self.lock();
        waiting.discard_stale();
        if waiting.connections.len() >= CONNECTIONS {
            waiting.connections.remove(0);
        }
        waiting.connections.push((key, Instant::now(), connection));
        self.see_to_reaping(&mut waiting);
    }

    /// Adds a new connection to be shared, and returns the first share in it.
    pub(super) fn share(self: &Arc<Self>, key: &PoolKey, connection: H2Connection) -> Option<StreamLease> {
        let connection = Arc::new(connection);
        let share = connection.share()?;
        let mut waiting = self.lock();
        waiting.discard_stale();
        waiting.one_at_a_time.retain(|target| target != &key.target);
        if waiting.shared.len() >= CONNECTIONS
            && let Some(idle) = waiting.shared.iter().position(|(_, shared)| shared.idle().is_some())
        {
            waiting.shared.remove(idle);
        }
        waiting.shared.push((key.clone(), connection));
        self.see_to_reaping(&mut waiting);
        Some(share)
    }

    /// Records that this server speaks HTTP/1.1, so that no request waits for a share in a connection to it.
    pub(super) fn one_at_a_time(&self, target: &RequestTarget) {
        let mut waiting = self.lock();
        if !waiting.one_at_a_time.contains(target) {
            waiting.one_at_a_time.push(target.clone());
        }
    }

    /// Returns the connect lock for this key: further requests wait for the first, whose connection may serve
    /// all of them. `None` if it cannot.
    pub(super) fn turn(&self, key: &PoolKey) -> Option<Arc<ConnectProgress>> {
        let mut waiting = self.lock();
        if key.target.scheme() == UrlScheme::Http || waiting.one_at_a_time.contains(&key.target) {
            return None;
        }
        let turn = waiting.turns.iter().find(|(of, _)| of == key).and_then(|(_, turn)| turn.upgrade());
        Some(turn.unwrap_or_else(|| {
            let turn = Arc::<ConnectProgress>::default();
            waiting.turns.retain(|(_, turn)| turn.strong_count() > 0);
            waiting.turns.push((key.clone(), Arc::downgrade(&turn)));
            turn
        }))
    }

    /// Starts the reaper. Without a runtime there is none; then the next take or put reaps.
    fn see_to_reaping(self: &Arc<Self>, waiting: &mut PoolState) {
        if !waiting.reaped
            && let Ok(runtime) = Handle::try_current()
        {
            waiting.reaped = true;
            runtime.spawn(reap(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that were idle for too long, until none is left or the pool is gone.
async fn reap(pool: Weak<ConnectionPool>) {
    loop {
        sleep(IDLE).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut waiting = pool.lock();
        waiting.discard_stale();
        if waiting.connections.is_empty() && waiting.shared.is_empty() {
            waiting.reaped = false;
            return;
        }
    }
}
