//! The server over streamable HTTP: a route for the listener, which has authorized the request and read the
//! body.
//!
//! Clients of the versions up to 2025-11-25 have sessions; those of 2026-07-28 have none, and there the end
//! of the connection cancels the call. With sessions, the protocol says that it does not: the call continues
//! to its limits, its id is reserved until its handler has stopped, and its answer waits for the client to
//! reconnect. So the work for a session runs in a task that does not depend on a connection.

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
use http_body_util::BodyExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::initialize;
use super::jsonrpc::{self, MessageKind, RpcError};
use super::replay_buffer::{self, EventId, ReplayBuffer};
use super::server::{McpServer, McpSettings, McpShared};
use super::sessions::{McpSession, McpSessions, RequestIdLease};
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

type McpHttpService = StreamableHttpService<McpServer, LocalSessionManager>;

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
        let mut manager = LocalSessionManager::default();
        // The SDK does not know of running calls; [`McpSessions`] does, and ends the sessions.
        manager.session_config.keep_alive = None;
        let manager = Arc::new(manager);
        let sessions = McpSessions::new(Arc::clone(&manager), limits);
        let of_all = Arc::clone(&shared);
        let make = move || Ok(McpServer::new(Arc::clone(&of_all)));
        let service = StreamableHttpService::new(make, manager, config);
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
        (Router::new().route(path, any(answered)).with_state(front), DrainHandle(calls))
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

async fn answered(State(front): State<HttpFrontend>, request: Request) -> Response {
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
            Some(session) => Some((name.to_owned(), session)),
        },
    };
    let answer = match (&parts.method, session) {
        (&Method::POST, session) => front.handle_post(parts, body, session.map(|(_, session)| session)).await,
        (&Method::GET, Some((_, session))) => front.handle_get(parts, body, &session).await,
        (&Method::DELETE, Some((name, _))) => {
            let answer = front.handled(parts, body).await;
            match answer.status().is_success() {
                true => {
                    front.sessions.remove(&name);
                    // The SDK answers 202, which the Python SDK takes for a session that continues.
                    Ok(StatusCode::NO_CONTENT.into_response())
                }
                false => Ok(answer),
            }
        }
        _ => Ok(front.handled(parts, body).await),
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

fn is_stream(headers: &HeaderMap) -> bool {
    is_of(headers, header::CONTENT_TYPE, "text/event-stream")
}

impl HttpFrontend {
    /// Returns the answer of the SDK.
    async fn handled(&self, parts: Parts, body: Bytes) -> Response {
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
                self.handle_initialize(parts, initialize::trim_request(body), id).await?
            }
            (MessageKind::Request { method }, Some(id), Some(session)) => {
                let taken = session.take(&id, method == "tools/call")?;
                let body = if method == "initialize" { initialize::trim_request(body) } else { body };
                self.handle_request(parts, body, id, session, taken).await
            }
            (MessageKind::Request { .. }, Some(id), None) => {
                let Ok(room) = Arc::clone(&self.alone).try_acquire_owned() else {
                    return Err(RpcError::busy(id));
                };
                self.handled(parts, body).await.map(|body| Body::new(GuardedBody::new(body, room)))
            }
            (MessageKind::Notification, _, Some(session)) => {
                note(&body, &session);
                self.handled(parts, body).await
            }
            _ => self.handled(parts, body).await,
        };
        if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
            Err(unread)
        } else {
            Ok(answer)
        }
    }

    /// Handles an initialize request, which creates a session.
    async fn handle_initialize(&self, parts: Parts, body: Bytes, id: Value) -> Result<Response, RpcError> {
        if !self.sessions.make_room() {
            return Err(RpcError::busy(id));
        }
        let front = self.clone();
        let answer = tokio::spawn(async move {
            let answer = front.handled(parts, body).await;
            let name = answer.headers().get(SESSION).and_then(|name| name.to_str().ok());
            if let Some(name) = name {
                front.sessions.add(name);
            }
            answer
        });
        Ok(answer.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()))
    }

    /// Handles a request of a session: its output is stored, whether or not a client reads it.
    async fn handle_request(
        &self,
        mut parts: Parts,
        body: Bytes,
        id: Value,
        session: Arc<McpSession>,
        taken: Arc<RequestIdLease>,
    ) -> Response {
        // The SDK passes it on to the handler, and drops it when the handler has stopped.
        parts.extensions.insert(Arc::clone(&taken));
        let (sender, answer) = oneshot::channel();
        let front = self.clone();
        tokio::spawn(async move {
            let answer = front.handled(parts, body).await;
            if !is_stream(answer.headers()) {
                drop(taken);
                drop(sender.send(answer));
                return;
            }
            let (head, said) = answer.into_parts();
            let reply = Arc::<ReplayBuffer>::default();
            drop(sender.send(Response::from_parts(head, reply.read(None))));
            follow(said, &id, &session, &reply, taken).await;
            front.sessions.bound(&session);
        });
        answer.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }

    /// Handles a client that reconnects for missed events, or one that waits for any event.
    async fn handle_get(
        &self,
        parts: Parts,
        body: Bytes,
        session: &Arc<McpSession>,
    ) -> Result<Response, RpcError> {
        let place = parts.headers.get("last-event-id").and_then(|place| EventId::read(place.to_str().ok()?));
        let Some(place) = place.filter(|_| is_of(&parts.headers, header::ACCEPT, "text/event-stream")) else {
            let answer = self.handled(parts, body).await;
            let open = session.open();
            return Ok(answer.map(|body| Body::new(GuardedBody::new(body, open))));
        };
        // A dropped answer gets an empty response: an error would be retried again and again.
        let body =
            session.reply(place.stream).map_or_else(Body::empty, |reply| reply.read(Some(place.index)));
        let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        Ok((head, body).into_response())
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

/// Stores the events until the last one. A request whose session ended gets its answer, too.
async fn follow(
    mut said: Body,
    id: &Value,
    session: &McpSession,
    reply: &Arc<ReplayBuffer>,
    taken: Arc<RequestIdLease>,
) {
    let mut taken = Some(taken);
    let mut stream = None;
    while let Some(Ok(frame)) = said.frame().await {
        let Ok(event) = frame.into_data() else { continue };
        // The reader's connection has its own keep-alive.
        if event.starts_with(b":") {
            continue;
        }
        if let (None, Some(place)) = (stream, EventId::from_event(&event)) {
            stream = Some(place.stream);
            session.keep(place.stream, reply);
        }
        if replay_buffer::is_answer(&event) {
            // A client that has the answer may reuse the id.
            taken = None;
        }
        reply.push(event);
    }
    if taken.take().is_some() && !session.is_cancelled(id) {
        reply.push_lost(id, stream.unwrap_or_default());
    }
    reply.end();
}

/// Handles a client's notification to its session.
fn note(body: &[u8], session: &McpSession) {
    #[derive(Deserialize)]
    struct SessionNotification {
        method: String,
        params: Option<CancelledParams>,
    }
    #[derive(Deserialize)]
    struct CancelledParams {
        #[serde(rename = "requestId")]
        request_id: Option<Value>,
    }
    match serde_json::from_slice::<SessionNotification>(body) {
        Ok(SessionNotification { method, .. }) if method == "notifications/initialized" => {
            session.initialized()
        }
        Ok(SessionNotification { method, params: Some(CancelledParams { request_id: Some(id) }) })
            if method == "notifications/cancelled" =>
        {
            session.cancel(&id);
        }
        _ => {}
    }
}
