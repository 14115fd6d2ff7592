//! Places for connections: who has shown that it may ask keeps its place, and strangers make room for each other.
//!
//! A connection costs memory and a socket before anything is known of its peer. If strangers could hold all places, they
//! would lock out those who have a token: so some places are never theirs, and where there is none left for a stranger
//! that comes, the stranger that was there longest goes, once it has had its chance to ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// One of so many places is never a stranger's.
const KEPT: usize = 16;

/// How long a stranger has to ask before it makes room for another: a crowd of clients that come at once is no attack.
const CHANCE: Duration = Duration::from_secs(1);

/// The places of one server.
#[derive(Clone)]
pub(super) struct Places {
    shared: Arc<Shared>,
}

struct Shared {
    most: usize,
    chance: Duration,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Those that have shown nothing, the oldest first.
    strangers: BTreeMap<u64, (Instant, CancellationToken)>,
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
        Self::with_chance(most, CHANCE)
    }

    fn with_chance(most: usize, chance: Duration) -> Self {
        let (taken, freed) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { most, chance, taken, freed }) }
    }

    /// Ready once there is a place for a stranger: a free one, or another stranger's.
    pub(super) async fn room(&self) {
        loop {
            let freed = self.shared.freed.notified();
            let chance_ends = {
                let taken = self.shared.taken();
                if !self.shared.is_full(&taken) {
                    return;
                }
                taken.strangers.first_key_value().map(|(_, (since, _))| *since + self.shared.chance)
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

    /// A place for a stranger, whom another stranger makes room for where that has to be.
    pub(super) fn take(&self) -> Place {
        let mut taken = self.shared.taken();
        if self.shared.is_full(&taken)
            && let Some((_, (_, gone))) = taken.strangers.pop_first()
        {
            gone.cancel();
        }
        let (number, gone) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.strangers.insert(number, (Instant::now(), gone.clone()));
        Place { number, gone, shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    /// Whether a stranger gets a place only where another goes.
    fn is_full(&self, taken: &Taken) -> bool {
        taken.strangers.len() >= self.most - self.most / KEPT || taken.all() >= self.most
    }

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
            drop(taken);
            self.shared.freed.notify_one();
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
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use std::time::Duration;

    use super::{Place, Places};

    fn gone(place: &Place) -> bool {
        place.gone.is_cancelled()
    }

    #[tokio::test]
    async fn strangers_make_room_and_who_may_ask_keeps_its_place() {
        let places = Places::with_chance(32, Duration::ZERO);
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
        let full = tokio::time::timeout(Duration::from_millis(50), places.room()).await;
        assert!(full.is_err(), "nobody is shed who may ask");
        all.pop();
        places.room().await;
    }

    #[tokio::test]
    async fn a_crowd_that_comes_at_once_is_not_shed() {
        let places = Places::with_chance(2, Duration::from_secs(600));
        let (one, two) = (places.take(), places.take());
        let room = |for_ms| tokio::time::timeout(Duration::from_millis(for_ms), places.room());
        assert!(room(50).await.is_err() && !gone(&one) && !gone(&two), "both may still ask");
        assert!(one.keep() && room(50).await.is_err(), "it took no place from nobody");
        drop(one);
        room(60_000).await.unwrap();
        let short = Places::with_chance(1, Duration::from_millis(100));
        let silent = short.take();
        short.room().await;
        drop(short.take());
        assert!(gone(&silent), "who has had its chance makes room");
    }
}
