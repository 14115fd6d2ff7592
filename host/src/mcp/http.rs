//! The server over streamable HTTP: a route for the listener, which has looked at who asks and has read the body.
//!
//! Clients of the versions up to 2025-11-25 have sessions; those of 2026-07-28 have none, and there the end of the
//! connection cancels the call. Where sessions are, the protocol says that it does not: such a call goes on, to its
//! limits, and its answer waits for the client to come back.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use http_body::Frame;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::jsonrpc::{self, Kind, Refused};
use super::server::{McpServer, McpSettings, Shared};
use crate::server::BODY_BYTES;

/// Sessions and requests without one that are served at once.
const SESSIONS: usize = 1_024;

/// How long the last answers have to be written when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What is written when nothing runs any more is on its way by then.
const WRITTEN: Duration = Duration::from_millis(50);

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

type Service = StreamableHttpService<McpServer, LocalSessionManager>;

/// Requests with an answer under way: the session's name and the id as JSON.
type UnderWay = Arc<Mutex<HashSet<(String, String)>>>;

#[derive(Clone)]
struct Front {
    service: Service,
    under_way: UnderWay,
}

impl McpSettings {
    /// The server at `path` of a router, for [`Listening::serve`](crate::server::Listening::serve).
    pub fn router(self, path: &str) -> Router {
        let shutdown = self.shutdown.clone();
        let shared = Arc::new(Shared { settings: self, running: Default::default() });
        let ending = CancellationToken::new();
        // Host, origin and the length of the body are the listener's to look at, and it did.
        let mut config = StreamableHttpServerConfig::default().disable_allowed_hosts();
        config.json_response = true;
        config.max_request_body_bytes = BODY_BYTES;
        config.cancellation_token = ending.clone();
        let room = Arc::new(Semaphore::new(SESSIONS));
        let of_all = Arc::clone(&shared);
        let make = move || match Arc::clone(&room).try_acquire_owned() {
            Ok(room) => Ok(McpServer::new(Arc::clone(&of_all), Some(room))),
            Err(_) => Err(io::Error::other("more sessions than are served at once")),
        };
        let service = StreamableHttpService::new(make, Arc::new(LocalSessionManager::default()), config);
        // Streams that only wait would hold the listener; they end when no call has anything left to say.
        tokio::spawn(async move {
            shutdown.begun().await;
            tokio::select! {
                () = shared.running.idle() => {}
                () = shutdown.cancelled() => drop(tokio::time::timeout(LAST_WORDS, shared.running.idle()).await),
            }
            tokio::time::sleep(WRITTEN).await;
            ending.cancel();
        });
        Router::new().route(path, any(answered)).with_state(Front { service, under_way: UnderWay::default() })
    }
}

async fn answered(State(front): State<Front>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let mut one = None;
    if parts.method == Method::POST {
        match jsonrpc::read(&body) {
            Ok((Kind::Request { .. }, Some(id))) => match front.taken(&parts.headers, &id) {
                Ok(taken) => one = taken,
                Err(refused) => return refusal(&refused),
            },
            Ok(_) => {}
            Err(refused) => return refusal(&refused),
        }
    }
    let answer = front.service.handle(Request::from_parts(parts, Body::from(body))).await;
    match one {
        None => answer.map(Body::new),
        Some(one) => answer.map(|body| Body::new(Kept { body: Body::new(body), _one: one })),
    }
}

fn refusal(refused: &Refused) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::BAD_REQUEST, json, refused.answer()).into_response()
}

impl Front {
    /// Takes the id for a request of a session; without one every request stands alone.
    fn taken(&self, headers: &HeaderMap, id: &Value) -> Result<Option<One>, Refused> {
        let Some(session) = headers.get(SESSION).and_then(|session| session.to_str().ok()) else {
            return Ok(None);
        };
        let key = (session.to_owned(), id.to_string());
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if !under_way.insert(key.clone()) {
            return Err(Refused::request("A request with this id is under way."));
        }
        Ok(Some(One { key, under_way: Arc::clone(&self.under_way) }))
    }
}

/// A request whose answer is under way until this is dropped.
struct One {
    key: (String, String),
    under_way: UnderWay,
}

impl Drop for One {
    fn drop(&mut self) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// The body of an answer, which holds its request's id until it is written.
struct Kept {
    body: Body,
    _one: One,
}

impl http_body::Body for Kept {
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
