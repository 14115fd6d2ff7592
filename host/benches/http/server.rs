//! A server on loopback that costs as little as a server can: one fixed answer, nothing remembered.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Its response, 1 KB.
const ANSWER: &[u8] = &[b'a'; 1024];

/// A server that runs as long as the process, in a thread of its own.
pub struct Server {
    port: u16,
    connections: Arc<AtomicU64>,
}

impl Server {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, &counted));
        });
        Self { port, connections }
    }

    /// `localhost:<port>`.
    pub fn host_port(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Its address as a URL; without a path it is the form that a manifest grants.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host_port())
    }

    /// Connections accepted until now.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(listener: std::net::TcpListener, connections: &AtomicU64) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        connections.fetch_add(1, Ordering::Relaxed);
        let http = hyper::server::conn::http1::Builder::new();
        // A client that goes away is no failure of the server.
        tokio::spawn(
            async move { drop(http.serve_connection(TokioIo::new(stream), service_fn(answer)).await) },
        );
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    drop(request.into_body().collect().await);
    Ok(Response::new(Full::new(Bytes::from_static(ANSWER))))
}
