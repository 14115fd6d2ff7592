//! One HTTP/2 connection, shared by the requests of one connector with the same credentials.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::Phase;
use cofferdam_core::limits::HEADER_BYTES;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::fault::{NetworkFaultParts, SendError, classify_stream};
use super::room::{Place, Room};
use super::stream::{Meter, Metered};

/// Requests that share one connection; the next one opens another.
const STREAMS: usize = 32;

/// Requests before the server has said how many it takes at once; more wait for its word.
const STREAMS_AT_FIRST: usize = 8;

/// What a server may send of one response that nobody has read yet, in bytes.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The same of all responses together: no reader that stops can take the others' share.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;

/// What waits of one request's body for the server to take it, in bytes.
const SEND_BUFFER: usize = 64 * 1024;

/// The largest head that is decoded: what is over the limit is refused by its number, and far more than
/// that not even decoded.
const DECODED_HEADER_BYTES: u32 = 2 * HEADER_BYTES as u32;

/// A connection that carries several requests at once. It ends when nobody holds it.
pub(super) struct Multiplexed {
    pub(super) sender: SendRequest<Bytes>,
    pub(super) meter: Arc<Meter>,
    room: Arc<Room>,
    under_way: AtomicUsize,
    idle_since: Mutex<Instant>,
    silent: AtomicBool,
    driver: JoinHandle<()>,
}

/// The right to one request on a connection; with it the request counts as under way.
#[derive(Debug)]
pub(super) struct Share(Arc<Multiplexed>);

impl Multiplexed {
    /// Starts HTTP/2 on an open stream, of which only settings are written.
    pub(super) async fn open<S>(stream: Metered<S>) -> Result<Self, SendError>
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
            phase: Phase::Send,
            code: classify_stream(&error),
            request_sent: false,
        })?;
        // An error reaches every request under way; of a connection that nobody uses it is no news.
        let room = Arc::new(Room::new(STREAMS_AT_FIRST));
        let held = Arc::clone(&room);
        let driver = tokio::spawn(async move {
            let mut connection = pin!(connection);
            let ended = poll_fn(|cx| {
                let polled = connection.as_mut().poll(cx);
                // The server's word comes with what was read just now.
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

    /// A share in it, if one more request fits and it takes new ones.
    pub(super) fn share(self: &Arc<Self>) -> Option<Share> {
        if self.is_over() || self.under_way.load(Ordering::Acquire) >= STREAMS {
            return None;
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Some(Share(Arc::clone(self)))
    }

    /// Whether it takes no more requests: it ended, the server said that it will, or it went silent.
    pub(super) fn is_over(&self) -> bool {
        let mut now = Context::from_waker(Waker::noop());
        self.silent.load(Ordering::Acquire)
            || self.driver.is_finished()
            || matches!(self.sender.clone().poll_ready(&mut now), Poll::Ready(Err(_)))
    }

    /// Waits until the server takes one more request; none if the connection ended before.
    pub(super) async fn place(&self) -> Option<Place> {
        self.room.holds(self.sender.current_max_send_streams());
        self.room.place().await
    }

    /// For how long no request was under way.
    pub(super) fn idle(&self) -> Option<Duration> {
        let idle = self.under_way.load(Ordering::Acquire) == 0;
        idle.then(|| self.idle_since.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }

    /// Gives no further shares: a request was given up on which not one byte came, of any. What is under way
    /// goes on, a new one gets a connection that is known to live.
    pub(super) fn gone_silent(&self) {
        self.silent.store(true, Ordering::Release);
    }

    /// Whether nothing more can be written.
    pub(super) fn has_ended(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Drop for Multiplexed {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Multiplexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multiplexed").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Share {
    /// The connection that it is a share in.
    pub(super) fn connection(&self) -> &Multiplexed {
        &self.0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}
