//! A response's body that keeps its request's slot until it has ended, been read to its end, or been dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// A body and its slot among the running requests.
pub(super) struct PermitBody<B> {
    body: B,
    slot: Option<OwnedSemaphorePermit>,
}

impl<B: Body> PermitBody<B> {
    pub(super) fn new(body: B, slot: OwnedSemaphorePermit) -> Self {
        let slot = (!body.is_end_stream()).then_some(slot);
        Self { body, slot }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for PermitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        if this.body.is_end_stream() || !matches!(frame, Some(Ok(_))) {
            this.slot = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
