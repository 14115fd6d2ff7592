//! The cost of the protocol and of the server's confinement: `tools/call` over stdio and HTTP on warm servers, confined
//! and not, beside the same call through the crate.
//!
//! All with the record, on one machine, in one run. Over stdio 8 clients are 8 requests under way on one pair of pipes,
//! which one thread writes and reads; over HTTP they are 8 connections that stay open, of the version without sessions.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam::{Call, Compiler, ConnectorRef, Host};
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, connector};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const CALLS: usize = 4_000;
const CLIENTS: [usize; 2] = [1, 8];

/// Rounds of the servers, which take turns, so that a drift of the machine is the same for both.
const ROUNDS: usize = 4;

/// The latencies of one way, and how long all took together.
#[derive(Default)]
struct Measured {
    each: Vec<Duration>,
    all: Duration,
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.each.extend(other.each);
        self.all += other.all;
    }

    fn print(mut self, way: &str, clients: usize) {
        self.each.sort_unstable();
        let at = |share: usize| self.each[(self.each.len() - 1) * share / 100];
        let rate = self.each.len() as f64 / self.all.as_secs_f64();
        println!(
            "{way:<16} {clients} clients: p50 {:>9.1?}  p99 {:>9.1?}  {rate:>8.0} calls/s",
            at(50),
            at(99)
        );
    }
}

/// A server, which ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn server(home: &Home, args: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.arg("mcp").args(["--operations", "hello.greet", "--concurrency", "64"]).args(args);
    command
        .env("COFFERDAM_HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Server(command.spawn().unwrap())
}

fn request(id: usize, modern: bool) -> String {
    let mut params = json!({"name": "hello__greet", "arguments": {"name": "Ada"}});
    if modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

async fn through_the_crate(host: &Host, hello: &ConnectorRef, clients: usize) -> Measured {
    let start = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..clients {
        let (host, hello) = (host.clone(), hello.clone());
        all.spawn(async move {
            let mut each = Vec::new();
            for _ in 0..CALLS / clients {
                let start = Instant::now();
                let call = Call::new(hello.clone(), "greet", json!({"name": "Ada"}));
                std::hint::black_box(host.run(call).await.outcome.unwrap());
                each.push(start.elapsed());
            }
            each
        });
    }
    Measured { each: all.join_all().await.concat(), all: start.elapsed() }
}

struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _server: Server,
}

impl Pipes {
    fn greeted(home: &Home, args: &[&str]) -> Self {
        let mut server = server(home, args);
        let output = BufReader::new(server.0.stdout.take().unwrap());
        let mut pipes = Self { input: server.0.stdin.take().unwrap(), output, _server: server };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        pipes.write(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).to_string());
        pipes.read();
        pipes
    }

    fn write(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The id of the next answer, which has to be a value.
    fn read(&mut self) -> usize {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.contains("\"isError\":true") && !line.contains("\"error\":"), "{line}");
        let after = line.split("\"id\":").nth(1).unwrap();
        after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    fn measure(&mut self, clients: usize) -> Measured {
        let start = Instant::now();
        let mut begun = vec![start; CALLS];
        let mut each = Vec::new();
        for at in 0..CALLS + clients {
            if at >= clients {
                let id = self.read();
                each.push(begun[id].elapsed());
            }
            if at < CALLS {
                begun[at] = Instant::now();
                self.write(&request(at, false));
            }
        }
        Measured { each, all: start.elapsed() }
    }
}

/// A server over HTTP, and its address.
fn listening(home: &Home, args: &[&str]) -> (Arc<str>, Server) {
    let mut server = server(home, &[&["--http", "127.0.0.1:0"], args].concat());
    for line in BufReader::new(server.0.stderr.take().unwrap()).lines() {
        if let Some((_, url)) = line.unwrap().split_once("http://") {
            return (url.trim().trim_end_matches("/mcp").into(), server);
        }
    }
    panic!("the server has ended");
}

async fn over_http(address: Arc<str>, clients: usize) -> Measured {
    let start = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..clients {
        let address = Arc::clone(&address);
        all.spawn(async move {
            let stream = TcpStream::connect(&*address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut stream = tokio::io::BufReader::new(stream);
            let body = request(1, true);
            let length = body.len();
            let request = format!(
                "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                 accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
                 mcp-name: hello__greet\r\n\r\n{body}"
            );
            let mut each = Vec::new();
            for _ in 0..CALLS / clients {
                let start = Instant::now();
                stream.write_all(request.as_bytes()).await.unwrap();
                answered(&mut stream).await;
                each.push(start.elapsed());
            }
            each
        });
    }
    Measured { each: all.join_all().await.concat(), all: start.elapsed() }
}

async fn answered(stream: &mut tokio::io::BufReader<TcpStream>) {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        if line == "\r\n" {
            break;
        }
        assert!(!line.starts_with("HTTP/1.1") || line.contains("200"), "{line}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    assert!(length > 0, "the answer is one body");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("hello", &[]);
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let hello = connector("github://cofferdam/hello@0.1.0");
    let host = home.builder_alone().concurrency(64).build().unwrap();
    runtime.block_on(async {
        for clients in CLIENTS {
            through_the_crate(&host, &hello, clients).await;
            through_the_crate(&host, &hello, clients).await.print("crate", clients);
        }
        let mut pipes = [Pipes::greeted(&home, &[]), Pipes::greeted(&home, &["--no-confine"])];
        let servers = [listening(&home, &[]), listening(&home, &["--no-confine"])];
        for clients in CLIENTS {
            let (mut stdio, mut http) = <([Measured; 2], [Measured; 2])>::default();
            for round in 0..=ROUNDS {
                for at in 0..2 {
                    let measured =
                        (pipes[at].measure(clients), over_http(Arc::clone(&servers[at].0), clients).await);
                    // The first round warms up.
                    if round > 0 {
                        stdio[at].add(measured.0);
                        http[at].add(measured.1);
                    }
                }
            }
            for (way, [confined, open]) in [("stdio", stdio), ("http", http)] {
                confined.print(way, clients);
                open.print(&format!("{way}, open"), clients);
            }
        }
    });
}
