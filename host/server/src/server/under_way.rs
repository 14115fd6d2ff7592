//! How many requests, or calls, are under way, for whoever waits until none is.

use axum::body::Body;
use http::Response;
use tokio::sync::watch;

use super::held::Held;

/// Those of one connection, or of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay(watch::Sender<usize>);

/// One that is under way until this is dropped.
pub(crate) struct One(watch::Sender<usize>);

impl UnderWay {
    /// One more.
    pub(crate) fn one(&self) -> One {
        self.0.send_modify(|count| *count += 1);
        One(self.0.clone())
    }

    /// Whether none is.
    pub(super) fn is_none(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Ready while none is.
    pub(crate) async fn none(&self) {
        // It fails only where the sender is gone, which is here.
        drop(self.0.subscribe().wait_for(|count| *count == 0).await);
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl One {
    /// The answer, with whose last byte this one ends.
    pub(super) fn until_told(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(Held::new(body, self)))
    }
}
