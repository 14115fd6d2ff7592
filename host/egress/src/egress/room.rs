//! How many requests the server of an HTTP/2 connection takes at once, and who waits until it takes one more.
//!
//! h2 would keep a request for which there is no room, and sends it later even if it was given up meanwhile
//! (its head, then a reset). So what is handed to h2 counts as sent, and what waits, waits here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Queue, Notify};

/// The room on one connection.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<State>,
    /// First come, first served.
    queue: Queue<()>,
    /// Wakes the first of the queue.
    news: Notify,
}

#[derive(Debug)]
struct State {
    taken: usize,
    /// None once the connection ended.
    limit: Option<usize>,
}

/// The right to one open stream, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Room>);

impl Room {
    /// Room for `limit` requests at once, until the server says otherwise.
    pub(super) fn new(limit: usize) -> Self {
        let state = Mutex::new(State { taken: 0, limit: Some(limit) });
        Self { state, queue: Queue::default(), news: Notify::new() }
    }

    /// Takes the server's word, which may also be a smaller one than before.
    pub(super) fn holds(&self, now: usize) {
        if let Some(limit) = &mut self.lock().limit
            && *limit != now
        {
            *limit = now;
            self.news.notify_one();
        }
    }

    /// Ends the wait of everybody: the connection ended.
    pub(super) fn close(&self) {
        self.lock().limit = None;
        self.news.notify_one();
    }

    /// Waits for a place; none if the connection ended before there was one.
    pub(super) async fn place(self: &Arc<Self>) -> Option<Place> {
        let _first = self.queue.lock().await;
        loop {
            {
                let mut state = self.lock();
                if state.taken < state.limit? {
                    state.taken += 1;
                    return Some(Place(Arc::clone(self)));
                }
            }
            self.news.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().taken -= 1;
        self.0.news.notify_one();
    }
}
