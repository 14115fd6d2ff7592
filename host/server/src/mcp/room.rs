//! The resources that a request holds while it is in flight: a place, bytes of the budget, and memory for its answer.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::{Charge, VALUE_BYTES, VALUES, count};

/// The memory for values that are built and not written yet, in KiB, for all clients together.
const ANSWERS: usize = 64 * 1024;

/// The room of a request over standard streams: held until its answer is written and its handler has stopped.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    _place: OwnedSemaphorePermit,
    _charge: Arc<Charge>,
    answer: Mutex<Option<AnswerRoom>>,
}

/// Memory for the answer to one request, until this is dropped.
#[derive(Debug)]
pub(super) struct AnswerRoom(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Room {
    pub(super) fn new(place: OwnedSemaphorePermit, charge: Arc<Charge>) -> Self {
        Self(Arc::new(Parts { _place: place, _charge: charge, answer: Mutex::default() }))
    }

    /// Holds `answer` for as long as the request has its room.
    pub(super) fn keep(&self, answer: AnswerRoom) {
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

/// The memory of all answers that are not written yet.
#[derive(Debug, Clone)]
pub(super) struct Answers(Arc<Semaphore>);

impl Default for Answers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS)))
    }
}

impl Answers {
    /// Memory for the value in `json`, once there is so much: a client that reads no answers gets no further ones.
    pub(super) async fn room(&self, json: &str, limit: usize) -> Option<AnswerRoom> {
        let shown = json.len().min(limit.saturating_mul(2));
        let values = match json.len() <= limit {
            true => count(json.as_bytes(), VALUES).unwrap_or(VALUES),
            // Two bytes are the shortest item.
            false => shown / 2,
        };
        let kib = shown.saturating_add(values.saturating_mul(VALUE_BYTES)) >> 10;
        let permits = u32::try_from(kib.min(ANSWERS)).unwrap_or(u32::MAX);
        Arc::clone(&self.0).acquire_many_owned(permits).await.ok().map(AnswerRoom)
    }
}
