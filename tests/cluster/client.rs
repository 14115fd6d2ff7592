//! A client: it sends an operation under its key until it has an outcome, as a real one would, and records every
//! exchange.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_history::{Answer, Exchange};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::plan::{Operation, Way, Work};

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(150);

/// No answer takes longer: the wall time of a call, and the waits for a log that cannot be written.
const ANSWER: Duration = Duration::from_secs(90);

/// The codes of errors after which a client sends the same again.
const TRANSIENT: [&str; 6] =
    ["busy", "audit_unavailable", "closing", "cancelled", "in_progress", "queue_unavailable"];

/// What all clients share.
pub(super) struct Clients {
    pub(super) begun: Instant,
    /// The present addresses of the hosts.
    pub(super) hosts: Vec<Arc<Mutex<SocketAddr>>>,
    /// `http://localhost:<port>` of the upstream.
    pub(super) upstream: String,
    pub(super) connector: &'static str,
    pub(super) action: &'static str,
    pub(super) exchanges: Mutex<Vec<Exchange>>,
    /// Operations that are over: faults follow their number.
    pub(super) done: AtomicUsize,
}

/// What a client does next.
enum Next {
    /// It has an outcome, or may not repeat.
    Ends,
    /// It waits, and sends the same again.
    Repeats,
}

impl Clients {
    /// Does an operation to its end.
    pub(super) async fn does(&self, operation: &Operation) {
        match (operation.way, operation.is_doubled) {
            (Way::Both, _) => {
                tokio::join!(self.asks(operation, Way::Direct, 0), self.asks(operation, Way::Job, 1));
            }
            (way, true) => {
                tokio::join!(self.asks(operation, way, 0), self.asks(operation, way, 1));
            }
            (way, false) => self.asks(operation, way, 0).await,
        }
        if operation.is_repeated {
            self.asks(operation, Way::Direct, 2).await;
        }
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Asks until there is an outcome. Clients of one operation differ by their number.
    async fn asks(&self, operation: &Operation, way: Way, number: u64) {
        let mut rng = Rng::with_seed(operation.seed.wrapping_add(number));
        let mut connections = Connections::default();
        let (begun, mut host) = (Instant::now(), rng.usize(0..self.hosts.len()));
        let mut patience = operation.patience_ms.filter(|_| number == 0).map(Duration::from_millis);
        let mut unknown = 0;
        while begun.elapsed() < PATIENCE {
            let answer = match way {
                Way::Job => self.submits(operation, host, &mut connections, &mut rng).await,
                Way::Direct | Way::Both => {
                    let (path, body) = self.request(operation);
                    let by = if operation.work == Work::Action { "action" } else { "call" };
                    let within = patience.take().unwrap_or(ANSWER);
                    let asked = Asked { operation, by, host, within };
                    self.exchange(&asked, &mut connections, "POST", &path, &body).await
                }
            };
            match next(&answer, &mut unknown) {
                Next::Ends => return,
                Next::Repeats => {
                    tokio::time::sleep(Duration::from_millis(rng.u64(20..400))).await;
                    host = (host + rng.usize(0..2)) % self.hosts.len();
                }
            }
        }
    }

    /// Submits a job and waits for its outcome; a client that cannot learn about it submits it again.
    async fn submits(
        &self,
        operation: &Operation,
        mut host: usize,
        connections: &mut Connections,
        rng: &mut Rng,
    ) -> Answer {
        let (_, body) = self.request(operation);
        let body = match operation.work {
            Work::Call { .. } => json!({"call": body}),
            Work::Action => json!({"action": {"name": self.action, "args": body["args"]}}),
        };
        let asked = Asked { operation, by: "submit", host, within: ANSWER };
        let answer = self.exchange(&asked, connections, "POST", "/v1/jobs", &body).await;
        // A job that was submitted before is known by its id.
        let (Answer::Accepted { job } | Answer::Pending { state: job }) = &answer else { return answer };
        let begun = Instant::now();
        let mut pause = 5;
        while begun.elapsed() < PATIENCE / 2 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            pause = (pause * 2).min(400);
            let asked = Asked { operation, by: "job", host, within: ANSWER };
            let answer =
                self.exchange(&asked, connections, "GET", &format!("/v1/jobs/{job}"), &Value::Null).await;
            match &answer {
                Answer::Pending { .. } => {}
                Answer::Error { code, .. } if TRANSIENT.contains(&code.as_str()) => {
                    host = rng.usize(0..self.hosts.len());
                }
                Answer::Lost { .. } => host = rng.usize(0..self.hosts.len()),
                _ => return answer,
            }
        }
        answer
    }

    /// The path and the body of an operation.
    fn request(&self, operation: &Operation) -> (String, Value) {
        let key = &operation.key;
        match operation.work {
            Work::Call { repeatable } => {
                let op = if repeatable { "order" } else { "order_once" };
                let url = format!("{}/effect/{key}", self.upstream);
                let args = json!({"url": url, "body": key, "labels": ["effect"]});
                ("/v1/calls".to_owned(), json!({"connector": self.connector, "op": op, "args": args}))
            }
            Work::Action => (format!("/v1/actions/{}/run", self.action), json!({"args": {"name": key}})),
        }
    }

    /// Sends one request and records the answer.
    async fn exchange(
        &self,
        asked: &Asked<'_>,
        connections: &mut Connections,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer {
        let Asked { operation, by, host, within } = *asked;
        let address = *self.hosts[host].lock().unwrap_or_else(PoisonError::into_inner);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             idempotency-key: {}\r\ncontent-length: {}\r\n\r\n{body}",
            operation.key,
            body.len()
        );
        let sent = self.begun.elapsed();
        let received = tokio::time::timeout(within, connections.ask(address, request.as_bytes())).await;
        let answer = match received {
            Ok(Ok(received)) => received.answer(),
            Ok(Err(error)) => Answer::Lost { reason: error.to_string() },
            Err(_) => Answer::Lost { reason: format!("the client left after {within:?}") },
        };
        if matches!(answer, Answer::Lost { .. }) {
            connections.0.remove(&address);
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
        let exchange = Exchange {
            key: operation.key.clone(),
            by: by.to_owned(),
            host,
            sent: micros(sent),
            answered: micros(self.begun.elapsed()),
            answer: answer.clone(),
        };
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
        answer
    }
}

/// A request of a client: its operation, kind and host, and the time that the client waits.
struct Asked<'a> {
    operation: &'a Operation,
    by: &'static str,
    host: usize,
    within: Duration,
}

/// The next step after an answer. An unknown outcome is asked for twice more: it must stay one.
fn next(answer: &Answer, unknown: &mut u32) -> Next {
    match answer {
        Answer::Value { .. } | Answer::Failure { retriable: false, .. } => Next::Ends,
        Answer::Error { code, .. } if code == "outcome_unknown" => {
            *unknown += 1;
            if *unknown < 3 { Next::Repeats } else { Next::Ends }
        }
        Answer::Error { code, .. } if !TRANSIENT.contains(&code.as_str()) => Next::Ends,
        Answer::Failure { .. }
        | Answer::Error { .. }
        | Answer::Lost { .. }
        | Answer::Accepted { .. }
        | Answer::Pending { .. } => Next::Repeats,
    }
}

/// The kept connections of a client, one for each host.
#[derive(Default)]
struct Connections(HashMap<SocketAddr, TcpStream>);

/// A response as it arrived.
struct Received {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Connections {
    async fn ask(&mut self, address: SocketAddr, request: &[u8]) -> std::io::Result<Received> {
        let mut stream = match self.0.remove(&address) {
            Some(stream) => stream,
            None => TcpStream::connect(address).await?,
        };
        stream.set_nodelay(true)?;
        stream.write_all(request).await?;
        let received = receive(&mut stream).await?;
        if received.headers.get("connection").is_none_or(|value| value != "close") {
            self.0.insert(address, stream);
        }
        Ok(received)
    }
}

async fn receive(stream: &mut TcpStream) -> std::io::Result<Received> {
    let mut buffer = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut parsed = httparse::Response::new(&mut headers);
        if let httparse::Status::Complete(head) = parsed.parse(&buffer).map_err(std::io::Error::other)? {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let headers: HashMap<_, _> = parsed
                .headers
                .iter()
                .map(|header| (header.name.to_ascii_lowercase(), text(header.value)))
                .collect();
            let length: usize = headers["content-length"].parse().map_err(std::io::Error::other)?;
            if buffer.len() >= head + length {
                let status = parsed.code.unwrap_or(0);
                return Ok(Received { status, headers, body: text(&buffer[head..head + length]) });
            }
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// A body with a value, whose text stays as it was received.
#[derive(Deserialize)]
struct ValueBody<'b> {
    #[serde(borrow)]
    value: &'b RawValue,
    audit_id: String,
    replayed: Option<String>,
}

/// A job.
#[derive(Deserialize)]
struct JobBody<'b> {
    id: String,
    state: String,
    audit_id: Option<String>,
    replayed: Option<String>,
    code: Option<String>,
    #[serde(borrow)]
    value: Option<&'b RawValue>,
    error: Option<Value>,
}

impl JobBody<'_> {
    /// The answer to a client that submitted it, or asks for it.
    fn answer(self, status: u16) -> Answer {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match (self.state.as_str(), self.value, self.error) {
            ("queued" | "running", ..) if status == 202 => Answer::Accepted { job: self.id },
            ("queued" | "running", ..) => Answer::Pending { state: self.id },
            ("done", Some(value), _) => Answer::Value {
                text: value.get().to_owned(),
                audit_id: self.audit_id.unwrap_or_default(),
                replayed: self.replayed,
            },
            ("failed", _, Some(error)) if error.get("class").is_some() => Answer::Failure {
                class: text(&error["class"]).unwrap_or_default(),
                code: text(&error["details"]["code"]).unwrap_or_default(),
                retriable: false,
                audit_id: text(&error["audit_id"]).or(self.audit_id).unwrap_or_default(),
                replayed: None,
            },
            (state, ..) => {
                let code = self.code.unwrap_or_else(|| format!("job {state}"));
                Answer::Error { code, call: self.audit_id, request_id: None }
            }
        }
    }
}

impl Received {
    /// The answer that the client understands.
    fn answer(&self) -> Answer {
        let header = |name: &str| self.headers.get(name).cloned();
        if self.status == 200
            && let Ok(body) = serde_json::from_str::<ValueBody<'_>>(&self.body)
        {
            let (text, audit_id, replayed) = (body.value.get().to_owned(), body.audit_id, body.replayed);
            return Answer::Value { text, audit_id, replayed };
        }
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if self.status == 200 && body.get("steps").is_some() {
            let (audit_id, replayed) = (header("audit-id").unwrap_or_default(), header("replayed"));
            return Answer::Value { text: self.body.clone(), audit_id, replayed };
        }
        if let Ok(job) = serde_json::from_str::<JobBody<'_>>(&self.body) {
            return job.answer(self.status);
        }
        let error = &body["error"];
        let code = text(&error["code"]).or_else(|| text(&error["details"]["code"]));
        let code = code.unwrap_or_else(|| format!("status {}: {}", self.status, self.body));
        match text(&error["class"]) {
            Some(class) => Answer::Failure {
                class,
                code,
                retriable: error["retriable"] == true,
                audit_id: text(&error["audit_id"]).unwrap_or_default(),
                replayed: header("replayed"),
            },
            None => Answer::Error {
                code,
                call: text(&error["details"]["call"]),
                request_id: text(&error["request_id"]),
            },
        }
    }
}
