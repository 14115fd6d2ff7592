//! The server over streamable HTTP: a route for the listener, which has authorized the request and read the
//! body.
//!
//! Clients of the versions up to 2025-11-25 have sessions; those of 2026-07-28 have none, and there the end
//! of the connection cancels the call. With sessions, the protocol says that it does not: the call continues
//! to its limits, its id is reserved until its handler has stopped, and its answer waits for the client to
//! reconnect (`sessions.rs`, `replay_buffer.rs`). So the work for a session runs in a task that does not depend on a
//! connection.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::jsonrpc::{self, MessageKind, RpcError};
use super::server::{McpServer, McpSettings, McpShared};
use super::sessions::{McpSession, McpSessions};
use crate::server::{BODY_BYTES, BudgetCharge, CallArguments, GuardedBody};

/// Requests without a session that are served at once.
const MAX_SESSIONLESS_REQUESTS: usize = 1_024;

/// The time limit for writing the last answers when the server ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The delay after the last call, in which its output is sent.
const FLUSH_DELAY: Duration = Duration::from_millis(50);

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// The header that names the version; this version and later ones have no sessions.
const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

type McpHttpService = StreamableHttpService<McpServer, McpSessions>;

#[derive(Clone)]
struct HttpFrontend {
    service: McpHttpService,
    sessions: Arc<McpSessions>,
    alone: Arc<Semaphore>,
}

impl McpSettings {
    /// Returns the server at `path` of a router, for [`BoundServer::serve`](crate::server::BoundServer::serve),
    /// and a handle to wait for after that: in a session, calls outlive their connections.
    pub fn router(self, path: &str) -> (Router, DrainHandle) {
        let (shutdown, grace) = (self.shutdown.clone(), self.grace);
        let limits = self.sessions;
        let shared = Arc::new(McpShared::new(self));
        let ending = CancellationToken::new();
        // The listener has already checked the host, the origin and the length of the body.
        let mut config = StreamableHttpServerConfig::default().disable_allowed_hosts();
        config.json_response = true;
        config.max_request_body_bytes = BODY_BYTES;
        config.cancellation_token = ending.clone();
        let sessions = McpSessions::new(limits);
        let of_all = Arc::clone(&shared);
        let make = move || Ok(McpServer::new(Arc::clone(&of_all)));
        let service = StreamableHttpService::new(make, Arc::clone(&sessions), config);
        // Idle streams would delay the listener; they end when no call has output left.
        let calls = tokio::spawn(async move {
            shutdown.begun().await;
            tokio::select! {
                () = shared.running.wait_idle() => {}
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(grace) => shutdown.cancel(),
            }
            drop(tokio::time::timeout(DRAIN_TIMEOUT, shared.running.wait_idle()).await);
            tokio::time::sleep(FLUSH_DELAY).await;
            ending.cancel();
        });
        let front =
            HttpFrontend { service, sessions, alone: Arc::new(Semaphore::new(MAX_SESSIONLESS_REQUESTS)) };
        (Router::new().route(path, any(handle)).with_state(front), DrainHandle(calls))
    }
}

/// The calls that are running when the server ends.
#[must_use = "calls whose connections are gone are cut short otherwise"]
pub struct DrainHandle(JoinHandle<()>);

impl DrainHandle {
    /// Completes when the server was told to end and no call is running: each ended within the grace period,
    /// or was cancelled and the audit log says so.
    pub async fn ended(self) {
        drop(self.0.await);
    }
}

async fn handle(State(front): State<HttpFrontend>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if let Some(name) = [SESSION, VERSION.0].into_iter().find(|name| !agrees(&parts.headers, name)) {
        // A proxy may have judged the request by the other value.
        let refused = RpcError::request(match name {
            SESSION => "Mcp-Session-Id is there twice, with different values.",
            _ => "MCP-Protocol-Version is there twice, with different values.",
        });
        return refusal(&refused);
    }
    let session = match session(&parts.headers) {
        None => None,
        Some(name) => match front.sessions.get(name) {
            None => return (StatusCode::NOT_FOUND, "There is no such session.").into_response(),
            session => session,
        },
    };
    let answer = match parts.method {
        Method::POST => front.handle_post(parts, body, session).await,
        // The SDK answers 202, which the Python SDK takes for a session that continues.
        Method::DELETE if session.is_some() => Ok(match front.forward(parts, body).await {
            answer if answer.status().is_success() => StatusCode::NO_CONTENT.into_response(),
            answer => answer,
        }),
        _ => Ok(front.forward(parts, body).await),
    };
    answer.unwrap_or_else(|refused| refusal(&refused))
}

fn refusal(refused: &RpcError) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    if refused.is_busy() {
        let later = [(header::RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, json, later, refused.answer()).into_response();
    }
    (StatusCode::BAD_REQUEST, json, refused.answer()).into_response()
}

/// Returns the session of the request.
fn session(headers: &HeaderMap) -> Option<&str> {
    let (name, without) = VERSION;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text(SESSION).filter(|_| text(name) != Some(without))
}

/// Returns true if all occurrences of the header have the same value.
fn agrees(headers: &HeaderMap, name: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    values.all(|value| Some(value) == first)
}

fn is_of(headers: &HeaderMap, name: header::HeaderName, media: &str) -> bool {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split([',', ';']).any(|part| part.trim().eq_ignore_ascii_case(media)))
}

impl HttpFrontend {
    /// Returns the answer of the SDK.
    async fn forward(&self, parts: Parts, body: Bytes) -> Response {
        self.service.handle(Request::from_parts(parts, Body::from(body))).await.map(Body::new)
    }

    async fn handle_post(
        &self,
        mut parts: Parts,
        body: Bytes,
        session: Option<Arc<McpSession>>,
    ) -> Result<Response, RpcError> {
        let (kind, id, body) = envelope(&mut parts, &body)?;
        // The SDK reports any unreadable body as a fault of the header.
        let is_json = is_of(&parts.headers, header::CONTENT_TYPE, "application/json");
        let unread = match (&kind, &id) {
            (MessageKind::Request { .. }, Some(id)) => RpcError::params(id.clone()),
            _ => RpcError::request("The message is none of this protocol."),
        };
        let answer = match (kind, id, session) {
            (MessageKind::Request { method }, Some(id), None) if method == "initialize" => {
                if !self.sessions.make_room() {
                    return Err(RpcError::busy(id));
                }
                self.forward(parts, jsonrpc::trim_request(body)).await
            }
            (MessageKind::Request { method }, Some(id), Some(session)) => {
                parts.extensions.insert(session.take(&id, method == "tools/call")?);
                let body = if method == "initialize" { jsonrpc::trim_request(body) } else { body };
                self.forward(parts, body).await
            }
            (MessageKind::Request { .. }, Some(id), None) => {
                let Ok(room) = Arc::clone(&self.alone).try_acquire_owned() else {
                    return Err(RpcError::busy(id));
                };
                self.forward(parts, body).await.map(|body| Body::new(GuardedBody::new(body, room)))
            }
            _ => self.forward(parts, body).await,
        };
        if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
            Err(unread)
        } else {
            Ok(answer)
        }
    }
}

/// Returns the kind of the message, and the part that the SDK reads. The arguments of a call are passed
/// separately, as text.
fn envelope(parts: &mut Parts, body: &[u8]) -> Result<(MessageKind, Option<Value>, Bytes), RpcError> {
    let message = jsonrpc::read(body)?;
    let charge = parts.extensions.get::<Arc<BudgetCharge>>().cloned();
    if charge.as_ref().is_some_and(|charge| !charge.grow(message.envelope_cost())) {
        return Err(RpcError::busy(message.id.unwrap_or_default()));
    }
    if let Some(arguments) = message.arguments {
        parts.extensions.insert(Arc::new(CallArguments::new(arguments.to_owned(), charge)));
    }
    Ok((message.kind, message.id, message.envelope.into_owned().into()))
}
