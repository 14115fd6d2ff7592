//! Scans a body for secrets as it passes. Bytes that may be the beginning of a secret are held until it is
//! known that they are not.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use cofferdam_core::secret::{ScanState, Scanner, SecretMatch};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// A body that fails if it contains a secret. No byte of the secret is passed on, and none after it.
pub struct SecretFilterBody<B> {
    body: B,
    look: Option<ScanProgress>,
    ended: bool,
}

/// The scanner and its state.
struct ScanProgress {
    scanner: Arc<Scanner>,
    at: ScanState,
    /// The last bytes, which may be the beginning of a secret.
    held: BytesMut,
    /// The frames that may pass.
    ready: VecDeque<Frame<Bytes>>,
    on_found: Option<Box<dyn FnOnce(SecretMatch) + Send>>,
}

/// The error of a scanned body.
#[derive(Debug, thiserror::Error)]
pub enum ScannedError<E> {
    /// The body contains a secret.
    #[error("the body holds a secret")]
    Secret,
    /// The inner body failed.
    #[error(transparent)]
    Body(E),
}

impl<B> SecretFilterBody<B> {
    /// Scans `body` for the secrets of `scanner`; `on_found` is called once if there is a match. A scanner
    /// without secrets costs nothing.
    pub fn new(
        body: B,
        scanner: Option<Arc<Scanner>>,
        on_found: impl FnOnce(SecretMatch) + Send + 'static,
    ) -> Self {
        let look = scanner.and_then(|scanner| {
            let at = scanner.scan_stream()?.state();
            let (held, ready) = (BytesMut::new(), VecDeque::new());
            Some(ScanProgress { scanner, at, held, ready, on_found: Some(Box::new(on_found)) })
        });
        Self { body, look, ended: false }
    }
}

impl<B> fmt::Debug for SecretFilterBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanned").finish_non_exhaustive()
    }
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

impl ScanProgress {
    /// Adds one more piece. The bytes that are then known to be harmless become ready.
    fn take(&mut self, piece: Bytes, last: bool) -> Result<(), SecretMatch> {
        let Some(mut reading) = self.scanner.resume(self.at) else { return Ok(()) };
        let pending = if last { reading.read(&piece).map(|_| 0)? } else { reading.read(&piece)? };
        self.at = reading.state();
        let (mut piece, before) = (piece, self.held.len());
        let free = before.saturating_add(piece.len()).saturating_sub(pending);
        self.pass(self.held.len().min(free));
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

    fn take_frame(&mut self, frame: Frame<Bytes>, last: bool) -> Result<(), SecretMatch> {
        match frame.into_data() {
            Ok(data) => self.take(data, last),
            Err(frame) => {
                if let Some(found) =
                    frame.trailers_ref().and_then(|trailers| find_in_fields(&self.scanner, trailers))
                {
                    return Err(found);
                }
                self.pass(self.held.len());
                self.ready.push_back(frame);
                Ok(())
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for SecretFilterBody<B> {
    type Data = Bytes;
    type Error = ScannedError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let Some(look) = &mut this.look else {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map_err(ScannedError::Body)));
        };
        loop {
            if let Some(frame) = look.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let taken = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    this.ended = this.body.is_end_stream();
                    look.take_frame(frame, this.ended)
                }
                None => {
                    this.ended = true;
                    look.pass(look.held.len());
                    Ok(())
                }
                Some(Err(error)) => {
                    // The held bytes are dropped too: it is unknown whether they begin a secret.
                    this.ended = true;
                    look.held.clear();
                    return Poll::Ready(Some(Err(ScannedError::Body(error))));
                }
            };
            if let Err(found) = taken {
                this.ended = true;
                look.held.clear();
                look.ready.clear();
                if let Some(on_found) = look.on_found.take() {
                    on_found(found);
                }
                return Poll::Ready(Some(Err(ScannedError::Secret)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.look {
            None => self.body.is_end_stream(),
            Some(look) => {
                look.ready.is_empty() && (self.ended || (look.held.is_empty() && self.body.is_end_stream()))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let Some(look) = &self.look else { return self.body.size_hint() };
        let ready: usize = look.ready.iter().filter_map(Frame::data_ref).map(Buf::remaining).sum::<usize>()
            + look.held.len();
        let waiting = ready as u64;
        let inner = if self.ended { SizeHint::with_exact(0) } else { self.body.size_hint() };
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(waiting));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(waiting));
        }
        hint
    }
}
