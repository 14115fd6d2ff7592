//! The shutdown of a server, in two steps that all its parts see: no new requests, and then no running ones.

use axum::body::Body;
use http::Response;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::GuardedBody;

/// A signal that is set once and seen by all clones.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    closing: CancellationToken,
    cancelling: CancellationToken,
}

impl Shutdown {
    /// Creates the signal, unset.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the shutdown: no new requests are accepted; running ones have the grace period.
    pub fn begin(&self) {
        self.closing.cancel();
    }

    /// Cancels the running requests.
    pub fn cancel(&self) {
        self.closing.cancel();
        self.cancelling.cancel();
    }

    /// Returns true if the shutdown has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Completes once the shutdown has begun.
    pub async fn begun(&self) {
        self.closing.cancelled().await;
    }

    /// Completes once running requests are to be cancelled.
    pub async fn cancelled(&self) {
        self.cancelling.cancelled().await;
    }
}

/// The requests of one connection, or of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightRequests(watch::Sender<usize>);

/// A request that is in flight until this is dropped.
pub(crate) struct InFlightGuard(watch::Sender<usize>);

impl InFlightRequests {
    /// Counts one more request.
    pub(crate) fn start(&self) -> InFlightGuard {
        self.0.send_modify(|count| *count += 1);
        InFlightGuard(self.0.clone())
    }

    /// Returns true if no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Completes when no request is in flight.
    pub(crate) async fn wait_idle(&self) {
        // It fails only if the sender is gone, and the sender is `self`.
        drop(self.0.subscribe().wait_for(|count| *count == 0).await);
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl InFlightGuard {
    /// Returns the answer; the request ends with its last byte.
    pub(super) fn hold_until_sent(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(GuardedBody::new(body, self)))
    }
}
