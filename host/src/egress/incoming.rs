//! A response's body, which holds the connection until it is read whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection::Connection;
use super::fault::{NetworkFaultParts, classify};
use super::outgoing::Upload;
use super::pool::{Pool, PoolKey};
use crate::failure::Phase;

/// The body of a response, streamed. Read to its end it gives its connection back to the pool; dropped
/// before that it closes it, together with what is left of the request's own body.
#[derive(Debug)]
pub struct ResponseBody {
    incoming: Incoming,
    lease: Option<Lease>,
}

/// A connection on loan from the pool it goes back to.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Connection,
    pub(super) key: PoolKey,
    pub(super) pool: Arc<Pool>,
    pub(super) upload: Arc<Upload>,
}

impl Lease {
    /// A server may answer before it has the whole request; such a connection has no clean end.
    fn give_back(self) {
        if self.upload.finished() {
            self.pool.put(self.key, self.connection);
        }
    }
}

impl ResponseBody {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Self {
        let mut body = Self { incoming, lease: Some(lease) };
        body.note_end();
        body
    }

    fn note_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = NetworkFaultParts;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetworkFaultParts>>> {
        match std::task::ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            Some(Ok(frame)) => {
                self.note_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.lease = None;
                let code = classify(&error);
                Poll::Ready(Some(Err(NetworkFaultParts { phase: Phase::Response, code, request_sent: true })))
            }
            None => {
                if let Some(lease) = self.lease.take() {
                    lease.give_back();
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
