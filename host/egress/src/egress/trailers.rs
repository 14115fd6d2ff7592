//! The fields after a request's body, which follow every rule of the fields before it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::headers::{guest_may_set, may_trail};

/// A request's body whose trailers are checked before they are passed on.
///
/// A trailer that no request may have ends the body with an error. So does one that `admit` rejects.
pub struct CheckedTrailers<B> {
    body: B,
    admit: Box<dyn Fn(&HeaderMap) -> bool + Send>,
}

/// The error of a body with checked trailers.
#[derive(Debug, thiserror::Error)]
pub enum TrailersError<E> {
    /// A trailer was rejected.
    #[error("a field after the body is not one that may stand there")]
    Refused,
    /// The inner body failed.
    #[error(transparent)]
    Body(E),
}

impl<B> CheckedTrailers<B> {
    /// Checks the trailers of `body`. `admit` returns whether they may be sent, and is called once, before
    /// the fixed rules.
    pub fn new(body: B, admit: impl Fn(&HeaderMap) -> bool + Send + 'static) -> Self {
        Self { body, admit: Box::new(admit) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CheckedTrailers<B> {
    type Data = Bytes;
    type Error = TrailersError<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(TrailersError::Body)?;
            let refused = frame.trailers_ref().is_some_and(|fields| {
                !(self.admit)(fields) || fields.keys().any(|name| !guest_may_set(name) || !may_trail(name))
            });
            if refused { Err(TrailersError::Refused) } else { Ok(frame) }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
