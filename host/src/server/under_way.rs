//! Whether a connection has a request under way: from its head, which is whole, to the last byte of its answer's body.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;

/// The requests of one connection.
#[derive(Clone)]
pub(super) struct UnderWay(watch::Sender<usize>);

/// One request that is under way until this is dropped.
pub(super) struct One(watch::Sender<usize>);

impl UnderWay {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// One more.
    pub(super) fn one(&self) -> One {
        self.0.send_modify(|count| *count += 1);
        One(self.0.clone())
    }

    /// Whether none is.
    pub(super) fn is_none(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Ready while none is.
    pub(super) async fn none(&self) {
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
    /// The answer, with which this one ends.
    pub(super) fn until_told(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(Told { body, _one: self }))
    }
}

/// The body of an answer.
struct Told {
    body: Body,
    _one: One,
}

impl HttpBody for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
