//! Limits the concurrent requests on an HTTP/2 connection to the number that the server accepts; further
//! requests wait in a queue.
//!
//! h2 would keep a request above the server's limit, and send it later even if it was cancelled meanwhile
//! (its head, then a reset). Therefore a request that is handed to h2 counts as sent, and waiting happens
//! here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Queue, Notify};

/// The stream limit of one connection.
#[derive(Debug)]
pub(super) struct StreamLimiter {
    state: Mutex<StreamLimiterState>,
    /// Served in the order of arrival.
    queue: Queue<()>,
    /// Wakes the first waiter of the queue.
    news: Notify,
}

#[derive(Debug)]
struct StreamLimiterState {
    taken: usize,
    /// `None` once the connection ended.
    limit: Option<usize>,
}

/// A permit for one open stream, until it is dropped.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<StreamLimiter>);

impl StreamLimiter {
    /// Allows `limit` requests at once, until the server announces another limit.
    pub(super) fn new(limit: usize) -> Self {
        let state = Mutex::new(StreamLimiterState { taken: 0, limit: Some(limit) });
        Self { state, queue: Queue::default(), news: Notify::new() }
    }

    /// Sets the server's limit, which may also be lower than before.
    pub(super) fn holds(&self, now: usize) {
        if let Some(limit) = &mut self.lock().limit
            && *limit != now
        {
            *limit = now;
            self.news.notify_one();
        }
    }

    /// Ends all waits: the connection ended.
    pub(super) fn close(&self) {
        self.lock().limit = None;
        self.news.notify_one();
    }

    /// Waits for a permit; returns `None` if the connection ended first.
    pub(super) async fn place(self: &Arc<Self>) -> Option<StreamPermit> {
        let _first = self.queue.lock().await;
        loop {
            {
                let mut state = self.lock();
                if state.taken < state.limit? {
                    state.taken += 1;
                    return Some(StreamPermit(Arc::clone(self)));
                }
            }
            self.news.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamLimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.lock().taken -= 1;
        self.0.news.notify_one();
    }
}
