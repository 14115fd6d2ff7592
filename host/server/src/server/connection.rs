//! One connection: its handshake, its requests one after the other, each of them whole before anybody handles it.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::access::Access;
use super::answer::{Refused, healthy};
use super::budget::{Charge, Client, RequestBudget};
use super::held::Held;
use super::places::Place;
use super::shutdown::Shutdown;
use super::slow::Patient;
use super::tls::ServerTls;
use super::under_way::UnderWay;
use super::{BODY_BYTES, HEALTH};

/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 32 * 1024;

/// The most header fields of a request.
const FIELDS: usize = 100;

/// The header that names a session of the agents' protocol; here it only tells clients of one address apart.
const SESSION: &str = "mcp-session-id";

/// How long what a client has begun to ask may still take to arrive once the server ends.
const HALF_ASKED: Duration = Duration::from_millis(500);

/// What every connection of a server shares.
pub(super) struct Shared {
    pub(super) app: Router,
    pub(super) access: Access,
    pub(super) tls: Option<ServerTls>,
    pub(super) patience: Duration,
    pub(super) budget: RequestBudget,
    /// True if a request may name the session that it belongs to.
    pub(super) has_sessions: bool,
    /// Makes a number of a session's name that no client can predict.
    pub(super) salt: RandomState,
    pub(super) shutdown: Shutdown,
}

/// The two ends of a connection.
#[derive(Clone, Copy)]
struct Ends {
    local: IpAddr,
    peer: IpAddr,
}

impl Ends {
    fn of(stream: &TcpStream) -> Option<Self> {
        let ip = |address: std::io::Result<std::net::SocketAddr>| Some(address.ok()?.ip().to_canonical());
        Some(Self { local: ip(stream.local_addr())?, peer: ip(stream.peer_addr())? })
    }
}

/// Serves one connection to its end, and no longer than it has its place. What goes wrong with it is the peer's.
pub(super) async fn serve(shared: Arc<Shared>, stream: TcpStream, place: Place) {
    let Some(ends) = Ends::of(&stream) else { return };
    drop(stream.set_nodelay(true));
    let stream = Patient::new(stream, shared.patience);
    let place = Arc::new(place);
    tokio::select! {
        () = served(shared, stream, ends, Arc::clone(&place)) => {}
        () = place.lost() => {
            tracing::debug!(target: "cofferdam::server", "a connection that had not been let in made room");
        }
    }
}

async fn served(shared: Arc<Shared>, stream: Patient<TcpStream>, ends: Ends, place: Arc<Place>) {
    let stuck = stream.stuck();
    let Some(tls) = shared.tls.clone() else { return requests(shared, stream, ends, place, stuck).await };
    let handshake = timeout(shared.patience, TlsAcceptor::from(tls.0).accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        // Nothing was asked yet.
        () = shared.shutdown.begun() => return,
    };
    match shaken {
        Ok(Ok(stream)) => requests(shared, stream, ends, place, stuck).await,
        Ok(Err(error)) => tracing::debug!(target: "cofferdam::server", %error, "no handshake"),
        Err(_) => tracing::debug!(target: "cofferdam::server", "the handshake took too long"),
    }
}

async fn requests(
    shared: Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ends: Ends,
    place: Arc<Place>,
    stuck: Arc<AtomicBool>,
) {
    let shutdown = shared.shutdown.clone();
    let patience = shared.patience;
    let under_way = UnderWay::default();
    let asked = under_way.clone();
    let service = service_fn(move |request| {
        let (shared, place, one) = (Arc::clone(&shared), Arc::clone(&place), asked.one());
        async move {
            let answer = answered(&shared, request, ends, &place).await;
            Ok::<_, Infallible>(one.until_told(answer))
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
            // Half a head is waited for a moment and no longer, as nothing was asked with it; an answer is.
            let nothing = async {
                loop {
                    under_way.none().await;
                    sleep(HALF_ASKED).await;
                    if under_way.is_none() && !stuck.load(Ordering::Relaxed) {
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

/// The answer to one request. After one that was not let in the connection ends: who has no token holds no place.
async fn answered(shared: &Shared, request: Request<Incoming>, ends: Ends, place: &Place) -> Response<Body> {
    match admitted(shared, request, ends, place).await {
        Ok(Admitted::Health) => healthy(),
        Ok(Admitted::Request(mut request, charge)) => {
            let mut app = shared.app.clone();
            request.extensions_mut().insert(Arc::clone(&charge));
            let Ok(answer) = app.call(*request).await;
            // An answer that waits to be read counts until it was.
            charge.force(
                answer
                    .body()
                    .size_hint()
                    .exact()
                    .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            );
            answer.map(|body| Body::new(Held::new(body, charge)))
        }
        Err(refused) => {
            tracing::info!(target: "cofferdam::server", code = refused.code(), "a request was refused");
            refused.answer()
        }
    }
}

/// What may go on.
enum Admitted {
    Health,
    /// The request, and what it holds of the budget.
    Request(Box<Request<Body>>, Arc<Charge>),
}

/// The request, whole; its token was looked at before its body was.
async fn admitted(
    shared: &Shared,
    request: Request<Incoming>,
    ends: Ends,
    place: &Place,
) -> Result<Admitted, Refused> {
    let (parts, body) = request.into_parts();
    shared.access.admit(&parts, ends.local)?;
    if parts.uri.path() == HEALTH {
        let looks = matches!(parts.method, Method::GET | Method::HEAD);
        return if looks { Ok(Admitted::Health) } else { Err(Refused::Method) };
    }
    shared.access.authorize(&parts)?;
    if shared.shutdown.has_begun() || !place.keep() {
        return Err(Refused::Closing);
    }
    let closing = async {
        shared.shutdown.begun().await;
        sleep(HALF_ASKED).await;
    };
    let session = parts.headers.get(SESSION).filter(|_| shared.has_sessions);
    let session = session.map(|session| shared.salt.hash_one(session.as_bytes()));
    let client = Client::Network { address: ends.peer, session };
    let charge = shared.budget.charge(client, 0).ok_or(Refused::Busy)?;
    let body = tokio::select! {
        biased;
        body = whole(body, &charge, shared.patience) => body?,
        () = closing => return Err(Refused::Closing),
    };
    Ok(Admitted::Request(Box::new(Request::from_parts(parts, Body::from(body))), Arc::new(charge)))
}

/// Reads the body. Its bytes are charged as they arrive: a length that is only announced keeps no other request out.
async fn whole(body: Incoming, charge: &Charge, patience: Duration) -> Result<Bytes, Refused> {
    let length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if length > BODY_BYTES {
        return Err(Refused::TooLarge);
    }
    timeout(patience, read(body, length, charge)).await.unwrap_or(Err(Refused::TooSlow))
}

async fn read(mut body: Incoming, length: usize, charge: &Charge) -> Result<Bytes, Refused> {
    let (mut whole, mut paid) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refused::Broken)?.into_data() else { continue };
        let needed = whole.len() + data.len();
        if needed > BODY_BYTES {
            return Err(Refused::TooLarge);
        }
        if needed > paid {
            // The buffer doubles, up to the length that is announced, if one is.
            let doubled = if length > 0 { (2 * paid).min(length) } else { 2 * paid };
            let more = needed.max(doubled) - paid;
            if !charge.grow(more) {
                return Err(Refused::Busy);
            }
            paid += more;
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
