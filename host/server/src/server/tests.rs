//! Tests of the listener over real sockets, by a client that writes bytes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{BODY_BYTES, BearerToken, BoundServer, ServerSettings, ServerTls, Shutdown};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// More than the sockets' buffers hold.
const LARGE: usize = 32 << 20;

/// A server with two handlers: one returns the length of the body, and one waits until calls are cancelled.
struct Server {
    address: std::net::SocketAddr,
    shutdown: Shutdown,
    handled: Arc<AtomicU32>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(change: impl FnOnce(ServerSettings) -> ServerSettings) -> Self {
        let settings =
            ServerSettings::new("127.0.0.1:0".parse().unwrap()).io_timeout(Duration::from_millis(400));
        let listening = BoundServer::bind(change(settings)).await.unwrap();
        let (address, shutdown) = (listening.address(), Shutdown::new());
        let handled = Arc::new(AtomicU32::new(0));
        let (counter, until) = (Arc::clone(&handled), shutdown.clone());
        let count = move |body: String| async move {
            counter.fetch_add(1, Ordering::SeqCst);
            body.len().to_string()
        };
        let wait = async move || {
            until.cancelled().await;
            "cancelled"
        };
        let app = Router::new()
            .route("/count", post(count))
            .route("/wait", post(wait))
            .route("/large", post(async || "y".repeat(LARGE)))
            .layer(axum::extract::DefaultBodyLimit::disable());
        let serving = tokio::spawn(listening.serve(app, shutdown.clone()));
        Self { address, shutdown, handled, serving }
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Returns all answers until the connection ends.
    async fn ask(&self, request: &str) -> String {
        read(self.send(request).await).await
    }
}

async fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    drop(tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap());
    String::from_utf8(answer).unwrap()
}

fn request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

#[track_caller]
fn assert_refused(answer: &str, status: u16, code: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["error"]["code"], code, "{answer}");
}

#[tokio::test]
async fn invalid_requests_never_reach_the_handler() {
    let server = Server::start(|settings| settings.token(BearerToken::new(TOKEN).unwrap())).await;
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(server.ask(health).await.ends_with("ok\n"));
    assert_refused(&server.ask(&health.replace("localhost", "evil.com")).await, 403, "host_refused");
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    assert!(server.ask(&request("/count", &token, "12345")).await.ends_with("\r\n\r\n5"));
    assert_refused(&server.ask(&request("/count", "", "12345")).await, 401, "unauthorized");
    let foreign = format!("{token}origin: https://evil.com\r\n");
    assert_refused(&server.ask(&request("/count", &foreign, "12345")).await, 403, "origin_refused");
    let in_url = format!("/count?token={TOKEN}&access_token={TOKEN}");
    assert_refused(&server.ask(&request(&in_url, "", "12345")).await, 401, "unauthorized");
    assert_eq!(server.handled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn slow_or_oversized_requests_end_their_connection() {
    let server = Server::start(|settings| settings).await;
    let long =
        request("/count", "", "").replace("content-length: 0", &format!("content-length: {}", 5 << 20));
    assert_refused(&server.ask(&long).await, 413, "too_large");
    let chunked = "POST /count HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut stream = server.send(chunked).await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..(BODY_BYTES / 0x10000 + 2) {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut head = [0; 12];
    if stream.read_exact(&mut head).await.is_ok() {
        assert_eq!(&head, b"HTTP/1.1 413");
    }
    // A body that never arrives, a head that never ends, a silent connection.
    let slow = request("/count", "", "12345").replace("12345", "1");
    assert_refused(&server.ask(&slow).await, 408, "too_slow");
    let answer = server.ask("POST /count HTTP/1.1\r\nhost: local").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(server.ask("").await, "");
    for broken in
        ["\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "{\"jsonrpc\": \"2.0\"}\r\n\r\n", "\u{16}\u{3}\u{1}\r\n\r\n"]
    {
        let answer = server.ask(broken).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{broken:?}: {answer}");
    }
    let heads = format!("{}\r\n", "x: y\r\n".repeat(200));
    assert!(server.ask(&format!("GET / HTTP/1.1\r\n{heads}")).await.starts_with("HTTP/1.1 431"));
    assert!(server.ask(&request("/count", "", "12345")).await.ends_with("\r\n\r\n5"));
    assert_eq!(server.handled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn excess_connections_wait_for_a_permit() {
    let server = Server::start(|settings| settings.connections(2)).await;
    let (first, second) = (server.send("").await, server.send("").await);
    // Both are silent, and are closed after the timeout.
    assert!(server.ask(&request("/count", "", "123")).await.ends_with("\r\n\r\n3"));
    drop((first, second));
}

#[tokio::test]
async fn shutdown_accepts_nothing_and_finishes_responses() {
    let server = Server::start(|settings| settings.grace(Duration::from_millis(300))).await;
    let idle = server.send("").await;
    let waiting = server.send(&request("/wait", "", "")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.begin();
    assert!(read(waiting).await.ends_with("cancelled"), "what runs is told to end, and says so");
    server.serving.await.unwrap();
    assert_eq!(read(idle).await, "");
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn unauthenticated_clients_do_not_lock_out_others() {
    let token = BearerToken::new(TOKEN).unwrap();
    let server =
        Server::start(|settings| settings.token(token).connections(16).io_timeout(Duration::from_secs(120)))
            .await;
    // A health check or a rejected request keeps no connection.
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let foreign = "POST /count HTTP/1.1\r\nhost: evil.com\r\ncontent-length: 0\r\n\r\n";
    let stranger = foreign.replace("evil.com", "localhost");
    for (asked, status) in [(health, "200"), (foreign, "403"), (stranger.as_str(), "401")] {
        let answer = server.ask(asked).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    }
    // Neither do partial requests: twice as many as there are permits, all silent for two minutes.
    let bearer = format!("authorization: Bearer {TOKEN}\r\n");
    let waiting = server.send(&request("/wait", &bearer, "")).await;
    let mut kept = server.send(&stay(&bearer, "1234")).await;
    assert!(one(&mut kept).await.ends_with('4'));
    let mut half = Vec::new();
    for _ in 0..32 {
        half.push(server.send("POST /count HTTP/1.1\r\nhost: local").await);
    }
    assert!(server.ask(&request("/count", &bearer, "12345")).await.ends_with("\r\n\r\n5"));
    // An authenticated connection is kept, and completes its request.
    kept.write_all(stay(&bearer, "123456").as_bytes()).await.unwrap();
    assert!(one(&mut kept).await.ends_with('6'));
    assert_eq!(read(half.remove(0)).await, "", "the longest there has gone");
    server.shutdown.cancel();
    assert!(read(waiting).await.ends_with("cancelled"));
}

/// Returns a request after which the connection stays open.
fn stay(headers: &str, body: &str) -> String {
    request("/count", headers, body).replace("connection: close\r\n", "")
}

/// Reads one short answer on a connection that stays open.
async fn one(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    while !answer.contains("\r\n\r\n") || answer.ends_with("\r\n\r\n") {
        let mut some = [0; 1024];
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut some)).await;
        let read = read.unwrap().unwrap();
        assert!(read > 0, "it ended: {answer}");
        answer.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    answer
}

/// Grace period and timeout are longer than any test: a wait for any client would fail the test.
#[tokio::test]
async fn shutdown_does_not_wait_for_idle_clients() {
    let long = Duration::from_secs(600);
    let server = Server::start(|settings| settings.grace(long).io_timeout(long)).await;
    let head = server.send("POST /count HTTP/1.1\r\nhost: local").await;
    let body = server.send(&request("/count", "", "12345").replace("12345", "1")).await;
    let mut again = server.send(&stay("", "1234")).await;
    assert!(one(&mut again).await.ends_with('4'));
    again.write_all(b"POST /count HT").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.begin();
    tokio::time::timeout(Duration::from_secs(60), server.serving).await.unwrap().unwrap();
    assert_eq!(read(head).await, "");
    assert_refused(&read(body).await, 503, "closing");
    assert_eq!((read(again).await.as_str(), server.handled.load(Ordering::SeqCst)), ("", 1));

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = ServerTls::from_pem(cert.as_bytes(), key.as_bytes()).unwrap();
    let server = Server::start(|settings| settings.grace(long).io_timeout(long).tls(tls)).await;
    let shaking = server.send("\u{16}\u{3}\u{1}").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.begin();
    tokio::time::timeout(Duration::from_secs(60), server.serving).await.unwrap().unwrap();
    drop(shaking);
}

/// An answer is not truncated because its reader is slow: the answer is larger than the buffers in between.
#[tokio::test]
async fn shutdown_waits_for_slow_readers() {
    let long = Duration::from_secs(600);
    let server = Server::start(|settings| settings.grace(long).io_timeout(long)).await;
    let mut stream = server.send(&request("/large", "", "")).await;
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    server.shutdown.begin();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(read(stream).await.split_once("\r\n\r\n").unwrap().1.len(), LARGE);
    tokio::time::timeout(Duration::from_secs(60), server.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn beyond_loopback_a_token_and_tls_are_required() {
    let anywhere = || ServerSettings::new("0.0.0.0:0".parse().unwrap());
    let token = || BearerToken::new(TOKEN).unwrap();
    for bad in [anywhere(), anywhere().cleartext_beyond_loopback(), anywhere().token(token())] {
        let error = BoundServer::bind(bad).await.unwrap_err();
        assert_eq!(error.kind(), cofferdam_core::error::HostErrorKind::Configuration);
    }
    let settings = anywhere().token(token()).cleartext_beyond_loopback();
    assert!(BoundServer::bind(settings).await.is_ok());
    let taken = BoundServer::bind(ServerSettings::new("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let error = BoundServer::bind(ServerSettings::new(taken.address())).await.unwrap_err();
    assert!(error.message().contains("cannot listen at 127.0.0.1"), "{error}");
}

#[tokio::test]
async fn tls_presents_the_configured_certificate() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = ServerTls::from_pem(cert.as_bytes(), key.as_bytes()).unwrap();
    for (cert, key) in [("", key.as_str()), (cert.as_str(), ""), (key.as_str(), cert.as_str())] {
        assert!(ServerTls::from_pem(cert.as_bytes(), key.as_bytes()).is_err());
    }
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = other.signing_key.serialize_pem();
    assert!(ServerTls::from_pem(cert.as_bytes(), other.as_bytes()).is_err(), "another certificate's key");

    let server = Server::start(|settings| settings.tls(tls)).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
    stream.write_all(request("/count", "", "12345").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert!(answer.ends_with(b"\r\n\r\n5"), "{}", String::from_utf8_lossy(&answer));
    // A client that does not speak TLS, or stops in the handshake, gets no answer.
    assert!(!server.ask(&request("/count", "", "1")).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.ask("\u{16}\u{3}\u{1}").await, "");
}
