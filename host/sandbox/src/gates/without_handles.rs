//! A request's body that ends the attempt if it contains a handle for a credential: handles are not replaced
//! in bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_egress::egress::Authorize;
use http_body::{Body, Frame, SizeHint};
use wasmtime_wasi_http::{Error, WasiBody};

use super::ledger::{AttemptLog, Termination};

/// The length of the longest handle minus one: the kept tail of the last piece, so that a handle across two
/// pieces is found.
const KEPT: usize = 128;

/// The checked body.
pub(super) struct WithoutHandles {
    body: WasiBody,
    credentials: Arc<dyn Authorize>,
    ledger: Arc<AttemptLog>,
    last: Vec<u8>,
}

impl WithoutHandles {
    pub(super) fn new(body: WasiBody, credentials: Arc<dyn Authorize>, ledger: Arc<AttemptLog>) -> Self {
        Self { body, credentials, ledger, last: Vec::new() }
    }

    /// Checks the next piece together with the kept end of the previous ones.
    fn admit(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.last.extend_from_slice(piece);
        if let Some(denial) = self.credentials.handle_in_body(&self.last) {
            self.ledger.end(Termination::Denied(denial));
            return Err(Error::HttpRequestDenied);
        }
        self.last.drain(..self.last.len().saturating_sub(KEPT));
        Ok(())
    }
}

impl Body for WithoutHandles {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(error) = self.admit(data)
        {
            return Poll::Ready(Some(Err(error)));
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
