//! The server over HTTP, by a client that writes bytes: both lifecycles, who may ask, and what ends a call.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use cofferdam_test_support::Home;
use serde_json::{Value, json};

use super::client::{cli, home, record};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The server as a process that listens.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    stderr: Option<std::thread::JoinHandle<String>>,
}

/// An answer, its body put together.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    /// The message in it, which may be an event of a stream.
    #[track_caller]
    fn message(&self) -> Value {
        let json =
            |text: &str| serde_json::from_str::<Value>(text).ok().filter(|value| value["id"] != Value::Null);
        let events = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        json(&self.body)
            .or_else(|| events.filter_map(json).next_back())
            .unwrap_or_else(|| panic!("{} {}", self.status, self.body))
    }

    fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }
}

impl Server {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let args: Vec<_> = ["mcp", "--http", "127.0.0.1:0"].iter().chain(args).collect();
        let mut command = cli(home).command(&args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
            if let Some((_, url)) = line.split_once("http://") {
                break url.trim().trim_end_matches("/mcp").parse().unwrap();
            }
        };
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            drop(stderr.read_to_string(&mut text));
            text
        });
        Self { child, address, stderr: Some(stderr) }
    }

    fn open(&self, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut head = format!("POST /mcp HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        let usual = [
            ("host", "localhost"),
            ("connection", "close"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        for (name, value) in
            usual.iter().filter(|(name, _)| !headers.iter().any(|(own, _)| own == name)).chain(headers)
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // Who is refused early may have the rest of its body refused, too.
        drop(stream.write_all(format!("{head}\r\n{body}").as_bytes()));
        stream
    }

    fn post(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut bytes = Vec::new();
        drop(self.open(headers, body).read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            unchunked(body)
        } else {
            body.to_owned()
        };
        Answer { status, head: head.to_owned(), body }
    }

    /// A request of the version without sessions.
    fn ask(&self, method: &str, params: &Value) -> Value {
        let (headers, body) = request(method, params);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(&headers, &body).message()
    }

    #[track_caller]
    fn lives(&self) {
        let answer = self.ask("tools/list", &json!({}));
        assert!(answer["result"]["tools"].is_array(), "{answer}");
    }

    /// Tells it to end, and waits; what it said.
    pub(crate) fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        assert!(status.success(), "{status}: {stderr}");
        stderr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn request(method: &str, params: &Value) -> (Vec<(&'static str, String)>, String) {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut headers =
        vec![("mcp-protocol-version", "2026-07-28".to_owned()), ("mcp-method", method.to_owned())];
    if let Some(name) = params["name"].as_str() {
        headers.push(("mcp-name", name.to_owned()));
    }
    (headers, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string())
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length.trim(), 16) else { break };
        let Some(chunk) = after.get(..length) else { break };
        whole.push_str(chunk);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    whole
}

#[test]
fn both_lifecycles_list_and_call() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let greet = json!({"name": "hello__greet", "arguments": {"name": "Ada"}});
    let modern = server.ask("tools/call", &greet);
    assert_eq!(modern["result"]["structuredContent"]["value"]["text"], "Good day, Ada.", "{modern}");
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).to_string();
    let greeting = server.post(&[], &hello);
    assert_eq!(greeting.message()["result"]["serverInfo"]["name"], "cofferdam");
    let session = greeting.header("mcp-session-id").unwrap();
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": greet}).to_string();
    let legacy = server.post(&headers, &call).message();
    assert_eq!(legacy["result"]["structuredContent"], modern["result"]["structuredContent"]);
    assert_eq!(server.post(&[("mcp-session-id", "no-such")], &call).status, 404);
    server.end();
}

#[test]
fn attacks_152_153_158_159_a_bad_request_is_refused_and_the_next_is_served() {
    let home = home(&["hello"]);
    std::fs::write(home.path().join("token"), TOKEN).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.path().join("token"), private).unwrap();
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let (headers, good) = request("tools/list", &json!({}));
    let with = |more: &[(&'static str, &str)], body: &str| {
        let mut all: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend(more);
        server.post(&all, body).status
    };
    for (more, status) in [
        (&[("host", "evil.com")][..], 403),
        (&[("origin", "https://evil.com")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", "http://localhost:6274")], 200),
        (&[("content-type", "text/plain")], 415),
        (&[("accept", "text/html")], 406),
    ] {
        assert_eq!(with(more, &good), status, "{more:?}");
        server.lives();
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "hello",
        &good.replace("\"id\":1", "\"id\":null"),
        &good.replace("\"id\":1", "\"id\":1.5"),
        &good.replace("2.0", "1.0"),
        &format!("[{good}]"),
        &good.replace("\"tools/list\"", "5"),
    ] {
        assert_eq!(with(&[], body), 400, "{body}");
        server.lives();
    }
    assert_eq!(with(&[], &" ".repeat(5 << 20)), 413);
    server.lives();
    server.end();
    let server = Server::start(&home, &["--operations", "hello.greet", "--token-file", "token"]);
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(server.post(&all, &good).status, 401);
    let bearer = format!("Bearer {TOKEN}");
    all.push(("authorization", &bearer));
    assert_eq!(server.post(&all, &good).status, 200);
    let stderr = server.end();
    assert!(!stderr.contains(TOKEN));
    for bad in [&["--http", "0.0.0.0:0"][..], &["--http", "0.0.0.0:0", "--token-file", "token"]] {
        let args: Vec<_> = ["mcp"].iter().chain(bad).copied().collect();
        cli(&home).run(&args).fails(64).said("cannot listen at 0.0.0.0:0");
    }
}

#[test]
fn attack_161_a_request_that_is_gone_has_its_call_cancelled() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep"]);
    let (headers, body) =
        request("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 25_000}}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stream = server.open(&headers, &body);
    std::thread::sleep(Duration::from_millis(1_500));
    drop(stream);
    let from = std::time::Instant::now();
    while record(&home).first().is_none_or(|call| call["status"] != "cancelled") {
        assert!(from.elapsed() < Duration::from_secs(20), "{:?}", record(&home));
        std::thread::sleep(Duration::from_millis(100));
    }
    server.lives();
    server.end();
}

#[test]
fn the_end_has_running_calls_cancelled_and_says_so_to_their_clients() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep", "--grace", "500ms"]);
    let (headers, body) =
        request("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 25_000}}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut stream = server.open(&headers, &body);
    std::thread::sleep(Duration::from_millis(1_500));
    server.end();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"cancelled\"") && answer.contains("\"isError\":true"), "{answer}");
    assert_eq!(record(&home)[0]["status"], "cancelled");
}
