//! Connection permits: an authenticated connection keeps its permit, and unauthenticated ones are evicted for
//! each other.
//!
//! A connection costs memory and a socket before its peer is known. If unauthenticated connections could hold
//! all permits, they would lock out clients with a token. So a share of the permits is never theirs. If a new
//! connection finds no permit, the oldest unauthenticated one is evicted, once it has had its time to
//! authenticate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// One permit of so many is reserved for authenticated connections.
const AUTHENTICATED_SHARE: usize = 16;

/// The time for a connection to authenticate before it can be evicted: many clients that connect at once are
/// no attack.
const AUTH_GRACE: Duration = Duration::from_secs(1);

/// The connection permits of one server.
#[derive(Clone)]
pub(super) struct ConnectionLimiter {
    shared: Arc<LimiterShared>,
}

struct LimiterShared {
    most: usize,
    auth_grace: Duration,
    taken: Mutex<ConnectionCounts>,
    freed: Notify,
}

#[derive(Default)]
struct ConnectionCounts {
    next: u64,
    /// The unauthenticated connections, the oldest first.
    unauthenticated: BTreeMap<u64, (Instant, CancellationToken)>,
    /// The number of authenticated connections.
    authenticated: usize,
}

impl ConnectionCounts {
    fn all(&self) -> usize {
        self.unauthenticated.len() + self.authenticated
    }
}

/// The permit of one connection, until this is dropped.
pub(super) struct ConnectionPermit {
    number: u64,
    gone: CancellationToken,
    shared: Arc<LimiterShared>,
}

impl ConnectionLimiter {
    /// Creates a limiter with so many permits, all free.
    pub(super) fn new(most: usize) -> Self {
        Self::with_auth_grace(most, AUTH_GRACE)
    }

    fn with_auth_grace(most: usize, chance: Duration) -> Self {
        let (taken, freed) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(LimiterShared { most, auth_grace: chance, taken, freed }) }
    }

    /// Completes once a new connection can have a permit: a free one, or that of an evicted connection.
    pub(super) async fn wait_for_capacity(&self) {
        loop {
            let freed = self.shared.freed.notified();
            let chance_ends = {
                let taken = self.shared.taken();
                if !self.shared.is_full(&taken) {
                    return;
                }
                taken.unauthenticated.first_key_value().map(|(_, (since, _))| *since + self.shared.auth_grace)
            };
            match chance_ends {
                None => freed.await,
                Some(end) if end <= Instant::now() => return,
                Some(end) => tokio::select! {
                    () = freed => {}
                    () = sleep_until(end) => {}
                },
            }
        }
    }

    /// Returns a permit for a new connection; evicts the oldest unauthenticated connection if necessary.
    pub(super) fn acquire(&self) -> ConnectionPermit {
        let mut taken = self.shared.taken();
        if self.shared.is_full(&taken)
            && let Some((_, (_, gone))) = taken.unauthenticated.pop_first()
        {
            gone.cancel();
        }
        let (number, gone) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.unauthenticated.insert(number, (Instant::now(), gone.clone()));
        ConnectionPermit { number, gone, shared: Arc::clone(&self.shared) }
    }
}

impl LimiterShared {
    /// Returns true if a new connection only gets a permit by an eviction.
    fn is_full(&self, taken: &ConnectionCounts) -> bool {
        taken.unauthenticated.len() >= self.most - self.most / AUTHENTICATED_SHARE || taken.all() >= self.most
    }

    fn taken(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Marks the connection as authenticated: from now on it keeps its permit. Returns false if it was
    /// evicted a moment before.
    pub(super) fn mark_authenticated(&self) -> bool {
        let mut taken = self.shared.taken();
        if taken.unauthenticated.remove(&self.number).is_some() {
            taken.authenticated += 1;
            drop(taken);
            self.shared.freed.notify_one();
            return true;
        }
        !self.gone.is_cancelled()
    }

    /// Completes once the connection is evicted.
    pub(super) async fn revoked(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.shared.taken();
        if taken.unauthenticated.remove(&self.number).is_none() && !self.gone.is_cancelled() {
            taken.authenticated = taken.authenticated.saturating_sub(1);
        }
        drop(taken);
        self.shared.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use std::time::Duration;

    use super::{ConnectionLimiter, ConnectionPermit};

    fn gone(place: &ConnectionPermit) -> bool {
        place.gone.is_cancelled()
    }

    #[tokio::test]
    async fn unauthenticated_connections_are_evicted_first() {
        let places = ConnectionLimiter::with_auth_grace(32, Duration::ZERO);
        let mut all: Vec<_> = (0..30).map(|_| places.acquire()).collect();
        assert!(!all.iter().any(gone), "so many are strangers' at once");
        assert!(all[0].mark_authenticated() && all[0].mark_authenticated());
        all.push(places.acquire());
        all.push(places.acquire());
        assert!(
            !gone(&all[0]) && gone(&all[1]) && !gone(&all[2]),
            "the longest there, of those that are strangers"
        );
        assert!(!all[1].mark_authenticated(), "who had to go runs nothing any more");
        for place in &all[2..] {
            assert!(place.mark_authenticated());
        }
        // 31 are authenticated: the one remaining permit passes from one unauthenticated connection to the
        // next.
        let (one, two) = (places.acquire(), places.acquire());
        assert!(gone(&one) && !gone(&two) && two.mark_authenticated());
        let full = tokio::time::timeout(Duration::from_millis(50), places.wait_for_capacity()).await;
        assert!(full.is_err(), "nobody is shed who may ask");
        all.pop();
        places.wait_for_capacity().await;
    }

    #[tokio::test]
    async fn unauthenticated_connections_keep_their_grace() {
        let places = ConnectionLimiter::with_auth_grace(2, Duration::from_secs(600));
        let (one, two) = (places.acquire(), places.acquire());
        let room = |for_ms| tokio::time::timeout(Duration::from_millis(for_ms), places.wait_for_capacity());
        assert!(room(50).await.is_err() && !gone(&one) && !gone(&two), "both may still ask");
        assert!(one.mark_authenticated() && room(50).await.is_err(), "it took no place from nobody");
        drop(one);
        room(60_000).await.unwrap();
        let short = ConnectionLimiter::with_auth_grace(1, Duration::from_millis(100));
        let silent = short.acquire();
        short.wait_for_capacity().await;
        drop(short.acquire());
        assert!(gone(&silent), "who has had its chance makes room");
    }
}
