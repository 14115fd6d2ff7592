//! Places for connections: who has shown that it may ask keeps its place, and strangers make room for each other.
//!
//! A connection costs memory and a socket before anything is known of its peer. If strangers could hold all places, they
//! would lock out those who have a token: so some places are never theirs, and where there is none left for a stranger
//! that comes, the stranger that was there longest goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// One of so many places is never a stranger's.
const KEPT: usize = 16;

/// The places of one server.
#[derive(Clone)]
pub(super) struct Places {
    shared: Arc<Shared>,
}

struct Shared {
    most: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Those that have shown nothing, the oldest first.
    strangers: BTreeMap<u64, CancellationToken>,
    /// How many have.
    known: usize,
}

impl Taken {
    fn all(&self) -> usize {
        self.strangers.len() + self.known
    }
}

/// The place of one connection, until this is dropped.
pub(super) struct Place {
    number: u64,
    gone: CancellationToken,
    shared: Arc<Shared>,
}

impl Places {
    /// So many places, all free.
    pub(super) fn new(most: usize) -> Self {
        Self { shared: Arc::new(Shared { most, taken: Mutex::default(), freed: Notify::new() }) }
    }

    /// Ready once there is a place for a stranger: a free one, or another stranger's.
    pub(super) async fn room(&self) {
        loop {
            let freed = self.shared.freed.notified();
            {
                let taken = self.shared.taken();
                if taken.all() < self.shared.most || !taken.strangers.is_empty() {
                    return;
                }
            }
            freed.await;
        }
    }

    /// A place for a stranger, whom another stranger makes room for where that has to be.
    pub(super) fn take(&self) -> Place {
        let mut taken = self.shared.taken();
        let most = self.shared.most;
        if taken.strangers.len() >= most - most / KEPT || taken.all() >= most {
            if let Some((_, gone)) = taken.strangers.pop_first() {
                gone.cancel();
            }
        }
        let (number, gone) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.strangers.insert(number, gone.clone());
        Place { number, gone, shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// It may ask: from now on it keeps its place. False where it had to go a moment before.
    pub(super) fn keep(&self) -> bool {
        let mut taken = self.shared.taken();
        if taken.strangers.remove(&self.number).is_some() {
            taken.known += 1;
            return true;
        }
        !self.gone.is_cancelled()
    }

    /// Ready once it has to go.
    pub(super) async fn lost(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shared.taken();
        if taken.strangers.remove(&self.number).is_none() && !self.gone.is_cancelled() {
            taken.known = taken.known.saturating_sub(1);
        }
        drop(taken);
        self.shared.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]
    use super::{Place, Places};

    fn gone(place: &Place) -> bool {
        place.gone.is_cancelled()
    }

    #[tokio::test]
    async fn strangers_make_room_and_who_may_ask_keeps_its_place() {
        let places = Places::new(32);
        let mut all: Vec<_> = (0..30).map(|_| places.take()).collect();
        assert!(!all.iter().any(gone), "so many are strangers' at once");
        assert!(all[0].keep() && all[0].keep());
        all.push(places.take());
        all.push(places.take());
        assert!(
            !gone(&all[0]) && gone(&all[1]) && !gone(&all[2]),
            "the longest there, of those that are strangers"
        );
        assert!(!all[1].keep(), "who had to go runs nothing any more");
        for place in &all[2..] {
            assert!(place.keep());
        }
        // 31 are known: the one place that is left goes from stranger to stranger.
        let (one, two) = (places.take(), places.take());
        assert!(gone(&one) && !gone(&two) && two.keep());
        let full = tokio::time::timeout(std::time::Duration::from_millis(50), places.room()).await;
        assert!(full.is_err(), "nobody is shed who may ask");
        all.pop();
        places.room().await;
    }
}
