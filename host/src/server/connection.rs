//! One connection: its handshake, its requests one after the other, each of them whole before anybody handles it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::access::Access;
use super::answer::{Refused, healthy};
use super::shutdown::Shutdown;
use super::slow::Patient;
use super::tls::ServerTls;
use super::{BODY_BYTES, HEALTH};

/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 32 * 1024;

/// The most header fields of a request.
const FIELDS: usize = 100;

/// What every connection of a server shares.
pub(super) struct Shared {
    pub(super) app: Router,
    pub(super) access: Access,
    pub(super) tls: Option<ServerTls>,
    pub(super) patience: Duration,
    pub(super) shutdown: Shutdown,
}

/// Serves one connection to its end, and no longer than the server lives. What goes wrong with it is the peer's.
pub(super) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let Ok(at) = stream.local_addr().map(|address| address.ip().to_canonical()) else { return };
    drop(stream.set_nodelay(true));
    let stream = Patient::new(stream, shared.patience);
    match shared.tls.clone() {
        None => requests(shared, stream, at).await,
        Some(tls) => {
            let handshake = TlsAcceptor::from(tls.0).accept(stream);
            match timeout(shared.patience, handshake).await {
                Ok(Ok(stream)) => requests(shared, stream, at).await,
                Ok(Err(error)) => tracing::debug!(target: "cofferdam::server", %error, "no handshake"),
                Err(_) => tracing::debug!(target: "cofferdam::server", "the handshake took too long"),
            }
        }
    }
}

async fn requests(
    shared: Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    at: IpAddr,
) {
    let shutdown = shared.shutdown.clone();
    let patience = shared.patience;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answered(&shared, request, at).await) }
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
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: "cofferdam::server", %error, "a connection broke");
    }
}

/// The answer to one request.
async fn answered(shared: &Shared, request: Request<Incoming>, at: IpAddr) -> Response<Body> {
    match admitted(shared, request, at).await {
        Ok(Admitted::Health) => healthy(),
        Ok(Admitted::Request(request)) => {
            let mut app = shared.app.clone();
            let Ok(answer) = app.call(*request).await;
            answer
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
    Request(Box<Request<Body>>),
}

/// The request, whole; its token was looked at before its body was.
async fn admitted(shared: &Shared, request: Request<Incoming>, at: IpAddr) -> Result<Admitted, Refused> {
    let (parts, body) = request.into_parts();
    shared.access.admit(&parts, at)?;
    if parts.uri.path() == HEALTH {
        let looks = matches!(parts.method, Method::GET | Method::HEAD);
        return if looks { Ok(Admitted::Health) } else { Err(Refused::Method) };
    }
    shared.access.authorize(&parts)?;
    if shared.shutdown.has_begun() {
        return Err(Refused::Closing);
    }
    let body = whole(body, shared.patience).await?;
    Ok(Admitted::Request(Box::new(Request::from_parts(parts, Body::from(body)))))
}

async fn whole(body: Incoming, patience: Duration) -> Result<Bytes, Refused> {
    if body.size_hint().lower() > BODY_BYTES as u64 {
        return Err(Refused::TooLarge);
    }
    match timeout(patience, Limited::new(body, BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refused::TooLarge),
        Ok(Err(_)) => Err(Refused::Broken),
        Err(_) => Err(Refused::TooSlow),
    }
}
