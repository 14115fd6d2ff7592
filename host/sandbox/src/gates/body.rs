//! Bodies whose bytes in the host's memory are charged to the attempt.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use wasmtime_wasi_http::Error;

use crate::memory::MemoryCharge;

/// A body with a charge that is released when the body is dropped, sent or not.
pub(super) struct ChargedBody<B> {
    body: B,
    _charge: Arc<MemoryCharge>,
}

impl<B> ChargedBody<B> {
    pub(super) fn new(body: B, charge: Arc<MemoryCharge>) -> Self {
        Self { body, _charge: charge }
    }
}

impl<B: Body + Unpin> Body for ChargedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The part of the passing bytes that is charged.
#[derive(Debug, Clone, Copy)]
pub(super) enum BodyHolding {
    /// The last frame, until the next is requested: the reader keeps it that long.
    LastFrame,
    /// All of them, twice, up to so many bytes: they are collected in one growing buffer.
    AllUpTo(u64),
}

/// A body whose bytes are charged as they pass.
pub(super) struct MeteredBody<B> {
    body: B,
    charge: Arc<MemoryCharge>,
    /// The part of the charge that is not for frames.
    base: u64,
    holding: BodyHolding,
    passed: u64,
}

impl<B> MeteredBody<B> {
    pub(super) fn new(body: B, charge: Arc<MemoryCharge>, holding: BodyHolding) -> Self {
        let base = charge.bytes();
        Self { body, charge, base, holding, passed: 0 }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Error> {
        let due = match self.holding {
            BodyHolding::LastFrame => bytes,
            BodyHolding::AllUpTo(most) => {
                self.passed = self.passed.saturating_add(bytes);
                self.passed.min(most).saturating_mul(2)
            }
        };
        // The ledger has the verdict; the body only has to end.
        self.charge.set(self.base.saturating_add(due)).map_err(|_| Error::HttpRequestDenied)
    }
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for MeteredBody<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            if let Err(error) = this.charge(bytes) {
                return Poll::Ready(Some(Err(error)));
            }
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
