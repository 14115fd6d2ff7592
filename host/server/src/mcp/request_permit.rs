//! The resources that a request holds while it is in flight: a slot, bytes of the budget, and memory for its
//! answer.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::server::{BudgetCharge, VALUE_BYTES, VALUES, count};

/// The memory for values that are built and not written yet, in KiB, for all clients together.
const ANSWERS: usize = 64 * 1024;

/// The resources of a request over standard streams: held until its answer is written and its handler has
/// stopped.
#[derive(Debug, Clone)]
pub(super) struct RequestPermit(Arc<RequestResources>);

#[derive(Debug)]
struct RequestResources {
    _place: OwnedSemaphorePermit,
    _charge: Arc<BudgetCharge>,
    answer: Mutex<Option<AnswerMemoryPermit>>,
}

/// Memory for the answer to one request, until this is dropped.
#[derive(Debug)]
pub(super) struct AnswerMemoryPermit(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl RequestPermit {
    pub(super) fn new(place: OwnedSemaphorePermit, charge: Arc<BudgetCharge>) -> Self {
        Self(Arc::new(RequestResources { _place: place, _charge: charge, answer: Mutex::default() }))
    }

    /// Holds `answer` as long as the request's resources.
    pub(super) fn keep(&self, answer: AnswerMemoryPermit) {
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

/// The memory of all unwritten answers.
#[derive(Debug, Clone)]
pub(super) struct AnswerMemory(Arc<Semaphore>);

impl Default for AnswerMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS)))
    }
}

impl AnswerMemory {
    /// Waits for the memory for the value in `json`: a client that reads no answers gets no further ones.
    pub(super) async fn room(&self, json: &str, limit: usize) -> Option<AnswerMemoryPermit> {
        let shown = json.len().min(limit.saturating_mul(2));
        let values = match json.len() <= limit {
            true => count(json.as_bytes(), VALUES).unwrap_or(VALUES),
            // Two bytes are the shortest item.
            false => shown / 2,
        };
        let kib = shown.saturating_add(values.saturating_mul(VALUE_BYTES)) >> 10;
        let permits = u32::try_from(kib.min(ANSWERS)).unwrap_or(u32::MAX);
        Arc::clone(&self.0).acquire_many_owned(permits).await.ok().map(AnswerMemoryPermit)
    }
}
