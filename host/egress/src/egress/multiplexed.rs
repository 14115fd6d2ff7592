//! One HTTP/2 connection, shared by the requests of one connector with the same credentials.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::RequestPhase;
use cofferdam_core::limits::HEADER_BYTES;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::fault::{NetworkFaultParts, SendError, classify_stream};
use super::room::{StreamLimiter, StreamPermit};
use super::stream::{CountingIo, IoCounters};

/// The number of requests that share one connection; the next one opens another.
const STREAMS: usize = 32;

/// The number of concurrent requests before the server has announced its limit. Further ones wait for that.
const STREAMS_AT_FIRST: usize = 8;

/// The number of unread bytes that a server may send of one response.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The same for all responses together, so that a reader that stops cannot take the share of the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;

/// The number of bytes of one request's body that wait for the server's window.
const SEND_BUFFER: usize = 64 * 1024;

/// The largest head that is decoded. A head over the limit is rejected with its size, and a much larger one
/// is not even decoded.
const DECODED_HEADER_BYTES: u32 = 2 * HEADER_BYTES as u32;

/// A connection that carries several requests at once. It closes when its last owner drops it.
pub(super) struct H2Connection {
    pub(super) sender: SendRequest<Bytes>,
    pub(super) meter: Arc<IoCounters>,
    room: Arc<StreamLimiter>,
    under_way: AtomicUsize,
    idle_since: Mutex<Instant>,
    silent: AtomicBool,
    driver: JoinHandle<()>,
}

/// The right to one request on a connection. While it exists, the request counts as in flight.
#[derive(Debug)]
pub(super) struct StreamLease(Arc<H2Connection>);

impl H2Connection {
    /// Starts HTTP/2 on an open stream. Writes only the settings.
    pub(super) async fn open<S>(stream: CountingIo<S>) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let meter = stream.meter();
        let mut http = Builder::new();
        http.enable_push(false)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(DECODED_HEADER_BYTES)
            .max_send_buffer_size(SEND_BUFFER);
        let (sender, connection) = http.handshake(stream).await.map_err(|error| NetworkFaultParts {
            phase: RequestPhase::Send,
            code: classify_stream(&error),
            request_sent: false,
        })?;
        // An error is reported to every request in flight. On an unused connection it does not matter.
        let room = Arc::new(StreamLimiter::new(STREAMS_AT_FIRST));
        let held = Arc::clone(&room);
        let driver = tokio::spawn(async move {
            let mut connection = pin!(connection);
            let ended = poll_fn(|cx| {
                let polled = connection.as_mut().poll(cx);
                // The server's limit came with the bytes that were just read.
                held.holds(connection.max_concurrent_send_streams());
                polled
            });
            drop(ended.await);
            held.close();
        });
        Ok(Self {
            sender,
            meter,
            room,
            under_way: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            silent: AtomicBool::new(false),
            driver,
        })
    }

    /// Returns a share in the connection, if it has room for one more request and accepts new ones.
    pub(super) fn share(self: &Arc<Self>) -> Option<StreamLease> {
        if self.is_over() || self.under_way.load(Ordering::Acquire) >= STREAMS {
            return None;
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Some(StreamLease(Arc::clone(self)))
    }

    /// Returns whether it accepts no more requests: it ended, the server announced its end, or it went
    /// silent.
    pub(super) fn is_over(&self) -> bool {
        let mut now = Context::from_waker(Waker::noop());
        self.silent.load(Ordering::Acquire)
            || self.driver.is_finished()
            || matches!(self.sender.clone().poll_ready(&mut now), Poll::Ready(Err(_)))
    }

    /// Waits until the server accepts one more request; returns `None` if the connection ended first.
    pub(super) async fn place(&self) -> Option<StreamPermit> {
        self.room.holds(self.sender.current_max_send_streams());
        self.room.place().await
    }

    /// Returns how long no request has been in flight.
    pub(super) fn idle(&self) -> Option<Duration> {
        let idle = self.under_way.load(Ordering::Acquire) == 0;
        idle.then(|| self.idle_since.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }

    /// Stops giving out shares: a request was cancelled after not one byte arrived for any request. Requests
    /// in flight continue, and a new one gets a connection that is known to work.
    pub(super) fn gone_silent(&self) {
        self.silent.store(true, Ordering::Release);
    }

    /// Returns whether nothing more can be written.
    pub(super) fn has_ended(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Drop for H2Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for H2Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multiplexed").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl StreamLease {
    /// Returns the connection.
    pub(super) fn connection(&self) -> &H2Connection {
        &self.0
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}
