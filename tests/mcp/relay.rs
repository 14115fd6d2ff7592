//! The conformance suite speaks HTTP: a relay to `cofferdam mcp` over standard streams, which forwards its
//! messages unchanged.
//!
//! A posted request becomes a line, and its responses become the answer: the line with its id as JSON, or the
//! last event of a stream if others came before it. A session is a separate process. Requests without one share
//! a process, as long as their ids differ. A disconnect cancels, and is forwarded as a notification.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_test_support::Home;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use super::client::cli;
use super::stdio_process::{Piped, Ticket};
use crate::shared_host::{begin, run};

const SESSION: &str = "mcp-session-id";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A relay that listens until the test ends.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
    state: Arc<State>,
}

struct State {
    start: Box<dyn Fn() -> Arc<Piped> + Send + Sync>,
    sessions: Mutex<HashMap<String, Arc<Piped>>>,
    /// The processes of requests without a session.
    shared: Mutex<Vec<Arc<Piped>>>,
    count: std::sync::atomic::AtomicUsize,
}

impl Relay {
    /// Listens, and starts `cofferdam mcp` with `args` whenever a process is wanted.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let args: Vec<String> = std::iter::once(&"mcp").chain(args).map(|arg| (*arg).to_owned()).collect();
        let cli = cli(home);
        let start = move || {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            Piped::start(cli.command(&args))
        };
        let state = Arc::new(State {
            start: Box::new(start),
            sessions: Mutex::default(),
            shared: Mutex::default(),
            count: Default::default(),
        });
        let socket = run(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = socket.local_addr().unwrap();
        let serving = begin(serve(socket, Arc::clone(&state)));
        Self { address, serving, state }
    }

    /// Closes the input of every process; returns their standard errors.
    pub(crate) fn end(self) -> String {
        self.serving.abort();
        let sessions = std::mem::take(&mut *self.state.sessions.lock().unwrap());
        let shared = std::mem::take(&mut *self.state.shared.lock().unwrap());
        let all: Vec<_> = sessions.into_values().chain(shared).collect();
        run(async {
            let mut stderr = String::new();
            for piped in all {
                stderr += &piped.end().await;
            }
            stderr
        })
    }
}

async fn serve(socket: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = socket.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(state.answered(request).await) }
            });
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

impl State {
    async fn answered(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let name = parts.headers.get(SESSION).and_then(|name| name.to_str().ok()).map(str::to_owned);
        let session = name.as_ref().map(|name| self.sessions.lock().unwrap().get(name).cloned());
        let session = match session {
            Some(None) => return empty(StatusCode::NOT_FOUND),
            Some(Some(piped)) => Some(piped),
            None => None,
        };
        match (parts.method, session) {
            (Method::POST, session) => {
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                self.posted(&body, session).await
            }
            (Method::GET, Some(piped)) => stream(piped.aside(), Vec::new(), None),
            (Method::DELETE, Some(piped)) => {
                self.sessions.lock().unwrap().remove(&name.unwrap());
                drop(piped.end().await);
                empty(StatusCode::OK)
            }
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn posted(&self, body: &[u8], session: Option<Arc<Piped>>) -> Response<Body> {
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let (id, method) = (message.get("id").cloned().unwrap_or_default(), message["method"].as_str());
        let alone = session.is_none();
        let mut named = None;
        let piped = match session {
            Some(piped) => piped,
            None if method == Some("initialize") && !stands_alone(&message) => {
                let (name, piped) = self.begun();
                named = Some(name);
                piped
            }
            None => self.without_session(&id, &message),
        };
        if message.is_object() && (id.is_null() || method.is_none()) {
            piped.say(body);
            return empty(StatusCode::ACCEPTED);
        }
        let (ticket, mut lines) = piped.ask(&id, &message, body, alone && named.is_none());
        let Some(first) = lines.recv().await else { return empty(StatusCode::BAD_GATEWAY) };
        let of_first: Value = serde_json::from_str(&first).unwrap_or_default();
        let mut answer = match of_first.get("method") {
            None => json_answer(first),
            Some(_) => stream(lines, vec![first], Some(ticket)),
        };
        if let Some(name) = named {
            answer.headers_mut().insert(SESSION, HeaderValue::from_str(&name).unwrap());
        }
        answer
    }

    /// A session, and its process.
    fn begun(&self) -> (String, Arc<Piped>) {
        let count = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (name, piped) = (format!("session-{count}"), (self.start)());
        self.sessions.lock().unwrap().insert(name.clone(), Arc::clone(&piped));
        (name, piped)
    }

    /// The process for a message without a session: the one with the request in question, or the first to which
    /// the id is new. Ids are used once per pair of streams; unrelated clients that share one do not know of
    /// each other.
    fn without_session(&self, id: &Value, message: &Value) -> Arc<Piped> {
        let mut shared = self.shared.lock().unwrap();
        let spoken_of = &message["params"]["requestId"];
        let found = match id {
            Value::Null if !spoken_of.is_null() => shared.iter().find(|piped| piped.knows(spoken_of)),
            Value::Null => shared.first(),
            id => shared.iter().find(|piped| !piped.knows(id)),
        };
        if let Some(piped) = found {
            return Arc::clone(piped);
        }
        shared.push((self.start)());
        Arc::clone(shared.last().unwrap())
    }
}

/// True if the message is of the lifecycle without sessions, in which each names its version.
fn stands_alone(message: &Value) -> bool {
    !message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null()
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::new(http_body_util::Empty::new()));
    *answer.status_mut() = status;
    answer
}

/// The answer alone.
fn json_answer(line: String) -> Response<Body> {
    let mut answer = Response::new(Body::new(http_body_util::Full::new(Bytes::from(line))));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// The lines as events: those that have arrived, and those that follow.
fn stream(lines: UnboundedReceiver<String>, came: Vec<String>, ticket: Option<Ticket>) -> Response<Body> {
    let mut answer = Response::new(Body::new(Events { came: came.into(), lines, _ticket: ticket }));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

struct Events {
    came: std::collections::VecDeque<String>,
    lines: UnboundedReceiver<String>,
    _ticket: Option<Ticket>,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let event = |line: String| Ok(Frame::data(Bytes::from(format!("data: {line}\n\n"))));
        match this.came.pop_front() {
            Some(line) => Poll::Ready(Some(event(line))),
            None => this.lines.poll_recv(context).map(|line| line.map(event)),
        }
    }
}

#[test]
fn the_relay_forwards_messages_unchanged() {
    let home = super::client::home(&["hello"]);
    let relay = Relay::start(&home, &["--operations", "hello.greet"]);
    let post = |headers: &[(&str, &str)], body: &Value| {
        super::http_client::post(relay.address, headers, &body.to_string())
    };
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let greeting = post(&[], &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}));
    assert_eq!(greeting.message()["result"]["serverInfo"]["name"], "cofferdam");
    let session = greeting.header(SESSION).unwrap();
    let of = [(SESSION, session.as_str())];
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&of, &note).status, 202);
    let call = json!({"name": "hello__greet", "arguments": {"name": "Ada"}, "_meta": {"progressToken": 5}});
    let answer = post(&of, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
    assert_eq!(answer.message()["result"]["isError"], false);
    assert_eq!(answer.body.matches("notifications/progress").count(), 3, "{}", answer.body);
    let (_, alone) = super::http_client::request("tools/list", &json!({}));
    let alone: Value = serde_json::from_str(&alone).unwrap();
    assert_eq!(post(&[], &alone).message()["result"]["tools"][0]["name"], "hello__greet");
    let nothing: Value = serde_json::from_str(&post(&[], &json!([])).body).unwrap();
    assert_eq!((&nothing["id"], &nothing["error"]["code"]), (&Value::Null, &json!(-32600)));
    assert_eq!(post(&[(SESSION, "none")], &alone).status, 404);
    assert_eq!(relay.end(), "");
}
