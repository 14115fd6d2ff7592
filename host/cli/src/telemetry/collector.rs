//! The way to a collector: one HTTP/1.1 request for each batch of spans, within its time.
//!
//! The SDK exports on a thread of its own, which has no runtime: this brings one, and what it waits for holds up
//! nobody else. No redirect is followed and no proxy asked, as for connectors.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use super::tls;

/// The most that a collector may answer, in bytes.
const ANSWER_BYTES: usize = 64 * 1024;

/// A collector, and what was said of it.
#[derive(Debug)]
pub(super) struct CollectorClient {
    runtime: Runtime,
    timeout: Duration,
    certificate: Option<PathBuf>,
    warned: AtomicBool,
}

impl CollectorClient {
    pub(super) fn new(timeout: Duration, certificate: Option<PathBuf>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, timeout, certificate, warned: AtomicBool::new(false) })
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (host, port, secure) = target(request.uri()).ok_or("it has no address")?;
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        stream.set_nodelay(true)?;
        if !secure {
            return send(TokioIo::new(stream), request).await;
        }
        let config = tls::config(self.certificate.as_deref())?;
        let stream = TlsConnector::from(config).connect(ServerName::try_from(host)?, stream).await?;
        send(TokioIo::new(stream), request).await
    }

    /// Says once that spans were lost, and why.
    fn lost(&self, at: &str, why: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "cofferdam::telemetry", collector = at, "spans could not be sent: {why}");
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Host and port alone: before them, or in the path, there may be a credential.
        let at = target(request.uri()).map(|(host, port, _)| format!("{host}:{port}")).unwrap_or_default();
        let within = async { tokio::time::timeout(self.timeout, self.exchange(request)).await };
        match self.runtime.block_on(within) {
            Ok(Ok(response)) => {
                if !response.status().is_success() {
                    self.lost(&at, &format!("it answered with status {}", response.status().as_u16()));
                }
                Ok(response)
            }
            Ok(Err(error)) => {
                self.lost(&at, &error.to_string());
                Err(error)
            }
            Err(late) => {
                self.lost(&at, &format!("no answer within {} ms", self.timeout.as_millis()));
                Err(late.into())
            }
        }
    }
}

/// Host, port, and whether TLS is wanted.
fn target(uri: &Uri) -> Option<(String, u16, bool)> {
    let secure = uri.scheme_str() == Some("https");
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, uri.port_u16().unwrap_or(if secure { 443 } else { 80 }), secure))
}

/// The request in origin form over a connection of its own, and the answer in whole.
async fn send(
    stream: impl Read + Write + Unpin + Send + 'static,
    mut request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let uri = request.uri().clone();
    if let Some(authority) = uri.authority() {
        // What stands before an `@` is no part of the host.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        request.headers_mut().insert(HOST, HeaderValue::from_str(host)?);
    }
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = path.into();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request.map(Full::new)).await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
    drop(sender);
    connection.abort();
    Ok(Response::from_parts(head, body))
}
