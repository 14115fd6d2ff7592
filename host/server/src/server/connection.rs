//! One connection: its handshake and its requests one after the other, each read completely before it is
//! handled.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Error, ErrorKind};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::auth::{AccessPolicy, OwnAccess};
use super::budget::{BudgetCharge, BudgetClient, RequestBudget};
use super::connection_limit::ConnectionPermit;
use super::listener::ServerTls;
use super::readiness::{self, Readiness};
use super::rejection::{RequestRejection, healthy};
use super::shutdown::InFlightRequests;
use super::shutdown::Shutdown;
use super::{BODY_BYTES, HEALTH, READY};

/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 32 * 1024;

/// The most header fields of a request.
const FIELDS: usize = 100;

/// The header that names a session of the agents' protocol; here it only distinguishes clients of one
/// address.
const SESSION: &str = "mcp-session-id";

/// The time for a partially received request to arrive once the server ends.
const PARTIAL_REQUEST_GRACE: Duration = Duration::from_millis(500);

/// The state that all connections of a server share.
pub(super) struct ServerContext {
    pub(super) app: Router,
    pub(super) access: AccessPolicy,
    pub(super) tls: Option<ServerTls>,
    pub(super) io_timeout: Duration,
    pub(super) budget: RequestBudget,
    /// True if a request may name the session that it belongs to.
    pub(super) has_sessions: bool,
    pub(super) readiness: Option<Readiness>,
    pub(super) own_access: OwnAccess,
    /// Maps a session's name to a number that no client can predict.
    pub(super) salt: RandomState,
    pub(super) shutdown: Shutdown,
}

/// The two ends of a connection.
#[derive(Clone, Copy)]
struct ConnectionEnds {
    local: IpAddr,
    peer: IpAddr,
}

impl ConnectionEnds {
    fn from_stream(stream: &TcpStream) -> Option<Self> {
        let ip = |address: std::io::Result<std::net::SocketAddr>| Some(address.ok()?.ip().to_canonical());
        Some(Self { local: ip(stream.local_addr())?, peer: ip(stream.peer_addr())? })
    }
}

/// Serves one connection to its end, but only while it has its permit. Its errors are the peer's.
pub(super) async fn serve(shared: Arc<ServerContext>, stream: TcpStream, place: ConnectionPermit) {
    let Some(ends) = ConnectionEnds::from_stream(&stream) else { return };
    drop(stream.set_nodelay(true));
    let stream = WriteTimeout::new(stream, shared.io_timeout);
    let place = Arc::new(place);
    tokio::select! {
        () = handshake_and_serve(shared, stream, ends, Arc::clone(&place)) => {}
        () = place.revoked() => {
            tracing::debug!(target: "cofferdam::server", "a connection that had not been let in made room");
        }
    }
}

async fn handshake_and_serve(
    shared: Arc<ServerContext>,
    stream: WriteTimeout<TcpStream>,
    ends: ConnectionEnds,
    place: Arc<ConnectionPermit>,
) {
    let stuck = stream.stuck();
    let Some(tls) = shared.tls.clone() else {
        return serve_requests(shared, stream, ends, place, stuck).await;
    };
    let handshake = timeout(shared.io_timeout, TlsAcceptor::from(tls.0).accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        // No request has begun.
        () = shared.shutdown.begun() => return,
    };
    match shaken {
        Ok(Ok(stream)) => serve_requests(shared, stream, ends, place, stuck).await,
        Ok(Err(error)) => tracing::debug!(target: "cofferdam::server", %error, "no handshake"),
        Err(_) => tracing::debug!(target: "cofferdam::server", "the handshake took too long"),
    }
}

async fn serve_requests(
    shared: Arc<ServerContext>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ends: ConnectionEnds,
    place: Arc<ConnectionPermit>,
    stuck: Arc<AtomicBool>,
) {
    let shutdown = shared.shutdown.clone();
    let patience = shared.io_timeout;
    let under_way = InFlightRequests::default();
    let asked = under_way.clone();
    let service = service_fn(move |request| {
        let (shared, place, one) = (Arc::clone(&shared), Arc::clone(&place), asked.start());
        async move {
            let answer = respond(&shared, request, ends, &place).await;
            Ok::<_, Infallible>(one.hold_until_sent(answer))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(HEAD_BYTES)
        .max_headers(FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.begun() => {
            connection.as_mut().graceful_shutdown();
            // The server waits only a moment for the rest of a head, as it is no request yet; an answer is
            // completed.
            let nothing = async {
                loop {
                    under_way.wait_idle().await;
                    sleep(PARTIAL_REQUEST_GRACE).await;
                    if under_way.is_idle() && !stuck.load(Ordering::Relaxed) {
                        return;
                    }
                }
            };
            tokio::select! {
                ended = connection => ended,
                () = nothing => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: "cofferdam::server", %error, "a connection broke");
    }
}

/// Returns the answer to one request. After a rejected request the connection ends, so that a client without
/// a token holds no permit.
async fn respond(
    shared: &ServerContext,
    request: Request<Incoming>,
    ends: ConnectionEnds,
    place: &ConnectionPermit,
) -> Response<Body> {
    match admit(shared, request, ends, place).await {
        Ok(AdmittedRequest::Health) => healthy(),
        Ok(AdmittedRequest::Readiness) => {
            readiness::answer(shared.readiness.as_ref(), shared.shutdown.has_begun()).await
        }
        Ok(AdmittedRequest::WithoutSession(request)) => {
            let mut app = shared.app.clone();
            let Ok(mut answer) = app.call(*request).await;
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            answer
        }
        Ok(AdmittedRequest::Request(mut request, charge)) => {
            let mut app = shared.app.clone();
            request.extensions_mut().insert(Arc::clone(&charge));
            let Ok(answer) = app.call(*request).await;
            // An answer counts until it was read.
            charge.force(
                answer
                    .body()
                    .size_hint()
                    .exact()
                    .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            );
            answer.map(|body| Body::new(GuardedBody::new(body, charge)))
        }
        Err(refused) => {
            tracing::info!(target: "cofferdam::server", code = refused.code(), "a request was refused");
            refused.answer()
        }
    }
}

/// The result of the admission.
enum AdmittedRequest {
    Health,
    Readiness,
    /// The head of a request to a part with sessions that belongs to none. The connection ends with the answer.
    WithoutSession(Box<Request<Body>>),
    /// The request, and its charge to the budget.
    Request(Box<Request<Body>>, Arc<BudgetCharge>),
}

/// Admits the request with its complete body; the token is checked before the body is read.
async fn admit(
    shared: &ServerContext,
    request: Request<Incoming>,
    ends: ConnectionEnds,
    place: &ConnectionPermit,
) -> Result<AdmittedRequest, RequestRejection> {
    let (parts, body) = request.into_parts();
    shared.access.admit(&parts, ends.local)?;
    let probe = match parts.uri.path() {
        HEALTH => Some(AdmittedRequest::Health),
        READY => Some(AdmittedRequest::Readiness),
        _ => None,
    };
    if let Some(probe) = probe {
        let looks = matches!(parts.method, Method::GET | Method::HEAD);
        return if looks { Ok(probe) } else { Err(RequestRejection::Method) };
    }
    match shared.own_access.verdict(&parts) {
        Some(true) => {}
        Some(false) if shared.shutdown.has_begun() => return Err(RequestRejection::Closing),
        Some(false) => {
            return Ok(AdmittedRequest::WithoutSession(Box::new(Request::from_parts(parts, Body::empty()))));
        }
        None => shared.access.authorize(&parts)?,
    }
    if shared.shutdown.has_begun() || !place.mark_authenticated() {
        return Err(RequestRejection::Closing);
    }
    let closing = async {
        shared.shutdown.begun().await;
        sleep(PARTIAL_REQUEST_GRACE).await;
    };
    let session = parts.headers.get(SESSION).filter(|_| shared.has_sessions);
    let session = session.map(|session| shared.salt.hash_one(session.as_bytes()));
    let client = BudgetClient::Network { address: ends.peer, session };
    let charge = shared.budget.charge(client, 0).ok_or(RequestRejection::Busy)?;
    let body = tokio::select! {
        biased;
        body = read_body(body, &charge, shared.io_timeout) => body?,
        () = closing => return Err(RequestRejection::Closing),
    };
    Ok(AdmittedRequest::Request(Box::new(Request::from_parts(parts, Body::from(body))), Arc::new(charge)))
}

/// Reads the body. Its bytes are charged as they arrive: an announced length alone keeps no other request
/// out.
async fn read_body(
    body: Incoming,
    charge: &BudgetCharge,
    patience: Duration,
) -> Result<Bytes, RequestRejection> {
    let length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if length > BODY_BYTES {
        return Err(RequestRejection::TooLarge);
    }
    timeout(patience, read_frames(body, length, charge)).await.unwrap_or(Err(RequestRejection::TooSlow))
}

async fn read_frames(
    mut body: Incoming,
    length: usize,
    charge: &BudgetCharge,
) -> Result<Bytes, RequestRejection> {
    let (mut whole, mut paid) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| RequestRejection::Broken)?.into_data() else { continue };
        let needed = whole.len() + data.len();
        if needed > BODY_BYTES {
            return Err(RequestRejection::TooLarge);
        }
        if needed > paid {
            // The buffer doubles, up to the announced length if there is one.
            let doubled = if length > 0 { (2 * paid).min(length) } else { 2 * paid };
            let more = needed.max(doubled) - paid;
            if !charge.grow(more) {
                return Err(RequestRejection::Busy);
            }
            paid += more;
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// A stream that fails once nothing could be written for longer than `patience`.
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// The timer of the pending write.
    waiting: Option<Pin<Box<Sleep>>>,
    stuck: Arc<AtomicBool>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, timeout: patience, waiting: None, stuck: Arc::default() }
    }

    /// Returns a flag that is true if the last write timed out.
    pub(super) fn stuck(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stuck)
    }

    /// Returns the result of a write attempt, and stops or checks the timer.
    fn enforce_timeout<T>(
        &mut self,
        tried: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        self.stuck.store(tried.is_pending(), Ordering::Relaxed);
        if tried.is_ready() {
            self.waiting = None;
            return tried;
        }
        let patience = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        // Every later attempt fails at once.
        waiting.as_mut().reset(Instant::now());
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "nobody reads the answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.enforce_timeout(tried, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_flush(context);
        this.enforce_timeout(tried, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_shutdown(context);
        this.enforce_timeout(tried, context)
    }
}

/// A body that holds something.
pub(crate) struct GuardedBody<T> {
    body: Body,
    _held: T,
}

impl<T> GuardedBody<T> {
    pub(crate) fn new(body: Body, held: T) -> Self {
        Self { body, _held: held }
    }
}

impl<T: Unpin> http_body::Body for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::WriteTimeout;

    #[tokio::test]
    async fn a_write_that_is_not_read_times_out() {
        let (near, far) = tokio::io::duplex(16);
        let mut near = WriteTimeout::new(near, Duration::from_millis(50));
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        drop(far);
    }
}
