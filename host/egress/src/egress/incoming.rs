//! The body of a response. It holds its connection, or its share of one, until it is completely read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::RequestPhase;
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::Http1Connection;
use super::exchange::ActiveStream;
use super::fault::{NetworkFaultParts, classify, classify_stream, code};
use super::headers::{header_bytes, hide_from_guest};
use super::outgoing::UploadState;
use super::pool::{ConnectionPool, PoolKey};

/// The streamed body of a response. Reading it to its end returns its connection to the pool. Dropping it
/// before that closes its connection (HTTP/2: its stream), together with the rest of the request's own body.
#[derive(Debug)]
pub struct ResponseBody {
    source: BodySource,
    patience: Option<ReadTimeout>,
}

#[derive(Debug)]
enum BodySource {
    Http1 { incoming: Incoming, lease: Option<ConnectionLease> },
    Http2 { incoming: RecvStream, running: Option<ActiveStream>, left: Option<u64> },
}

/// An HTTP/1.1 connection on loan from its pool.
#[derive(Debug)]
pub(super) struct ConnectionLease {
    pub(super) connection: Http1Connection,
    pub(super) key: PoolKey,
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) upload: Arc<UploadState>,
}

/// The timeout of the next bytes.
#[derive(Debug)]
struct ReadTimeout {
    within: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl ConnectionLease {
    /// Returns the connection to the pool, unless the response came before the whole request was sent: such a
    /// connection has no clean end.
    fn give_back(self) {
        if self.upload.finished() {
            self.pool.put(self.key, self.connection);
        }
    }
}

impl ResponseBody {
    /// Creates a body that is read over HTTP/1.1.
    pub(super) fn http1(incoming: Incoming, lease: ConnectionLease) -> Self {
        let mut source = BodySource::Http1 { incoming, lease: Some(lease) };
        source.note_end();
        Self { source, patience: None }
    }

    /// Creates a body that is read over HTTP/2; `headers` are those of its head.
    pub(super) fn http2(incoming: RecvStream, running: ActiveStream, headers: &HeaderMap) -> Self {
        // h2 enforces this length.
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let left = if incoming.is_end_stream() { Some(0) } else { length };
        let mut source = BodySource::Http2 { incoming, running: Some(running), left };
        source.note_end();
        Self { source, patience: None }
    }

    /// Returns the same body, which fails if its next bytes take longer than `within`.
    pub(super) fn with_patience(mut self, within: Option<Duration>) -> Self {
        self.patience =
            within.map(|within| ReadTimeout { within, timer: Box::pin(sleep(within)), waiting: false });
        self
    }
}

#[cfg(test)]
impl ResponseBody {
    /// Returns the number of bytes read from its connection; 0 once the connection is returned.
    pub(super) fn connection_bytes(&self) -> u64 {
        match &self.source {
            BodySource::Http1 { lease, .. } => {
                lease.as_ref().map_or(0, |lease| lease.connection.bytes_read())
            }
            BodySource::Http2 { running, .. } => running.as_ref().map_or(0, ActiveStream::bytes_read),
        }
    }
}

impl BodySource {
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
            // Dropping the body resets the stream itself.
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
                    // The server may send the same amount again only now.
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

/// Checks a frame for the guest: trailers must be within the limits of a head, and lose the fields that are
/// hidden from guests.
fn checked(mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, &'static str> {
    if let Some(trailers) = frame.trailers_mut() {
        if trailers.len() as u64 > RESPONSE_FIELDS || header_bytes(trailers) > HEADER_BYTES {
            return Err(code::HEADERS_TOO_LARGE);
        }
        hide_from_guest(trailers);
    }
    Ok(frame)
}

impl ReadTimeout {
    /// Returns ready when the next bytes took too long.
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
                Some(Err(NetworkFaultParts { phase: RequestPhase::Response, code, request_sent: true }))
            }
            None => {
                match &mut self.source {
                    BodySource::Http1 { lease, .. } => {
                        if let Some(lease) = lease.take() {
                            lease.give_back();
                        }
                    }
                    BodySource::Http2 { running, .. } => *running = None,
                }
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Http1 { incoming, .. } => incoming.is_end_stream(),
            BodySource::Http2 { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Http1 { incoming, .. } => incoming.size_hint(),
            BodySource::Http2 { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
