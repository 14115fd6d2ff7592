//! NATS with JetStream: a server on a port and a store directory that it keeps over restarts.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Tools;

/// The time limit for its first answer: it takes a moment, on a busy machine seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A NATS server; it ends with the value, and its store with it.
pub struct Nats {
    tools: Tools,
    port: u16,
    dir: TempDir,
    child: Option<Child>,
}

impl Nats {
    /// Starts a server with JetStream on a free port of the loopback interface, with an empty store.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(tools: &Tools) -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-nats-").tempdir().expect("a directory");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback interface");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut nats = Self { tools: tools.clone(), port, dir, child: None };
        nats.restart();
        nats
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop), on the same port and store.
    ///
    /// # Panics
    /// It does not answer in time; with the end of its log.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let log =
            File::options().create(true).append(true).open(self.dir.path().join("log")).expect("a file");
        let child = Command::new(self.tools.python("nats-server"))
            .args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"])
            .arg(self.dir.path().join("store"))
            .env_clear()
            .env("HOME", self.dir.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("nats-server, which install.sh installs");
        self.child = Some(child);
        let begun = Instant::now();
        while !self.answers() {
            let ended = self.child.as_mut().is_some_and(|child| child.try_wait().expect("a child").is_some());
            assert!(!ended && begun.elapsed() < PATIENCE, "NATS does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns true if it greets a client: a port that accepts a connection may be anybody's.
    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)) else {
            return false;
        };
        let mut greeting = [0; 5];
        drop(stream.set_read_timeout(Some(Duration::from_secs(1))));
        stream.read_exact(&mut greeting).is_ok() && &greeting == b"INFO "
    }

    /// Ends it at once, as a crash does.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("a child");
        child.wait().expect("a child");
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// It does not run.
    pub fn stop(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a process");
        child.wait().expect("a child");
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its address as `config.toml` has it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its store, with everything that it was given.
    #[must_use]
    pub fn store(&self) -> &Path {
        self.dir.path()
    }

    /// Its output until now.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Publishes a message as any program with access to NATS could, and returns when the server has taken it. `headers`
    /// are lines like `Name: value`.
    ///
    /// # Panics
    /// It cannot be published.
    pub fn publish(&self, subject: &str, headers: &[String], payload: &[u8]) {
        let mut stream = TcpStream::connect(self.address()).expect("a server");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let mut head = String::from("NATS/1.0\r\n");
        headers.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
        head.push_str("\r\n");
        let mut bytes =
            b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"name\":\"a stranger\"}\r\n"
                .to_vec();
        let (headers, whole) = (head.len(), head.len() + payload.len());
        bytes.extend_from_slice(format!("HPUB {subject} {headers} {whole}\r\n").as_bytes());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"\r\nPING\r\n");
        stream.write_all(&bytes).expect("a server that reads");
        let mut answer = String::new();
        let mut buffer = [0; 4096];
        while !answer.contains("PONG") {
            let read = stream.read(&mut buffer).expect("an answer");
            answer.push_str(&String::from_utf8_lossy(&buffer[..read]));
            assert!(read > 0 && !answer.contains("-ERR"), "{answer}");
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
