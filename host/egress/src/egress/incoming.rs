//! A response's body, which holds its connection, or its share in one, until it is read whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::Phase;
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::Connection;
use super::exchange::Running;
use super::fault::{NetworkFaultParts, classify, classify_stream, code};
use super::headers::{header_bytes, hide_from_guest};
use super::outgoing::Upload;
use super::pool::{Pool, PoolKey};

/// The body of a response, streamed. Read to its end it gives its connection back to the pool; dropped
/// before that it ends its connection (of HTTP/2: its stream), together with what is left of the request's
/// own body.
#[derive(Debug)]
pub struct ResponseBody {
    source: Source,
    patience: Option<Patience>,
}

#[derive(Debug)]
enum Source {
    Http1 { incoming: Incoming, lease: Option<Lease> },
    Http2 { incoming: RecvStream, running: Option<Running>, left: Option<u64> },
}

/// An HTTP/1.1 connection on loan from the pool it goes back to.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Connection,
    pub(super) key: PoolKey,
    pub(super) pool: Arc<Pool>,
    pub(super) upload: Arc<Upload>,
}

/// How long the next bytes may take.
#[derive(Debug)]
struct Patience {
    within: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
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
    /// A body that comes over HTTP/1.1.
    pub(super) fn http1(incoming: Incoming, lease: Lease) -> Self {
        let mut source = Source::Http1 { incoming, lease: Some(lease) };
        source.note_end();
        Self { source, patience: None }
    }

    /// A body that comes over HTTP/2, with the fields of its head.
    pub(super) fn http2(incoming: RecvStream, running: Running, headers: &HeaderMap) -> Self {
        // h2 holds the body to it.
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let left = if incoming.is_end_stream() { Some(0) } else { length };
        let mut source = Source::Http2 { incoming, running: Some(running), left };
        source.note_end();
        Self { source, patience: None }
    }

    /// The same body, which fails where its next bytes take longer than `within`.
    pub(super) fn with_patience(mut self, within: Option<Duration>) -> Self {
        self.patience =
            within.map(|within| Patience { within, timer: Box::pin(sleep(within)), waiting: false });
        self
    }
}

#[cfg(test)]
impl ResponseBody {
    /// The bytes that came over its connection until now; 0 once it is given back.
    pub(super) fn connection_bytes(&self) -> u64 {
        match &self.source {
            Source::Http1 { lease, .. } => lease.as_ref().map_or(0, |lease| lease.connection.bytes_read()),
            Source::Http2 { running, .. } => running.as_ref().map_or(0, Running::bytes_read),
        }
    }
}

impl Source {
    fn note_end(&mut self) {
        match self {
            Self::Http1 { incoming, lease } if incoming.is_end_stream() => {
                if let Some(lease) = lease.take() {
                    lease.give_back();
                }
            }
            Self::Http2 { incoming, running, .. } if incoming.is_end_stream() => *running = None,
            _ => {}
        }
    }

    fn abandon(&mut self) {
        match self {
            Self::Http1 { lease, .. } => *lease = None,
            // The stream itself is reset when the body is dropped.
            Self::Http2 { running, .. } => {
                if let Some(running) = running {
                    running.stop_upload();
                }
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self {
            Self::Http1 { incoming, .. } => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|error| classify(&error))))
            }
            Self::Http2 { incoming, left, .. } => Poll::Ready(match ready!(incoming.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Only now may the server send as much again.
                    let _ = incoming.flow_control().release_capacity(data.len());
                    *left = left.map(|left| left.saturating_sub(data.len() as u64));
                    Some(Ok(Frame::data(data)))
                }
                Some(Err(error)) => Some(Err(classify_stream(&error))),
                None => match ready!(incoming.poll_trailers(cx)) {
                    Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
                    Err(error) => Some(Err(classify_stream(&error))),
                },
            }),
        }
    }
}

/// The frame as the guest may have it: trailers within the limits of a head, and without its secrets.
fn checked(mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, &'static str> {
    if let Some(trailers) = frame.trailers_mut() {
        if trailers.len() as u64 > RESPONSE_FIELDS || header_bytes(trailers) > HEADER_BYTES {
            return Err(code::HEADERS_TOO_LARGE);
        }
        hide_from_guest(trailers);
    }
    Ok(frame)
}

impl Patience {
    /// Ready when the next bytes took too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.within);
        }
        self.timer.as_mut().poll(cx)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = NetworkFaultParts;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetworkFaultParts>>> {
        let polled = match (self.source.poll(cx), &mut self.patience) {
            (Poll::Ready(frame), patience) => {
                if let Some(patience) = patience {
                    patience.waiting = false;
                }
                frame
            }
            (Poll::Pending, Some(patience)) => {
                ready!(patience.poll(cx));
                Some(Err(code::TIMEOUT))
            }
            (Poll::Pending, None) => return Poll::Pending,
        };
        Poll::Ready(match polled.map(|frame| frame.and_then(checked)) {
            Some(Ok(frame)) => {
                self.source.note_end();
                Some(Ok(frame))
            }
            Some(Err(code)) => {
                self.source.abandon();
                Some(Err(NetworkFaultParts { phase: Phase::Response, code, request_sent: true }))
            }
            None => {
                match &mut self.source {
                    Source::Http1 { lease, .. } => {
                        if let Some(lease) = lease.take() {
                            lease.give_back();
                        }
                    }
                    Source::Http2 { running, .. } => *running = None,
                }
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Http1 { incoming, .. } => incoming.is_end_stream(),
            Source::Http2 { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http1 { incoming, .. } => incoming.size_hint(),
            Source::Http2 { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
