//! The bodies of requests and responses: limited, charged and searched for secrets on their way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use cofferdam_core::failure::RequestPhase;
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use cofferdam_core::secret::{ScanState, Scanner, SecretMatch};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::connector::{ConnectionPool, PoolKey};
use super::fault::{NetworkFaultParts, classify, code};
use super::headers::{header_bytes, hide_from_guest};
use super::http1::Http1Connection;
use super::request::UploadState;

/// The streamed body of a response. Reading it to its end returns its connection to the pool. Dropping it
/// before that closes its connection, together with the rest of the request's own body.
#[derive(Debug)]
pub struct ResponseBody {
    incoming: Incoming,
    lease: Option<ConnectionLease>,
    read_timeout: Option<ReadTimeout>,
}

/// A connection on loan from its pool.
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

impl ResponseBody {
    /// Creates a body that fails if its next bytes take longer than `within`.
    pub(super) fn new(incoming: Incoming, lease: ConnectionLease, within: Option<Duration>) -> Self {
        let read_timeout =
            within.map(|within| ReadTimeout { within, timer: Box::pin(sleep(within)), waiting: false });
        let mut body = Self { incoming, lease: Some(lease), read_timeout };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    /// Returns the connection to the pool, unless the response came before the whole request was sent: such a
    /// connection has no clean end.
    fn give_back(&mut self) {
        if let Some(ConnectionLease { connection, key, pool, upload }) = self.lease.take()
            && upload.finished()
        {
            pool.put(key, connection);
        }
    }

    /// Returns the number of bytes read from its connection; 0 once the connection is returned.
    #[cfg(test)]
    pub(super) fn connection_bytes(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.connection.bytes_read())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match (Pin::new(&mut self.incoming).poll_frame(cx), &mut self.read_timeout) {
            (Poll::Ready(frame), timeout) => {
                if let Some(timeout) = timeout {
                    timeout.waiting = false;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|error| classify(&error)).and_then(checked)))
            }
            (Poll::Pending, Some(timeout)) => {
                ready!(timeout.poll(cx));
                Poll::Ready(Some(Err(code::TIMEOUT)))
            }
            (Poll::Pending, None) => Poll::Pending,
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
        let frame = ready!(self.poll(cx));
        match &frame {
            Some(Err(_)) => self.lease = None,
            Some(Ok(_)) if !self.incoming.is_end_stream() => {}
            Some(Ok(_)) | None => self.give_back(),
        }
        let phase = RequestPhase::Response;
        let fault = |code| NetworkFaultParts { phase, code, request_sent: true };
        Poll::Ready(frame.map(|frame| frame.map_err(fault)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The scan of one body, which ends at the cap or at a secret.
///
/// The frame that crosses the cap is not passed on, and a body that announces more than its cap fails before
/// its first byte. Trailers count as their bytes on the wire. No byte of a secret is passed on, and none after
/// it: bytes that may be the beginning of a secret are held until it is known that they are not.
pub struct BodyScan {
    cap: u64,
    seen: u64,
    total: Arc<AtomicU64>,
    secrets: Option<(Arc<Scanner>, ScanState)>,
    /// The last bytes, which may be the beginning of a secret.
    held: BytesMut,
    /// The frames that may pass.
    ready: VecDeque<Frame<Bytes>>,
    ended: bool,
}

/// The reason why a scanned body ends early.
#[derive(Debug)]
pub enum BodyScanError<E> {
    /// The body has so many bytes, as far as it was read or announced, and that is above the cap.
    TooLarge(u64),
    /// The body contains a secret.
    Secret(SecretMatch),
    /// The body failed.
    Body(E),
}

/// Returns the first secret in the names and values of a head's fields.
pub fn find_in_fields(scanner: &Scanner, fields: &HeaderMap) -> Option<SecretMatch> {
    // Names are sent in lower case, and every secret is also scanned for in that form.
    let mut fields = fields.iter();
    fields.find_map(|(name, value)| {
        scanner.find(name.as_str().as_bytes()).or_else(|| scanner.find_in_value(value.as_bytes()))
    })
}

/// Returns the first secret in a request's target, both verbatim and with `%xx` and `+` decoded.
pub fn find_in_uri(scanner: &Scanner, uri: &http::Uri) -> Option<SecretMatch> {
    let text = uri.to_string();
    let decoded = percent_encoding::percent_decode_str(&text).collect::<Vec<u8>>();
    let query = uri.query().unwrap_or_default();
    let whole = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
        scanner.find_in_value(name.as_bytes()).or_else(|| scanner.find_in_value(value.as_bytes()))
    };
    let found = scanner.find(text.as_bytes()).or_else(|| scanner.find(&decoded));
    found.or_else(|| url::form_urlencoded::parse(query.as_bytes()).find_map(whole))
}

/// A frame of a scanned body.
pub type ScannedFrame<E> = Result<Frame<Bytes>, BodyScanError<E>>;

impl BodyScan {
    /// Creates a scan of up to `cap` bytes for the secrets of `scanner`. Every byte that is read is added to
    /// `total`, which several bodies may share. A scanner without secrets costs nothing.
    #[must_use]
    pub fn new(cap: u64, total: Arc<AtomicU64>, scanner: Option<Arc<Scanner>>) -> Self {
        let secrets = scanner.and_then(|scanner| {
            let start = scanner.scan_stream()?.state();
            Some((scanner, start))
        });
        let (held, ready) = (BytesMut::new(), VecDeque::new());
        Self { cap, seen: 0, total, secrets, held, ready, ended: false }
    }

    /// Polls the next frame of `body`, each of which `admit` may reject before it is scanned.
    pub fn poll_frame<B: Body<Data = Bytes> + Unpin>(
        &mut self,
        body: &mut B,
        cx: &mut Context<'_>,
        mut admit: impl FnMut(&Frame<Bytes>) -> Result<(), B::Error>,
    ) -> Poll<Option<ScannedFrame<B::Error>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let scanned = match self.count(body.size_hint().lower()) {
                Err(error) => Err(error),
                Ok(_) => match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                    None => {
                        self.ended = true;
                        self.pass(self.held.len());
                        Ok(())
                    }
                    Some(frame) => frame
                        .and_then(|frame| admit(&frame).map(|()| frame))
                        .map_err(BodyScanError::Body)
                        .and_then(|frame| self.take_frame(frame, body.is_end_stream())),
                },
            };
            if let Err(error) = scanned {
                // The held bytes are dropped too: they may begin a secret.
                self.ended = true;
                self.held.clear();
                self.ready.clear();
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Returns whether no more frames follow, as [`Body::is_end_stream`].
    pub fn is_end_stream(&self, body: &impl Body) -> bool {
        self.ready.is_empty() && (self.ended || (self.held.is_empty() && body.is_end_stream()))
    }

    /// Returns whether `body` has been read to its end, or failed.
    pub fn has_read_all(&self, body: &impl Body) -> bool {
        self.ended || body.is_end_stream()
    }

    /// Returns the size of the rest, as [`Body::size_hint`].
    pub fn size_hint(&self, body: &impl Body) -> SizeHint {
        let ready = self.ready.iter().filter_map(Frame::data_ref).map(Buf::remaining).sum::<usize>();
        let waiting = (ready + self.held.len()) as u64;
        let inner = if self.ended { SizeHint::with_exact(0) } else { body.size_hint() };
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(waiting));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(waiting));
        }
        hint
    }

    /// Returns the size of the body with `more` bytes.
    fn count<E>(&self, more: u64) -> Result<u64, BodyScanError<E>> {
        let used = self.seen.saturating_add(more);
        if used > self.cap { Err(BodyScanError::TooLarge(used)) } else { Ok(used) }
    }

    fn take_frame<E>(&mut self, frame: Frame<Bytes>, last: bool) -> Result<(), BodyScanError<E>> {
        let bytes = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => data.len(),
            (None, trailers) => trailers.map_or(0, header_bytes),
        };
        self.seen = self.count(bytes as u64)?;
        self.total.fetch_add(bytes as u64, Ordering::Relaxed);
        self.ended = last;
        match frame.into_data() {
            Ok(data) => self.take(data).map_err(BodyScanError::Secret),
            Err(frame) => {
                let scanner = self.secrets.as_ref().zip(frame.trailers_ref());
                if let Some(found) =
                    scanner.and_then(|((scanner, _), fields)| find_in_fields(scanner, fields))
                {
                    return Err(BodyScanError::Secret(found));
                }
                self.pass(self.held.len());
                self.ready.push_back(frame);
                Ok(())
            }
        }
    }

    /// Adds one more piece. The bytes that are then known to be harmless become ready.
    fn take(&mut self, mut piece: Bytes) -> Result<(), SecretMatch> {
        let mut pending = 0;
        if let Some((scanner, at)) = &mut self.secrets
            && let Some(mut reading) = scanner.resume(*at)
        {
            pending = reading.read(&piece)?;
            *at = reading.state();
        }
        if self.ended {
            pending = 0;
        }
        let before = self.held.len();
        let free = before.saturating_add(piece.len()).saturating_sub(pending);
        self.pass(before.min(free));
        let rest = piece.split_off(free.saturating_sub(before).min(piece.len()));
        if !piece.is_empty() {
            self.ready.push_back(Frame::data(piece));
        }
        self.held.extend_from_slice(&rest);
        Ok(())
    }

    /// Releases the first `bytes` of the held ones.
    fn pass(&mut self, bytes: usize) {
        if bytes > 0 {
            let free = self.held.split_to(bytes.min(self.held.len())).freeze();
            self.ready.push_back(Frame::data(free));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::convert::Infallible;
    use std::future::poll_fn;

    use http_body_util::Full;

    use super::*;

    /// Frames that announce nothing.
    struct Frames(VecDeque<&'static str>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(Bytes::from(data)))))
        }
    }

    /// Reads a whole body; returns the bytes that passed, those that were counted, and the size above the cap.
    async fn scanned<B>(mut body: B, cap: u64) -> (String, u64, Option<u64>)
    where
        B: Body<Data = Bytes, Error = Infallible> + Unpin,
    {
        let total = Arc::new(AtomicU64::new(0));
        let mut scan = BodyScan::new(cap, Arc::clone(&total), None);
        let (mut passed, mut excess) = (String::new(), None);
        while let Some(frame) = poll_fn(|cx| scan.poll_frame(&mut body, cx, |_| Ok(()))).await {
            match frame {
                Ok(frame) => {
                    assert_eq!(excess, None, "nothing follows the failure");
                    passed += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
                }
                Err(BodyScanError::TooLarge(used)) => excess = Some(used),
                Err(_) => unreachable!(),
            }
        }
        assert!(scan.is_end_stream(&body));
        (passed, total.load(Ordering::Relaxed), excess)
    }

    #[tokio::test]
    async fn the_cap_is_the_last_byte_that_passes() {
        for (cap, passed, excess) in
            [(10, "abcdefghij", None), (9, "abcdefg", Some(10)), (6, "abc", Some(7)), (2, "", Some(3))]
        {
            let outcome = scanned(Frames(["abc", "defg", "hij"].into()), cap).await;
            assert_eq!(outcome, (passed.to_owned(), passed.len() as u64, excess));
        }
    }

    #[tokio::test]
    async fn what_announces_too_much_fails_before_its_first_byte() {
        let body = || Full::new(Bytes::from_static(b"0123456789"));
        assert_eq!(scanned(body(), 9).await, (String::new(), 0, Some(10)));
        assert_eq!(scanned(body(), 10).await, ("0123456789".to_owned(), 10, None));
    }
}
