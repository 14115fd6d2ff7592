//! Connections that wait for their next request.
//!
//! Why an own pool and not that of hyper-util's client: its connector sees only a URI, so that the
//! deadline and the phase of one request cannot reach it; it may finish connecting for a request that is
//! gone; and after a failure it cannot say whether bytes went out. What remains to be done here is small,
//! because a connection comes back only when both its messages are over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::authority::Target;
use super::connection::Connection;

/// Waiting connections of one connector, all targets together.
const CONNECTIONS: usize = 32;

/// How long a connection waits. Servers drop idle ones after 5 to 75 seconds; the shorter the wait, the
/// rarer a request is written to a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(20);

/// What two requests must have in common to share a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolKey {
    pub(super) target: Target,
    /// Whose credentials, and which state of them; see [`Authorization`](super::Authorization).
    pub(super) identity: Option<Arc<str>>,
}

/// The waiting connections of one connector; the one used last is taken first.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    connections: Vec<(PoolKey, Instant, Connection)>,
    reaped: bool,
}

impl Waiting {
    fn discard_stale(&mut self) {
        self.connections
            .retain(|(_, since, connection)| since.elapsed() < IDLE && !connection.sender.is_closed());
    }
}

impl Pool {
    /// A connection of this key, if one waits. It may still close at any moment.
    pub(super) fn take(&self, key: &PoolKey) -> Option<Connection> {
        let mut waiting = self.lock();
        waiting.discard_stale();
        let position = waiting.connections.iter().rposition(|(of, ..)| of == key)?;
        Some(waiting.connections.remove(position).2)
    }

    /// Takes back a connection whose request was sent whole and whose response was read whole.
    pub(super) fn put(self: &Arc<Self>, key: PoolKey, connection: Connection) {
        let mut waiting = self.lock();
        waiting.discard_stale();
        if waiting.connections.len() >= CONNECTIONS {
            waiting.connections.remove(0);
        }
        waiting.connections.push((key, Instant::now(), connection));
        // Without a runtime nobody would reap; then the next take or put does.
        if !waiting.reaped
            && let Ok(runtime) = Handle::try_current()
        {
            waiting.reaped = true;
            runtime.spawn(reap(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what waited too long, until nothing waits or the pool is gone.
async fn reap(pool: Weak<Pool>) {
    loop {
        sleep(IDLE).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut waiting = pool.lock();
        waiting.discard_stale();
        if waiting.connections.is_empty() {
            waiting.reaped = false;
            return;
        }
    }
}
