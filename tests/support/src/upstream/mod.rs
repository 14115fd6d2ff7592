//! A real HTTP server on the loopback interface that answers as the path says and records the requests.
//!
//! | path | answer |
//! |---|---|
//! | `/text/<text>` | that text |
//! | `/status/<code>?retry_after=<text>` | that status |
//! | `/flaky/<n>/..` | 503 to the first n requests of that path, then a text |
//! | `/echo` | the request, as JSON |
//! | `/bytes/<n>` | n bytes |
//! | `/fields/<n>?bytes=<m>` | n header fields of m bytes each |
//! | `/redirect?to=<url>` | 302 to there |
//! | `/slow/<ms>` | a text, after a while |
//! | `/hang` | nothing, for as long as somebody waits |
//! | `/early-close` | a head that promises 1,000 bytes, ten of them, and the end of the connection |
//! | `/drop` | the end of the connection |
//! | `/repos/..` | GitHub's issues; see `issues` |
//!
//! A path that has a [script](Upstream::script) answers from it, request after request.

mod issues;
mod reply;
mod script;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use reply::{Body, Reply};
pub use script::ScriptedReply;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The header fields, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// True if the client disconnected before the response.
    pub abandoned: bool,
}

impl ReceivedRequest {
    /// The first header field of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The server; it ends with the value.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    connections: AtomicU64,
    seen: Mutex<Vec<ReceivedRequest>>,
    issues: issues::Store,
    scripts: script::Scripts,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<ReceivedRequest>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// Starts a server on a free port, in a new thread.
    ///
    /// # Panics
    /// There is no loopback interface.
    #[must_use]
    pub fn start() -> Self {
        Self::serving(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback interface"))
    }

    /// Starts it on the port `wanted` where that is free, for packages that are to be the same in every run.
    ///
    /// # Panics
    /// As [`Upstream::start`].
    #[must_use]
    pub fn start_at(wanted: u16) -> Self {
        match std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)) {
            Ok(listener) => Self::serving(listener),
            Err(_) => Self::start(),
        }
    }

    fn serving(listener: std::net::TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a listener that can be polled");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `localhost:<port>`.
    #[must_use]
    pub fn host_port(&self) -> String {
        format!("localhost:{}", self.port())
    }

    /// As a manifest grants it: `http://localhost:<port>`.
    #[must_use]
    pub fn grant(&self) -> String {
        format!("http://{}", self.host_port())
    }

    /// A URL of it; `path` starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host_port())
    }

    /// Has requests for `path` answered by `turns`, one after the other; the last one stays. The path has no other
    /// meaning then. Returns its URL.
    pub fn script(&self, path: &str, turns: impl IntoIterator<Item = ScriptedReply>) -> String {
        self.shared.scripts.set(path, turns.into_iter().collect());
        self.url(path)
    }

    /// Connections accepted until now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The number of requests until now.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.shared.seen().len()
    }

    /// All requests but the first `known`, until now.
    #[must_use]
    pub fn seen_after(&self, known: usize) -> Vec<ReceivedRequest> {
        self.shared.seen().iter().skip(known).cloned().collect()
    }

    /// The requests whose path starts with `prefix`, until now.
    #[must_use]
    pub fn seen(&self, prefix: &str) -> Vec<ReceivedRequest> {
        self.shared.seen().iter().filter(|seen| seen.path.starts_with(prefix)).cloned().collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
            // A connection that breaks is what some of the tests are about.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

/// Marks a request as abandoned if its answer is dropped before it is made.
struct Waiting<'a> {
    shared: &'a Shared,
    index: usize,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let (false, Some(seen)) = (self.answered, self.shared.seen().get_mut(self.index)) {
            seen.abandoned = true;
        }
    }
}

/// The connection is to end without an answer.
#[derive(Debug)]
struct HangUp;

impl std::fmt::Display for HangUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hanging up")
    }
}

impl std::error::Error for HangUp {}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, HangUp> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| HangUp)?.to_bytes();
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let seen = ReceivedRequest {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers.iter().map(header).collect(),
        body,
        abandoned: false,
    };
    let (index, earlier) = {
        let mut all = shared.seen();
        let earlier = all.iter().filter(|before| before.path == seen.path).count();
        all.push(seen.clone());
        (all.len() - 1, earlier)
    };
    let mut waiting = Waiting { shared: &shared, index, answered: false };
    let reply = match shared.scripts.next(&seen.path) {
        Some(turn) => turn.reply().await,
        None if seen.path.starts_with("/repos/") => shared.issues.answer(&seen),
        None => reply::by_path(&seen, earlier).await,
    };
    waiting.answered = true;
    match reply {
        Reply::Response(response) => Ok(response),
        Reply::HangUp => Err(HangUp),
    }
}
