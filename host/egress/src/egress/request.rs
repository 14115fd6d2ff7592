//! The outgoing request: the host controls its framing and names, the guest everything else.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::{LimitHit, LimitKind, RequestPhase};
use cofferdam_core::limits::HEADER_BYTES;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use tokio::time::timeout;

use super::authority::RequestTarget;
use super::authorization::Authorization;
use super::fault::{NetworkFaultParts, RequestFlaw, SendError, code};
use super::headers::{dropped_with_credential, guest_may_set, header_bytes, line_bytes};

type BoxError = Box<dyn Error + Send + Sync>;

/// Observes when a request may have left, even if sending it is cancelled and returns nothing.
pub trait ObserveDeparture: Send + Sync {
    /// Called before the first byte of the request can leave. Returning false prevents the request.
    fn may_depart(&self) -> bool;

    /// Called if it turns out after [`may_depart`](Self::may_depart) that no byte left. The request may depart
    /// again.
    fn not_sent(&self);
}

/// The progress of a request: the observer of its departure, and the state of its body.
#[derive(Default)]
pub(super) struct UploadState {
    departure: Option<Arc<dyn ObserveDeparture>>,
    finished: AtomicBool,
    failed: AtomicBool,
}

impl fmt::Debug for UploadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadState").field("finished", &self.finished).finish_non_exhaustive()
    }
}

impl UploadState {
    /// Records that bytes of the request may leave from now on, unless its observer prevents it.
    ///
    /// # Errors
    /// [`SendError::Over`]: the observer prevents it, and nothing may be sent.
    pub(super) fn begin_departure(&self) -> Result<(), SendError> {
        let prevented = self.departure.as_ref().is_some_and(|observer| !observer.may_depart());
        if prevented { Err(SendError::Over) } else { Ok(()) }
    }

    /// Records that no byte of the request has left since [`begin_departure`](Self::begin_departure), and that
    /// none will on this connection.
    pub(super) fn undo_departure(&self) {
        if let Some(observer) = &self.departure {
            observer.not_sent();
        }
    }

    /// Returns whether the whole body was handed over for writing.
    pub(super) fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Returns whether the body itself failed.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

/// A request's body that reports its progress to the [`Upload`].
#[derive(Debug)]
pub(super) struct RequestBody {
    first: Option<Frame<Bytes>>,
    rest: UnsyncBoxBody<Bytes, BoxError>,
    /// The rest of `Content-Length`, if the body does not know its own length.
    promised: Option<u64>,
    upload: Arc<UploadState>,
}

/// Prepares `request` for `target`.
///
/// Removes forbidden fields that came this far, sets `Host` from the target, and frames the message in
/// exactly one way.
pub(super) async fn prepare<B>(
    request: Request<B>,
    target: &RequestTarget,
    first_byte: Duration,
    authorization: &Authorization,
    departure: Option<Arc<dyn ObserveDeparture>>,
) -> Result<(Request<RequestBody>, Arc<UploadState>), SendError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut head, body) = request.into_parts();
    let mut headers = HeaderMap::new();
    let host = HeaderValue::try_from(target.host_header()).map_err(|_| RequestFlaw::Path)?;
    headers.insert(header::HOST, host);
    headers.extend(allowed(head.headers, authorization));
    let used = line_bytes(&head.method, &head.uri).saturating_add(header_bytes(&headers));
    if used > HEADER_BYTES {
        let (limit, configured) = (LimitKind::RequestHeaders, HEADER_BYTES as u64);
        return Err(SendError::Limit(LimitHit::new(limit, configured, used as u64)));
    }
    let promised = promised_length(&headers, &body.size_hint())?;
    let upload = Arc::new(UploadState { departure, ..UploadState::default() });
    let rest = body.map_err(Into::into).boxed_unsync();
    let (first, rest, payload) = match &authorization.signer {
        Some(signer) => {
            let looked = signer.buffer_payload(rest, target.scheme()).await?;
            (looked.first, looked.rest, Some(looked.payload))
        }
        None => (None, rest, None),
    };
    let mut body = RequestBody { first, rest, promised, upload: Arc::clone(&upload) };
    let exact = body.size_hint().exact();
    let has_body = head.method == Method::POST || head.method == Method::PUT || head.method == Method::PATCH;
    if promised.is_none() && exact.is_none() && !has_body && body.prime(first_byte).await? {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if promised.is_none() && exact == Some(0) && has_body {
        // hyper sends no length for an empty body, and some servers insist on one (status 411).
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    body.note_end();
    head.uri = origin_form(&head.uri)?;
    head.version = Version::HTTP_11;
    head.headers = headers;
    head.extensions.clear();
    authorization.apply(&mut head)?;
    if let Some((signer, payload)) = authorization.signer.as_ref().zip(payload) {
        signer.sign(&mut head, target, &payload)?;
    }
    Ok((Request::from_parts(head, body), upload))
}

fn allowed(headers: HeaderMap, authorization: &Authorization) -> HeaderMap {
    let carries = authorization.carries_credential();
    let passes = |name: &HeaderName| guest_may_set(name) && !(carries && dropped_with_credential(name));
    let mut kept = HeaderMap::with_capacity(headers.len());
    let mut name = None;
    for (next, value) in headers {
        name = next.or(name);
        if let Some(name) = name.as_ref().filter(|name| passes(name)) {
            kept.append(name.clone(), value);
        }
    }
    kept
}

/// Returns the one length that the fields promise. hyper would send a promise that an empty body breaks, and
/// the server would take the next request on the connection for the rest of this one.
fn promised_length(headers: &HeaderMap, hint: &SizeHint) -> Result<Option<u64>, RequestFlaw> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits =
        value.to_str().ok().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse::<u64>().ok());
    match (length, values.next()) {
        (Some(length), None) if hint.exact().is_none_or(|exact| exact == length) => Ok(Some(length)),
        _ => Err(RequestFlaw::ContentLength),
    }
}

/// Returns path and query alone. Without a leading `/`, a proxy behind the server would read them as an
/// absolute URL or as a name.
fn origin_form(uri: &Uri) -> Result<Uri, RequestFlaw> {
    let path = match uri.path_and_query().map_or("", PathAndQuery::as_str) {
        "" => "/".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query if query.starts_with('?') => format!("/{query}"),
        _ => return Err(RequestFlaw::Path),
    };
    let path = PathAndQuery::try_from(path).map_err(|_| RequestFlaw::Path)?;
    Ok(Uri::from(path))
}

impl RequestBody {
    /// Waits for the first frame, and returns whether there is one.
    ///
    /// For the methods that need no body, hyper either drops a body of unknown length silently, or announces
    /// one that turns out empty. Most such bodies are empty; some (searches) are not.
    async fn prime(&mut self, within: Duration) -> Result<bool, NetworkFaultParts> {
        let fault = |code| NetworkFaultParts { phase: RequestPhase::Send, code, request_sent: false };
        if self.first.is_some() {
            return Ok(true);
        }
        match timeout(within, self.rest.frame()).await.map_err(|_| fault(code::TIMEOUT))? {
            Some(Ok(frame)) => self.first = Some(frame),
            Some(Err(_)) => return Err(fault(code::REQUEST_BODY)),
            None => self.rest = UnsyncBoxBody::new(Empty::new().map_err(|never| match never {})),
        }
        Ok(self.first.is_some())
    }

    fn note_end(&self) {
        if self.is_end_stream() || self.promised == Some(0) {
            self.upload.finished.store(true, Ordering::Release);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => std::task::ready!(Pin::new(&mut self.rest).poll_frame(cx)),
        };
        match &frame {
            None => self.upload.finished.store(true, Ordering::Release),
            Some(Err(_)) => self.upload.failed.store(true, Ordering::Release),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.promised = self.promised.map(|promised| promised.saturating_sub(bytes));
                self.note_end();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.first.is_some() { SizeHint::default() } else { self.rest.size_hint() }
    }
}
