//! A request's body that ends the attempt where a handle for a credential stands in it: none is replaced there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_egress::egress::Authorize;
use http_body::{Body, Frame, SizeHint};
use wasmtime_wasi_http::{Error, WasiBody};

use super::ledger::{Ledger, Verdict};

/// The longest handle's bytes but one: what is kept of the last piece, so that none hides across two.
const KEPT: usize = 128;

/// A body that is looked at.
pub(super) struct WithoutHandles {
    body: WasiBody,
    credentials: Arc<dyn Authorize>,
    ledger: Arc<Ledger>,
    last: Vec<u8>,
}

impl WithoutHandles {
    pub(super) fn new(body: WasiBody, credentials: Arc<dyn Authorize>, ledger: Arc<Ledger>) -> Self {
        Self { body, credentials, ledger, last: Vec::new() }
    }

    /// Looks at the next piece, and at the end of those before it.
    fn admit(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.last.extend_from_slice(piece);
        if let Some(denial) = self.credentials.handle_in_body(&self.last) {
            self.ledger.end(Verdict::Denied(denial));
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
