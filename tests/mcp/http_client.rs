//! A server that listens, and a client without an SDK: requests as bytes, and answers put together.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use cofferdam_test_support::Home;
use cofferdam_test_support::process::{peak_resident_bytes_of, resident_bytes_of};
use serde_json::{Value, json};

use super::client::cli;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The server as a process that listens.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    stderr: Option<std::thread::JoinHandle<String>>,
}

/// An answer, its body put together.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The message in it, which may be an event of a stream.
    #[track_caller]
    pub(crate) fn message(&self) -> Value {
        let json =
            |text: &str| serde_json::from_str::<Value>(text).ok().filter(|value| value["id"] != Value::Null);
        let events = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        json(&self.body)
            .or_else(|| events.filter_map(json).next_back())
            .unwrap_or_else(|| panic!("{} {}", self.status, self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
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

    /// Begins a request; the returned stream carries its answer.
    pub(crate) fn open(&self, headers: &[(&str, &str)], body: &str) -> TcpStream {
        open(self.address, headers, body)
    }

    /// Asks, and reads the answer.
    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        post(self.address, headers, body)
    }

    /// Asks without a body, `GET` or `DELETE`, and reads the answer.
    pub(crate) fn bare(&self, method: &str, headers: &[(&str, &str)]) -> Answer {
        answer(send(self.address, format!("{method} /mcp HTTP/1.1\r\n"), headers, ""))
    }

    /// A request of the version without sessions.
    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let (headers, body) = request(method, params);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(&headers, &body).message()
    }

    /// The most memory that it ever had resident, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        peak_resident_bytes_of(self.child.id())
    }

    /// The memory that is resident now, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        resident_bytes_of(self.child.id())
    }

    #[track_caller]
    pub(crate) fn lives(&self) {
        let answer = self.ask("tools/list", &json!({}));
        assert!(answer["result"]["tools"].is_array(), "{answer}");
    }

    /// Signals it to end and waits; returns its output.
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

/// Posts to `/mcp` there; the returned stream carries the answer.
pub(crate) fn open(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let head = format!("POST /mcp HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    send(address, head, headers, body)
}

/// Sends a request that begins with that line; the returned stream carries the answer.
fn send(address: SocketAddr, mut head: String, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
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
    // The rest of the body of a request that is refused early may be refused, too.
    drop(stream.write_all(format!("{head}\r\n{body}").as_bytes()));
    stream
}

/// Posts to `/mcp` there, and reads the answer.
pub(crate) fn post(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> Answer {
    answer(open(address, headers, body))
}

/// Reads an answer to its end.
pub(crate) fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
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

/// What a request of the version without sessions says of its client, which has these capabilities.
pub(crate) fn alone(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// The headers and the body of a request of the version without sessions.
pub(crate) fn request(method: &str, params: &Value) -> (Vec<(&'static str, String)>, String) {
    let mut params = params.clone();
    params["_meta"] = alone(&json!({}));
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
