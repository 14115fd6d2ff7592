//! A count of the requests, or calls, in flight, with a wait until there are none.

use axum::body::Body;
use http::Response;
use tokio::sync::watch;

use super::guarded_body::GuardedBody;

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
