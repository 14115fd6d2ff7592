//! A home, a NATS server, an upstream that counts, and the processes that submit and run jobs.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cofferdam_core::digest::Digest;
use cofferdam_test_support::services::{Nats, Tools};
use cofferdam_test_support::{Cli, CommandResult, Home, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::run;

pub(super) const PROBE: &str = "github://cofferdam/probe@0.1.0";

/// The longest that anything here takes.
const PATIENCE: Duration = Duration::from_secs(90);

/// Profiles with waits that a test can see and that take little time.
const PROFILES: &str = "[retry]\nprofile = \"quick\"\n[retry.profiles.quick]\nretryable = true\nmax_attempts = 3\n\
                        backoff = { kind = \"fixed\", base = \"1s\" }\njitter = { kind = \"none\" }\n\
                        classifier = { retry_on = [\"unavailable\"] }\n";

/// The servers of this machine; none where they are not installed, which is said.
pub(super) fn tools() -> Option<Tools> {
    crate::tools("the queue on a real NATS server")
}

/// The home, NATS and the upstream.
pub(super) struct Stage {
    pub(super) home: Home,
    pub(super) nats: Nats,
    pub(super) upstream: Upstream,
    hash: String,
}

impl Stage {
    pub(super) fn new(tools: &Tools) -> Self {
        Self::with(tools, "")
    }

    /// With more settings of the queue.
    pub(super) fn with(tools: &Tools, jobs: &str) -> Self {
        let (home, upstream, nats) = (Home::new(COFFERDAM), Upstream::start(), Nats::start(tools));
        let signer = Signer::new();
        home.trust(&signer.public(), "github://cofferdam/*");
        let bytes = package::guest_package("probe", &[upstream.grant()]);
        run(home.install(&bytes, &signer)).unwrap();
        let config = format!(
            "[network]\nallow_private = [\"{}\"]\n[cluster]\nhost = \"stage\"\nnats = \"{}\"\n\
             [jobs]\nack_wait = \"2s\"\n{jobs}\n{PROFILES}",
            upstream.host_port(),
            nats.url()
        );
        fs::write(home.path().join("config.toml"), config).unwrap();
        Self { home, nats, upstream, hash: Digest::sha256(&bytes).to_string() }
    }

    pub(super) fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    pub(super) fn json(&self, args: &[&str]) -> Value {
        self.cli().run(&[args, &["--format", "json"]].concat()).json()
    }

    /// Submits a call of the probe.
    pub(super) fn try_submit(&self, op: &str, args: &Value, key: &str) -> CommandResult {
        let args = args.to_string();
        self.cli().run(&["submit", "call", PROBE, op, &args, "--key", key, "--format", "json"])
    }

    /// Submits a call of the probe; the job's id.
    pub(super) fn submit(&self, op: &str, args: &Value, key: &str) -> String {
        let job = self.try_submit(op, args, key).json();
        assert_eq!(job["idempotency_key"], key);
        job["id"].as_str().unwrap().to_owned()
    }

    /// Submits a post to this path, which must not be repeated; the job's id.
    pub(super) fn submit_post(&self, path: &str, key: &str) -> String {
        self.submit("post", &json!({"url": self.upstream.url(path), "body": "x"}), key)
    }

    pub(super) fn job(&self, id: &str) -> Value {
        self.json(&["jobs", "show", id])
    }

    /// Waits until the job is in this state.
    #[track_caller]
    pub(super) fn becomes(&self, id: &str, state: &str) -> Value {
        let begun = Instant::now();
        loop {
            let job = self.job(id);
            if job["state"] == state {
                return job;
            }
            assert!(begun.elapsed() < PATIENCE, "it is not {state}: {job}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The requests for a path.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.upstream.seen(path).len()
    }

    /// Waits until there was a request for a path.
    #[track_caller]
    pub(super) fn reaches(&self, path: &str) {
        let begun = Instant::now();
        while self.asked(path) == 0 {
            assert!(begun.elapsed() < PATIENCE, "no request for {path}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn worker(&self) -> Process {
        self.worker_with(&[], &[])
    }

    /// A worker with more arguments and variables.
    pub(super) fn worker_with(&self, args: &[&str], env: &[(&str, &str)]) -> Process {
        let args = [&["worker", "--format", "json"], args].concat();
        Process::start(self.cli().command(&args).envs(env.iter().copied()))
    }

    pub(super) fn serve(&self) -> Process {
        Process::start(&mut self.cli().command(&["serve", "--listen", "127.0.0.1:0", "--format", "json"]))
    }

    /// The cluster's name in subjects, as its streams have it.
    pub(super) fn cluster(&self) -> String {
        let streams = self.nats.store().join("store/jetstream/$G/streams");
        let names = fs::read_dir(&streams).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        let name = names.iter().find_map(|name| name.strip_prefix("cofferdam_")?.strip_suffix("_jobs"));
        name.unwrap_or_else(|| panic!("no stream of jobs in {names:?}")).to_owned()
    }

    /// Writes the action `name` with three steps that post: `first` and `last` may be repeated, `pay` must not.
    pub(super) fn three_steps(&self, name: &str) {
        let url = |step: &str| self.upstream.url(&format!("/text/{name}-{step}"));
        let step = |id: &str, op: &str, inputs: String| {
            format!(
                "[[execute]]\nid = \"{id}\"\nconnector = \"github://cofferdam/probe\"\nop = \"{op}\"\ninputs = {{ {inputs} }}\n"
            )
        };
        let order = |id: &str| {
            step(id, "order", format!("url = \"{}\", body = \"{id}\", labels = [\"effect\"]", url(id)))
        };
        let steps = [
            order("first"),
            step("pay", "post", format!("url = \"{}\", body = \"p\"", url("pay"))),
            order("last"),
        ];
        let hosts = format!("[\"{}\"]", self.upstream.grant());
        let text = format!(
            "+++\nname = \"{name}\"\nversion = \"1.0.0\"\n[[requires.connectors]]\n\
             name = \"github://cofferdam/probe\"\nversion = \"0.1.0\"\nhash = \"sha256:{}\"\n\
             capabilities = {{ operations = [\"post\", \"order\"], hosts = {hosts} }}\n{}+++\nA test.\n",
            self.hash,
            steps.concat()
        );
        crate::actions_run::fixture::write(self.home.path(), name, &text);
    }
}

/// A process that says in one line that it is ready; it is killed with the value.
pub(super) struct Process {
    child: Child,
    pub(super) ready: Value,
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Process {
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let ready = serde_json::from_str(&ready).unwrap_or_else(|error| panic!("{error}: {ready}"));
        Self { child, ready, _stdout: stdout }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        let url = self.ready["listening"].as_str().unwrap();
        url.split("://").nth(1).unwrap().parse().unwrap()
    }

    /// Ends it as a crash does.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub(super) fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
