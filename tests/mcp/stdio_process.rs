//! A process used over its standard streams by several clients, with the routing of its output lines.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The process.
pub(crate) struct Piped {
    input: Mutex<Option<UnboundedSender<Vec<u8>>>>,
    streams: Mutex<Streams>,
    process: tokio::sync::Mutex<Option<(Child, JoinHandle<String>)>>,
}

#[derive(Default)]
struct Streams {
    /// By id as JSON. The id of an abandoned request stays: it must not be used again.
    requests: HashMap<String, Option<Stream>>,
    /// The receiver of messages without a request.
    aside: Option<UnboundedSender<String>>,
}

/// The receiver of a request's lines.
struct Stream {
    token: Value,
    /// True if it is a subscription to changes, which receives nothing else.
    listens: bool,
    lines: UnboundedSender<String>,
}

/// A request in flight; dropping it abandons it.
pub(crate) struct Ticket {
    piped: Arc<Piped>,
    id: Value,
    cancels: bool,
}

impl Piped {
    pub(crate) fn start(mut command: std::process::Command) -> Arc<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let (sender, mut said) = unbounded_channel::<Vec<u8>>();
        let mut input = child.stdin.take().unwrap();
        tokio::spawn(async move {
            while let Some(line) = said.recv().await {
                if input.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = tokio::spawn(async move {
            let mut text = String::new();
            drop(stderr.read_to_string(&mut text).await);
            text
        });
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let piped = Arc::new(Self {
            input: Mutex::new(Some(sender)),
            streams: Mutex::default(),
            process: tokio::sync::Mutex::new(Some((child, stderr))),
        });
        let reading = Arc::clone(&piped);
        tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                reading.streams.lock().unwrap().take(line);
            }
            *reading.streams.lock().unwrap() = Streams::default();
        });
        piped
    }

    /// True if a request of this id is in flight here, or was abandoned.
    pub(crate) fn knows(&self, id: &Value) -> bool {
        self.streams.lock().unwrap().requests.contains_key(&id.to_string())
    }

    /// Writes a line.
    pub(crate) fn say(&self, message: &[u8]) {
        // A line break in JSON is white space.
        let line = message.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).chain([b'\n']);
        if let Some(input) = &*self.input.lock().unwrap() {
            drop(input.send(line.collect()));
        }
    }

    /// Asks: the ticket, and the lines that belong to it, of which the last is the answer.
    pub(crate) fn ask(
        self: &Arc<Self>,
        id: &Value,
        message: &Value,
        body: &[u8],
        cancels: bool,
    ) -> (Ticket, UnboundedReceiver<String>) {
        let (lines, receiver) = unbounded_channel();
        let token = message["params"]["_meta"]["progressToken"].clone();
        let listens = message["method"] == "subscriptions/listen";
        let stream = Stream { token, listens, lines };
        self.streams.lock().unwrap().requests.insert(id.to_string(), Some(stream));
        self.say(body);
        (Ticket { piped: Arc::clone(self), id: id.clone(), cancels }, receiver)
    }

    /// Messages without a request, from now on.
    pub(crate) fn aside(&self) -> UnboundedReceiver<String> {
        let (lines, receiver) = unbounded_channel();
        self.streams.lock().unwrap().aside = Some(lines);
        receiver
    }

    /// Closes its input and waits for its end; returns the standard error.
    pub(crate) async fn end(&self) -> String {
        *self.input.lock().unwrap() = None;
        let Some((mut child, stderr)) = self.process.lock().await.take() else { return String::new() };
        let status = child.wait().await.unwrap();
        let stderr = stderr.await.unwrap();
        assert!(status.success(), "{status}: {stderr}");
        stderr
    }
}

impl Streams {
    /// Passes the line on to its receiver.
    fn take(&mut self, line: String) {
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"));
        let Some(method) = message["method"].as_str() else {
            // The answer. An abandoned request has no receiver, and should get no answer.
            if let Some(Some(stream)) = self.requests.remove(&message["id"].to_string()) {
                drop(stream.lines.send(line));
            }
            return;
        };
        let params = &message["params"];
        let id = match method {
            "notifications/cancelled" => &params["requestId"],
            _ => &params["_meta"]["io.modelcontextprotocol/subscriptionId"],
        };
        let key = if id.is_null() { self.by_token(&params["progressToken"]) } else { Some(id.to_string()) };
        let stream = key.and_then(|key| self.requests.get(&key)).and_then(Option::as_ref);
        // Otherwise there is no receiver.
        if let Some(lines) = stream.map(|stream| &stream.lines).or(self.aside.as_ref()) {
            drop(lines.send(line));
        }
    }

    /// The request with this progress token; of a notification without one, the only one that there is.
    fn by_token(&self, token: &Value) -> Option<String> {
        let under_way = || self.requests.iter().filter_map(|(id, stream)| Some((id, stream.as_ref()?)));
        if !token.is_null() {
            return under_way().find(|(_, stream)| stream.token == *token).map(|(id, _)| id.clone());
        }
        let mut calls = under_way().filter(|(_, stream)| !stream.listens);
        let only = calls.next();
        only.filter(|_| calls.next().is_none()).map(|(id, _)| id.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut streams = self.piped.streams.lock().unwrap();
        let Some(stream) = streams.requests.get_mut(&self.id.to_string()) else { return };
        *stream = None;
        drop(streams);
        if self.cancels {
            let gone = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": self.id}});
            self.piped.say(gone.to_string().as_bytes());
        }
    }
}
