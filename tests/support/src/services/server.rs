//! A server process on a free port, which is awaited, and ends with the value or with the test process.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::Tools;

/// The time limit for a server's first answer: they take seconds, on a busy machine many.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// Starts the rest of its arguments, and ends their process group when its input ends. That input is a pipe that
/// this process holds, so servers end with it however it ends, also where values of statics are never dropped.
pub(super) const KEEPER: &str = r#""$@" </dev/null & read -r _; kill -s KILL 0"#;

/// A running server; it ends with the value.
pub struct Server {
    name: String,
    port: u16,
    child: Child,
    dir: TempDir,
}

impl Server {
    /// Starts `program` with the arguments that `args` makes of a free port, in a temporary directory, and waits
    /// until it accepts connections.
    ///
    /// # Panics
    /// It ends, or does not answer in time; with the end of what it said.
    #[must_use]
    pub fn start<A: AsRef<OsStr>>(
        tools: &Tools,
        program: PathBuf,
        args: impl FnOnce(u16) -> Vec<A>,
        env: &[(&str, &str)],
    ) -> Self {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let dir = tempfile::Builder::new().prefix("cofferdam-server-").tempdir().expect("a directory");
        let log = File::create(dir.path().join("log")).expect("a file");
        let port = free_port();
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&program)
            .args(args(port))
            .env_clear()
            .env("PATH", format!("{}:{path}", tools.python("").display()))
            .env("HOME", dir.path())
            .env("NODE_PATH", tools.dir().join("node_modules"))
            .env("NO_COLOR", "1")
            .envs(env.iter().copied())
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut server = Self { name, port, child, dir };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).is_err() {
            // The keeper takes a moment until it has something to keep.
            let alone = begun.elapsed() > Duration::from_secs(10) && self.alone();
            let ended = alone || self.child.try_wait().expect("a child").is_some();
            assert!(!ended && begun.elapsed() < PATIENCE, "{} does not answer:\n{}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// True if the keeper has nothing to keep any more.
    fn alone(&self) -> bool {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.is_ok_and(|children| children.trim().is_empty())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `localhost:<port>`.
    #[must_use]
    pub fn host_port(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// A file in its directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its output until now.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        drop(self.child.wait());
    }
}

/// A port at which no server listens now.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback interface");
    listener.local_addr().expect("an address").port()
}
