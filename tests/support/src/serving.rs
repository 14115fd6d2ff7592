//! A server of this home as a process, for tests that only make calls.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Cli;

/// A running server. Dropping it kills the process.
pub struct Serving {
    address: SocketAddr,
    child: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Serving {
    /// Starts the server on loopback, with these variables in its environment.
    #[must_use]
    pub fn start(cli: &Cli, variables: &[(&str, &str)]) -> Self {
        let mut command = Self::command(cli);
        command.envs(variables.iter().copied());
        Self::spawn(command)
    }

    /// The command that starts the server on loopback, to be configured further.
    #[must_use]
    pub fn command(cli: &Cli) -> Command {
        cli.command(&["serve", "--listen", "127.0.0.1:0", "--format", "json"])
    }

    /// Starts the server by its command.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let url = ready["listening"].as_str().unwrap();
        let address = url.split("://").nth(1).unwrap().parse().unwrap();
        Self { address, child, _stdout: stdout }
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The standard error of the server, if its command pipes it and nothing has taken it.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Ends the server as a service manager does, and waits for that.
    pub fn end(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }

    /// Calls an operation without arguments; returns the status and the answer.
    #[must_use]
    pub fn call(&self, connector: &str, op: &str) -> (u16, Value) {
        self.call_with(connector, op, &json!({}))
    }

    /// Calls an operation; returns the status and the answer.
    #[must_use]
    pub fn call_with(&self, connector: &str, op: &str, args: &Value) -> (u16, Value) {
        self.call_under(None, connector, op, args)
    }

    /// Calls an operation, under this idempotency key; returns the status and the answer.
    #[must_use]
    pub fn call_under(&self, key: Option<&str>, connector: &str, op: &str, args: &Value) -> (u16, Value) {
        let body = json!({"connector": connector, "op": op, "args": args}).to_string();
        let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "POST /v1/calls HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {key}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
