//! Connections that wait for their next request, and those that are shared.
//!
//! Why an own pool and not that of hyper-util's client: its connector sees only a URI, so that the
//! deadline and the phase of one request cannot reach it; it may finish connecting for a request that is
//! gone; and after a failure it cannot say whether bytes went out. What remains to be done here is small:
//! an HTTP/1.1 connection comes back only when both its messages are over, and one of HTTP/2 is given
//! out again and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cofferdam_model::manifest::Scheme;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::authority::Target;
use super::connection::Connection;
use super::multiplexed::{Multiplexed, Share};
use super::progress::Progress;

/// Waiting connections of one connector, all targets together; and as many that are shared. Fewer than its
/// calls at once, and each of the calls above would connect anew.
const CONNECTIONS: usize = 128;

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

/// The connections of one connector that take another request.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Waiting>);

/// A connection for one more request.
#[derive(Debug)]
pub(super) enum Found {
    /// HTTP/1.1: it is this request's own, but may be closed by now.
    Own(Connection),
    /// HTTP/2.
    Shared(Share),
}

#[derive(Debug, Default)]
struct Waiting {
    connections: Vec<(PoolKey, Instant, Connection)>,
    shared: Vec<(PoolKey, Arc<Multiplexed>)>,
    /// The targets whose servers spoke HTTP/1.1 when last connected to.
    one_at_a_time: Vec<Target>,
    /// Who connects just now.
    turns: Vec<(PoolKey, Weak<Progress>)>,
    reaped: bool,
}

impl Waiting {
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

impl Pool {
    /// A connection of this key, if one takes another request; of HTTP/1.1, the one used last.
    pub(super) fn take(&self, key: &PoolKey) -> Option<Found> {
        let mut waiting = self.lock();
        waiting.discard_stale();
        let mut shared = waiting.shared.iter().filter(|(of, _)| of == key);
        if let Some(share) = shared.find_map(|(_, connection)| connection.share()) {
            return Some(Found::Shared(share));
        }
        let position = waiting.connections.iter().rposition(|(of, ..)| of == key)?;
        Some(Found::Own(waiting.connections.remove(position).2))
    }

    /// Takes back a connection whose request was sent whole and whose response was read whole.
    pub(super) fn put(self: &Arc<Self>, key: PoolKey, connection: Connection) {
        let mut waiting = self.lock();
        waiting.discard_stale();
        if waiting.connections.len() >= CONNECTIONS {
            waiting.connections.remove(0);
        }
        waiting.connections.push((key, Instant::now(), connection));
        self.see_to_reaping(&mut waiting);
    }

    /// Takes in a new connection to be shared; the first share in it.
    pub(super) fn share(self: &Arc<Self>, key: &PoolKey, connection: Multiplexed) -> Option<Share> {
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

    /// Notes that this server speaks HTTP/1.1, so that nobody waits for a share in a connection to it.
    pub(super) fn one_at_a_time(&self, target: &Target) {
        let mut waiting = self.lock();
        if !waiting.one_at_a_time.contains(target) {
            waiting.one_at_a_time.push(target.clone());
        }
    }

    /// Who connects for this key: several that want to must wait for the first, whose connection may do for
    /// all. None where it cannot.
    pub(super) fn turn(&self, key: &PoolKey) -> Option<Arc<Progress>> {
        let mut waiting = self.lock();
        if key.target.scheme() == Scheme::Http || waiting.one_at_a_time.contains(&key.target) {
            return None;
        }
        let turn = waiting.turns.iter().find(|(of, _)| of == key).and_then(|(_, turn)| turn.upgrade());
        Some(turn.unwrap_or_else(|| {
            let turn = Arc::<Progress>::default();
            waiting.turns.retain(|(_, turn)| turn.strong_count() > 0);
            waiting.turns.push((key.clone(), Arc::downgrade(&turn)));
            turn
        }))
    }

    /// Without a runtime nobody would reap; then the next take or put does.
    fn see_to_reaping(self: &Arc<Self>, waiting: &mut Waiting) {
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
        if waiting.connections.is_empty() && waiting.shared.is_empty() {
            waiting.reaped = false;
            return;
        }
    }
}
