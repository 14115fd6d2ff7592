//! The front's connections: TLS off, the request remembered, answered by a script or by the server behind it.

use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::{Route, Shared};
use crate::upstream::ReceivedRequest;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves until it is stopped.
pub(super) fn run(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        listener.set_nonblocking(true).expect("a listener that can be polled");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        tokio::select! {
            () = accept(listener, acceptor, shared) => {}
            _ = stopped => {}
        }
    });
}

async fn accept(listener: tokio::net::TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
            let connection = hyper::server::conn::http1::Builder::new();
            // The client may disconnect at any time.
            drop(connection.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>, Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let host = head.headers.get("host").map(text).unwrap_or_default();
    let host = host.strip_suffix(":443").unwrap_or(&host).to_owned();
    let seen = ReceivedRequest {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
        body: body.clone(),
        abandoned: false,
    };
    let scripted = scripted(&shared, &host, &seen);
    shared.seen().push((host.clone(), seen));
    match (scripted, shared.routes.get(host.as_str())) {
        (Some(response), _) => Ok(response?),
        (None, Some(route)) => relay(route, Request::from_parts(head, Full::new(body))).await,
        (None, None) => {
            Ok(Response::builder().status(StatusCode::MISDIRECTED_REQUEST).body(Full::default())?)
        }
    }
}

/// True if a request has `marker` in its path or body.
pub(super) fn marked(seen: &ReceivedRequest, marker: &str) -> bool {
    seen.path.contains(marker) || String::from_utf8_lossy(&seen.body).contains(marker)
}

fn scripted(
    shared: &Shared,
    host: &str,
    seen: &ReceivedRequest,
) -> Option<http::Result<Response<Full<Bytes>>>> {
    let all = shared.scripted();
    let found = all.iter().find(|it| it.host == host && marked(seen, &it.marker))?;
    let mut response = Response::builder().status(found.status);
    for (name, value) in &found.headers {
        response = response.header(*name, value);
    }
    Some(response.body(Full::from(found.body.clone())))
}

/// Forwards a request over a new connection.
async fn relay(route: &Route, mut request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Error> {
    let path = request.uri().to_string();
    *request.uri_mut() = path.strip_prefix(route.prefix).unwrap_or(&path).parse()?;
    if let Some(name) = route.token_name {
        let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        if let Some(token) = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned) {
            request.headers_mut().insert(name, token.parse()?);
            if request.method() == http::Method::GET {
                let uri = request.uri();
                let separator = if uri.query().is_some() { '&' } else { '?' };
                *request.uri_mut() = format!("{uri}{separator}{name}={token}").parse()?;
            }
        }
    }
    let stream = TokioIo::new(TcpStream::connect(route.to).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let (mut head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    // The body is whole here, and this connection is another one.
    for name in ["transfer-encoding", "connection", "keep-alive", "content-length"] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Full::new(body)))
}
