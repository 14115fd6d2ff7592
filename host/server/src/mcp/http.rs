//! The server over streamable HTTP: a route for the listener, which has looked at who asks and has read the body.
//!
//! Clients of the versions up to 2025-11-25 have sessions; those of 2026-07-28 have none, and there the end of the
//! connection cancels the call. Where sessions are, the protocol says that it does not: such a call goes on, to its
//! limits, its id is taken until nobody is at work for it, and its answer waits for the client to come back. So what
//! is done for a session is done by a task that no connection holds.

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

use super::greeting;
use super::jsonrpc::{self, Kind, Refused};
use super::reply::{self, Place, Reply};
use super::server::{McpServer, McpSettings, Shared};
use super::sessions::{Session, Sessions, Taken};
use crate::server::{Arguments, BODY_BYTES, Charge, Held};

/// Requests without a session that are served at once.
const ALONE: usize = 1_024;

/// How long the last answers have to be written when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What is written when nothing runs any more is on its way by then.
const WRITTEN: Duration = Duration::from_millis(50);

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// The header that names the version; those from this one on have no sessions.
const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

type Service = StreamableHttpService<McpServer, LocalSessionManager>;

#[derive(Clone)]
struct Front {
    service: Service,
    sessions: Arc<Sessions>,
    alone: Arc<Semaphore>,
}

impl McpSettings {
    /// The server at `path` of a router, for [`Listening::serve`](crate::server::Listening::serve), and what to wait
    /// for once that is over: in a session calls outlive their connections.
    pub fn router(self, path: &str) -> (Router, LastCalls) {
        let (shutdown, grace) = (self.shutdown.clone(), self.grace);
        let limits = self.sessions;
        let shared = Arc::new(Shared::new(self));
        let ending = CancellationToken::new();
        // Host, origin and the length of the body are the listener's to look at, and it did.
        let mut config = StreamableHttpServerConfig::default().disable_allowed_hosts();
        config.json_response = true;
        config.max_request_body_bytes = BODY_BYTES;
        config.cancellation_token = ending.clone();
        let mut manager = LocalSessionManager::default();
        // It knows of no call that runs; who does ends the sessions.
        manager.session_config.keep_alive = None;
        let manager = Arc::new(manager);
        let sessions = Sessions::new(Arc::clone(&manager), limits);
        let of_all = Arc::clone(&shared);
        let make = move || Ok(McpServer::new(Arc::clone(&of_all)));
        let service = StreamableHttpService::new(make, manager, config);
        // Streams that only wait would hold the listener; they end when no call has anything left to say.
        let calls = tokio::spawn(async move {
            shutdown.begun().await;
            tokio::select! {
                () = shared.running.none() => {}
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(grace) => shutdown.cancel(),
            }
            drop(tokio::time::timeout(LAST_WORDS, shared.running.none()).await);
            tokio::time::sleep(WRITTEN).await;
            ending.cancel();
        });
        let front = Front { service, sessions, alone: Arc::new(Semaphore::new(ALONE)) };
        (Router::new().route(path, any(answered)).with_state(front), LastCalls(calls))
    }
}

/// The calls that run when the server ends.
#[must_use = "calls whose connections are gone are cut short otherwise"]
pub struct LastCalls(JoinHandle<()>);

impl LastCalls {
    /// Ready when the server was told to end and none runs any more: each came to its end within the time of grace, or
    /// was cancelled and that is on record.
    pub async fn ended(self) {
        drop(self.0.await);
    }
}

async fn answered(State(front): State<Front>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if let Some(name) = [SESSION, VERSION.0].into_iter().find(|name| !agrees(&parts.headers, name)) {
        // Which of two is meant, a proxy may have judged by the other.
        let refused = Refused::request(match name {
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
        (&Method::POST, session) => front.posted(parts, body, session.map(|(_, session)| session)).await,
        (&Method::GET, Some((_, session))) => front.listened(parts, body, &session).await,
        (&Method::DELETE, Some((name, _))) => {
            let answer = front.handled(parts, body).await;
            match answer.status().is_success() {
                true => {
                    front.sessions.remove(&name);
                    // The SDK says 202, which the one for Python takes for a session that goes on.
                    Ok(StatusCode::NO_CONTENT.into_response())
                }
                false => Ok(answer),
            }
        }
        _ => Ok(front.handled(parts, body).await),
    };
    answer.unwrap_or_else(|refused| refusal(&refused))
}

fn refusal(refused: &Refused) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    if refused.is_busy() {
        let later = [(header::RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, json, later, refused.answer()).into_response();
    }
    (StatusCode::BAD_REQUEST, json, refused.answer()).into_response()
}

/// The session that the request is of.
fn session(headers: &HeaderMap) -> Option<&str> {
    let (name, without) = VERSION;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text(SESSION).filter(|_| text(name) != Some(without))
}

/// Returns whether the header has one value, however often it is there.
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

impl Front {
    /// What the SDK answers.
    async fn handled(&self, parts: Parts, body: Bytes) -> Response {
        self.service.handle(Request::from_parts(parts, Body::from(body))).await.map(Body::new)
    }

    async fn posted(
        &self,
        mut parts: Parts,
        body: Bytes,
        session: Option<Arc<Session>>,
    ) -> Result<Response, Refused> {
        let (kind, id, body) = envelope(&mut parts, &body)?;
        // What the SDK cannot read it takes for a fault of the header.
        let is_json = is_of(&parts.headers, header::CONTENT_TYPE, "application/json");
        let unread = match (&kind, &id) {
            (Kind::Request { .. }, Some(id)) => Refused::params(id.clone()),
            _ => Refused::request("The message is none of this protocol."),
        };
        let answer = match (kind, id, session) {
            (Kind::Request { method }, Some(id), None) if method == "initialize" => {
                self.greeted(parts, greeting::in_short(body), id).await?
            }
            (Kind::Request { method }, Some(id), Some(session)) => {
                let taken = session.take(&id, method == "tools/call")?;
                let body = if method == "initialize" { greeting::in_short(body) } else { body };
                self.asked(parts, body, id, session, taken).await
            }
            (Kind::Request { .. }, Some(id), None) => {
                let Ok(room) = Arc::clone(&self.alone).try_acquire_owned() else {
                    return Err(Refused::busy(id));
                };
                self.handled(parts, body).await.map(|body| Body::new(Held::new(body, room)))
            }
            (Kind::Notification, _, Some(session)) => {
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

    /// A greeting, from which a session comes.
    async fn greeted(&self, parts: Parts, body: Bytes, id: Value) -> Result<Response, Refused> {
        if !self.sessions.make_room() {
            return Err(Refused::busy(id));
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

    /// A request of a session: what comes of it is kept, whoever is there to read it.
    async fn asked(
        &self,
        mut parts: Parts,
        body: Bytes,
        id: Value,
        session: Arc<Session>,
        taken: Arc<Taken>,
    ) -> Response {
        // The SDK hands it on to who is at work, and drops it when nobody is.
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
            let reply = Arc::<Reply>::default();
            drop(sender.send(Response::from_parts(head, reply.read(None))));
            follow(said, &id, &session, &reply, taken).await;
            front.sessions.bound(&session);
        });
        answer.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }

    /// A client that came back for what it did not hear, or one that waits for whatever there is.
    async fn listened(&self, parts: Parts, body: Bytes, session: &Arc<Session>) -> Result<Response, Refused> {
        let place = parts.headers.get("last-event-id").and_then(|place| Place::read(place.to_str().ok()?));
        let Some(place) = place.filter(|_| is_of(&parts.headers, header::ACCEPT, "text/event-stream")) else {
            let answer = self.handled(parts, body).await;
            let open = session.open();
            return Ok(answer.map(|body| Body::new(Held::new(body, open))));
        };
        // What is not kept any more is answered by nothing: an error would be asked for again and again.
        let body =
            session.reply(place.stream).map_or_else(Body::empty, |reply| reply.read(Some(place.index)));
        let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        Ok((head, body).into_response())
    }
}

/// Returns the kind of the message, and the part that the SDK reads. The arguments of a call go beside it, as text.
fn envelope(parts: &mut Parts, body: &[u8]) -> Result<(Kind, Option<Value>, Bytes), Refused> {
    let message = jsonrpc::read(body)?;
    let charge = parts.extensions.get::<Arc<Charge>>().cloned();
    if charge.as_ref().is_some_and(|charge| !charge.grow(message.envelope_cost())) {
        return Err(Refused::busy(message.id.unwrap_or_default()));
    }
    if let Some(arguments) = message.arguments {
        parts.extensions.insert(Arc::new(Arguments::new(arguments.to_owned(), charge)));
    }
    Ok((message.kind, message.id, message.envelope.into_owned().into()))
}

/// Takes what is said until nothing more is. A request whose session ended gets its answer, too.
async fn follow(mut said: Body, id: &Value, session: &Session, reply: &Arc<Reply>, taken: Arc<Taken>) {
    let mut taken = Some(taken);
    let mut stream = None;
    while let Some(Ok(frame)) = said.frame().await {
        let Ok(event) = frame.into_data() else { continue };
        // Who reads is told by itself that the connection lives.
        if event.starts_with(b":") {
            continue;
        }
        if let (None, Some(place)) = (stream, Place::of(&event)) {
            stream = Some(place.stream);
            session.keep(place.stream, reply);
        }
        if reply::is_answer(&event) {
            // Who has the answer may use the id again.
            taken = None;
        }
        reply.tell(event);
    }
    if taken.take().is_some() && !session.is_cancelled(id) {
        reply.tell_lost(id, stream.unwrap_or_default());
    }
    reply.end();
}

/// What a client says to its session without wanting an answer.
fn note(body: &[u8], session: &Session) {
    #[derive(Deserialize)]
    struct Note {
        method: String,
        params: Option<Params>,
    }
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "requestId")]
        request_id: Option<Value>,
    }
    match serde_json::from_slice::<Note>(body) {
        Ok(Note { method, .. }) if method == "notifications/initialized" => session.initialized(),
        Ok(Note { method, params: Some(Params { request_id: Some(id) }) })
            if method == "notifications/cancelled" =>
        {
            session.cancel(&id);
        }
        _ => {}
    }
}
