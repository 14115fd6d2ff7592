//! The processes of a cluster: hosts and workers, which can be killed, stopped, paused and started again.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_test_support::{Cli, CommandResult};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::COFFERDAM;

/// A host or a worker must be up within this time.
const START: Duration = Duration::from_secs(90);

/// A process of the cluster.
pub(super) struct Member {
    name: String,
    pub(super) home: PathBuf,
    args: Vec<String>,
    failpoints: &'static str,
    /// Failpoints of the next process alone.
    first_failpoints: Mutex<Option<&'static str>>,
    log: PathBuf,
    /// The address of a host.
    pub(super) address: Arc<Mutex<SocketAddr>>,
    child: Mutex<Option<Child>>,
    /// Held by the fault that hits it: the next one waits until the process is up again.
    hit: Mutex<()>,
}

impl Member {
    /// A process of `cofferdam` with these arguments, over a home. Its log goes to a file in `logs`.
    pub(super) fn new(name: &str, home: &Path, args: &[&str], failpoints: &'static str, logs: &Path) -> Self {
        Self {
            name: name.to_owned(),
            home: home.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            failpoints,
            first_failpoints: Mutex::default(),
            log: logs.join(format!("{name}.log")),
            address: Arc::new(Mutex::new(([127, 0, 0, 1], 1).into())),
            child: Mutex::default(),
            hit: Mutex::default(),
        }
    }

    /// Gives its first process these failpoints instead.
    pub(super) fn begins_with(&mut self, failpoints: &'static str) {
        self.first_failpoints = Mutex::new((!failpoints.is_empty()).then_some(failpoints));
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_file(&self) -> File {
        OpenOptions::new().create(true).append(true).open(&self.log).unwrap()
    }

    /// Starts it, again and again until it is up, as a service manager would.
    pub(super) fn start(&self) {
        let begun = Instant::now();
        loop {
            if self.start_once() {
                return;
            }
            assert!(begun.elapsed() < START, "{} does not start: {}", self.name, self.said());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn start_once(&self) -> bool {
        let mut command = Cli::new(COFFERDAM, &self.home).command(&self.args);
        let first = self.first_failpoints.lock().unwrap_or_else(PoisonError::into_inner).take();
        command.env("COFFERDAM_FAILPOINTS", first.unwrap_or(self.failpoints));
        let mut child = command.stdout(Stdio::piped()).stderr(self.log_file()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let Ok(ready) = serde_json::from_str::<Value>(&ready) else {
            child.wait().unwrap();
            return false;
        };
        if let Some(url) = ready["listening"].as_str() {
            let address = url.split("://").nth(1).unwrap().parse().unwrap();
            *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
        }
        // The rest of its output is read so that it never waits for its reader.
        std::thread::spawn(move || drop(std::io::copy(&mut stdout, &mut std::io::sink())));
        *self.child() = Some(child);
        true
    }

    /// The end of its log.
    pub(super) fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(4_000)..]).into_owned()
    }

    /// Ends it, and starts it again after the pause.
    pub(super) fn restart(&self, end: fn(&Self), after: Duration) {
        let _alone = self.hit.lock().unwrap_or_else(PoisonError::into_inner);
        end(self);
        std::thread::sleep(after);
        self.start();
    }

    /// Acts like an operator's `kill -9`; the process is gone afterwards.
    pub(super) fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends SIGTERM and waits for its end.
    pub(super) fn stop(&self) {
        let Some(mut child) = self.child().take() else { return };
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        child.wait().unwrap();
    }

    /// Stops its threads for this time; it does not notice.
    pub(super) fn pause(&self, time: Duration) {
        let _alone = self.hit.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pid) = self.child().as_ref().map(Pid::from_child) else { return };
        let _ = kill_process(pid, Signal::STOP);
        std::thread::sleep(time);
        let _ = kill_process(pid, Signal::CONT);
    }

    /// True if it runs.
    pub(super) fn is_up(&self) -> bool {
        self.child().as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Runs a command over its home, as its operator would.
    pub(super) fn run(&self, args: &[&str]) -> CommandResult {
        let mut command = Cli::new(COFFERDAM, &self.home).command(args);
        command.env("COFFERDAM_FAILPOINTS", self.failpoints);
        let output = command.output().unwrap();
        CommandResult {
            line: args.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}
