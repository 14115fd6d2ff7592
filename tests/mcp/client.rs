//! A client without an SDK: lines to and from the binary, and a home that has something to offer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cofferdam_test_support::cli::Cli;
use cofferdam_test_support::process::{peak_resident_bytes_of, resident_bytes_of};
use cofferdam_test_support::{Home, Signer, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::run;

/// The time limit of every wait here, reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A home with these guests installed.
pub(crate) fn home(guests: &[&str]) -> Home {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    for guest in guests {
        run(home.install(&package::guest_package(guest, &[]), &signer)).unwrap();
    }
    home
}

/// The command line in that home.
pub(crate) fn cli(home: &Home) -> Cli {
    Cli::new(COFFERDAM, home.path())
}

/// All logged calls, the newest first.
pub(crate) fn record(home: &Home) -> Vec<Value> {
    let lines = cli(home).run(&["audit", "list", "--limit", "0", "--format", "json"]).ok();
    let whole: Result<Value, _> = serde_json::from_str(&lines);
    match whole {
        Ok(Value::Array(calls)) => calls,
        Ok(Value::Object(all)) => all.get("calls").and_then(Value::as_array).cloned().unwrap_or_default(),
        _ => lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    }
}

/// The server as a process, and this side of its streams.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Nothing is read from the server while this is locked.
    reading: Arc<Mutex<()>>,
    stderr: Option<std::thread::JoinHandle<String>>,
    /// The messages that are not answers.
    pub(crate) notes: Vec<Value>,
    next: i64,
}

impl Client {
    /// Starts `cofferdam mcp` with `args`, and sends nothing yet.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let args: Vec<_> = ["mcp"].iter().chain(args).collect();
        let mut command = cli(home).command(&args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reading = Arc::<Mutex<()>>::default();
        let turn = Arc::clone(&reading);
        std::thread::spawn(move || {
            for line in output.lines() {
                drop(turn.lock());
                if line.map(|line| sender.send(line)).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            drop(stderr.read_to_string(&mut text));
            text
        });
        let input = child.stdin.take();
        Self { child, input, lines, reading, stderr: Some(stderr), notes: Vec::new(), next: 1 }
    }

    /// The same, past its greeting.
    pub(crate) fn greeted(home: &Home, args: &[&str]) -> Self {
        Self::greeted_as(home, args, "2025-11-25", &json!({}))
    }

    /// The same, with this version and these capabilities.
    pub(crate) fn greeted_as(home: &Home, args: &[&str], version: &str, capabilities: &Value) -> Self {
        let mut client = Self::start(home, args);
        let name = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": name});
        let answer = client.ask("initialize", &hello);
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        client
    }

    /// Writes a line with any content.
    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// The next message.
    pub(crate) fn read(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a message");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("standard output has something else: {line}"))
    }

    /// Begins a request; its id.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> i64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    /// The answer with this id; earlier messages that are not answers are kept.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.read();
            if message.get("id") == Some(&json!(id)) {
                return message;
            }
            assert!(message.get("method").is_some(), "another answer: {message}");
            self.notes.push(message);
        }
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Calls a tool; its result.
    pub(crate) fn call(&mut self, tool: &str, args: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": args}))["result"].clone()
    }

    /// The names of the tools.
    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no tools: {answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The lock that stops reading, so that the server's pipe fills.
    pub(crate) fn reading(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.reading)
    }

    /// The most memory that the server ever had resident, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        peak_resident_bytes_of(self.child.id())
    }

    /// The memory of the server that is resident now, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        resident_bytes_of(self.child.id())
    }

    /// Says no more.
    pub(crate) fn hang_up(&mut self) {
        self.input = None;
    }

    /// Disconnects like a killed process: writes nothing more, and reads nothing. Also waits until the server
    /// ended.
    pub(crate) fn vanish(&mut self, unread: MutexGuard<'_, ()>) {
        self.input = None;
        self.lines = channel().1;
        // The reading thread finds that its receiver is gone, and closes the pipe.
        drop(unread);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Closes its input and waits for the end; returns the standard error.
    pub(crate) fn end(mut self) -> String {
        self.input = None;
        let status = self.child.wait().unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        assert!(status.success(), "{status}: {stderr}");
        stderr
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
