//! The server as a process, and a client that writes bytes.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::Duration;

use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::run;

pub(super) const PROBE: &str = "github://cofferdam/probe@0.1.0";

/// The token that requests carry.
pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server, its home, and the service that its connectors may reach.
pub(super) struct Stage {
    pub(super) home: Home,
    pub(super) upstream: Upstream,
    pub(super) address: SocketAddr,
    /// A port that `probe` is granted, and at which no server listens.
    pub(super) closed: u16,
    /// What it said when it was ready.
    pub(super) ready: Value,
    child: Child,
    _stdout: BufReader<ChildStdout>,
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The class or the code.
    pub(super) fn word(&self) -> String {
        let error = &self.json()["error"];
        let word = error.get("class").unwrap_or(&error["code"]);
        word.as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(&["--token-file", "token"])
    }

    pub(super) fn with(more: &[&str]) -> Self {
        Self::configured(more, "")
    }

    /// The same with this text at the end of `config.toml`.
    pub(super) fn configured(more: &[&str], config: &str) -> Self {
        Self::prepared(more, config, |_| ())
    }

    /// The same over a home that is prepared further before the server starts.
    pub(super) fn prepared(more: &[&str], config: &str, prepare: impl FnOnce(&Home)) -> Self {
        Self::start_configured(&[&["serve", "--listen", "127.0.0.1:0"], more].concat(), config, prepare)
    }

    /// A server that this command starts.
    pub(super) fn start(command: &[&str]) -> Self {
        Self::start_configured(command, "", |_| ())
    }

    fn start_configured(command: &[&str], config: &str, prepare: impl FnOnce(&Home)) -> Self {
        let (home, upstream, signer) = (Home::new(COFFERDAM), Upstream::start(), Signer::new());
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        home.trust(&signer.public(), "github://cofferdam/*");
        let grants = [upstream.grant(), format!("http://localhost:{closed}")];
        run(home.install(&package::guest_package("probe", &grants), &signer)).unwrap();
        for name in ["slack", "hello"] {
            run(home.install(&package::guest_package(name, &[]), &signer)).unwrap();
        }
        let config = format!(
            "[network]\nallow_private = [\"{}\", \"localhost:{closed}\"]\n[retry]\nprofile = \"none\"\n{config}",
            upstream.host_port()
        );
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        let token = home.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token, mode).unwrap();
        prepare(&home);
        let args = [command, &["--format", "json"]].concat();
        let mut command = Cli::new(COFFERDAM, home.path()).command(&args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let url = ready["listening"].as_str().unwrap();
        let address = url.split("://").nth(1).unwrap().parse().unwrap();
        Self { home, upstream, address, closed, ready, child, _stdout: stdout }
    }

    pub(super) fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// Sends a request and leaves its connection open. `headers` are lines; the token is among them.
    pub(super) fn begin(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> TcpStream {
        let authorization = format!("authorization: Bearer {TOKEN}");
        self.begin_plain(method, path, &[&[authorization.as_str()], headers].concat(), body)
    }

    /// As [`begin`](Self::begin), without the token.
    pub(super) fn begin_plain(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> TcpStream {
        begin_at(self.address, method, path, headers, body)
    }

    pub(super) fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        read(self.begin(method, path, headers, body))
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(super) fn post(&self, body: &Value) -> Answer {
        self.post_with(&[], body)
    }

    pub(super) fn post_with(&self, headers: &[&str], body: &Value) -> Answer {
        read(self.begin_post(headers, body))
    }

    pub(super) fn begin_post(&self, headers: &[&str], body: &Value) -> TcpStream {
        let headers = [&["content-type: application/json"], headers].concat();
        self.begin("POST", "/v1/calls", &headers, body.to_string().as_bytes())
    }

    /// Waits until the service saw a request for `path`.
    pub(super) fn reaches(&self, path: &str) {
        while self.upstream.seen(path).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The process of the server.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// The most memory that the server ever had resident, in bytes.
    pub(super) fn peak_bytes(&self) -> u64 {
        cofferdam_test_support::process::peak_resident_bytes_of(self.child.id())
    }

    /// The exit status of the server.
    pub(super) fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request to the server at this address and leaves its connection open. `headers` are lines.
pub(super) fn begin_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|line| line.starts_with("host:")) {
        head.push_str("host: localhost\r\n");
    }
    headers.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    // A request that is refused by its head may not be read completely.
    let _ = stream.write_all(body);
    stream
}

/// All that is answered.
pub(super) fn read(mut stream: impl Read) -> Answer {
    let mut answer = Vec::new();
    // A response before the end of a body that is too long may be cut by a reset.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A call of `probe`.
pub(super) fn probe(op: &str, args: &Value) -> Value {
    json!({"connector": PROBE, "op": op, "args": args})
}
