//! A home, a service that counts, and processes that are loaded with calls and killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cofferdam::{AuditId, HostErrorKind};
use cofferdam_runtime::flow::SkipRequest;
use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};
use serde_json::{Value, json};

use super::checker::KillChecker;
use crate::COFFERDAM;
use crate::shared_host::{host_kind, run};

pub(super) const PROBE: &str = "github://cofferdam/probe";

/// Three attempts, with hardly a wait between them.
const QUICK: &str = "[retry.profiles.quick]\nretryable = true\nmax_attempts = 3\n\
                     backoff = { kind = \"fixed\", base = \"1ms\" }\n\
                     classifier = { retry_on = [\"unavailable\"] }\n";

/// A job's action: a post, by an operation that may be repeated or by one that must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Op {
    Order,
    OrderOnce,
}

impl Op {
    pub(super) const BOTH: [Self; 2] = [Self::Order, Self::OrderOnce];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::OrderOnce => "order_once",
        }
    }
}

/// One line of a load: its name is what the service sees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) op: Op,
    /// True if its name is its idempotency key as well.
    pub(super) keyed: bool,
}

impl Job {
    /// The path of its post: a name that begins with `flaky` is answered the third time, one with `hang` never.
    pub(super) fn path(&self) -> String {
        match self.name.split('-').next() {
            Some("flaky") => format!("/flaky/2/{}", self.name),
            Some("hang") => format!("/hang/{}", self.name),
            _ => format!("/text/{}", self.name),
        }
    }
}

/// The home and the service.
pub(super) struct Stage {
    pub(super) home: Home,
    pub(super) upstream: Upstream,
}

impl Stage {
    pub(super) fn new() -> Self {
        let (home, upstream) = (Home::new(COFFERDAM), Upstream::start());
        let config = format!(
            "[network]\nallow_private = [\"{}\"]\n[retry]\nprofile = \"quick\"\n{QUICK}",
            upstream.host_port()
        );
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        let stage = Self { home, upstream };
        stage.installs();
        stage
    }

    /// Installs the connector.
    pub(super) fn installs(&self) {
        let signer = Signer::new();
        self.home.trust(&signer.public(), "github://cofferdam/*");
        let package = package::guest_package("probe", &[self.upstream.grant()]);
        run(self.home.install(&package, &signer)).unwrap();
    }

    pub(super) fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// A command that makes these jobs, all of one operation, from its standard input's file.
    pub(super) fn command(&self, jobs: &[Job], concurrency: u32) -> Command {
        let op = jobs[0].op.name();
        let file = self.lines(jobs);
        let at_once = concurrency.to_string();
        let mut command = self.cli().command(&["call", PROBE, op, "--each", "-", "--concurrency", &at_once]);
        command.stdin(std::fs::File::open(file).unwrap());
        command
    }

    /// A file of these jobs: a new one each time, since another process may still read the previous one.
    pub(super) fn lines(&self, jobs: &[Job]) -> PathBuf {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let lines: String = jobs.iter().map(|job| format!("{}\n", self.line(job))).collect();
        let file = self.home.path().join(format!("{}.jsonl", FILES.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, lines).unwrap();
        file
    }

    fn line(&self, job: &Job) -> Value {
        let url = self.upstream.url(&job.path());
        let args = json!({"url": url, "body": job.name, "labels": ["effect"]});
        match job.keyed {
            true => json!({"args": args, "idempotency_key": job.name}),
            false => json!({"args": args}),
        }
    }

    /// Starts a load; `points` are the places at which it kills itself.
    pub(super) fn start(&self, jobs: Vec<Job>, concurrency: u32, points: &str) -> Load {
        let mut command = self.command(&jobs, concurrency);
        command.env("COFFERDAM_FAILPOINTS", points);
        Load::of(command, jobs)
    }

    /// Starts `recover resume --all`.
    pub(super) fn recovers(&self) -> Load {
        Load::of(self.cli().command(&["recover", "resume", "--all"]), Vec::new())
    }

    /// Interrupted calls are resumed if that is safe, an operator resolves the rest, and then nothing is
    /// pending.
    pub(super) fn is_recovered(&self, checker: &mut KillChecker) {
        let list = || self.cli().run(&["recover", "list", "--format", "json"]).json();
        let open = |checker: &KillChecker| {
            checker.without_end().into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let listed: BTreeSet<_> = list()
            .as_array()
            .unwrap()
            .iter()
            .map(|call| call["audit_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(listed, open(checker), "what is without an end is listed, and nothing else");
        let recovery = self.recovers().end();
        assert!(!checker.hears_of_recovery(&recovery));
        let findings = checker.finds(self);
        assert!(findings.is_empty(), "{findings:#?}");
        let left = list();
        let left = left.as_array().unwrap();
        assert_eq!(left.len(), open(checker).len());
        let host = self.home.host();
        for call in left {
            let id = call["audit_id"].as_str().unwrap();
            let told: Vec<_> = recovery.lines.iter().filter(|line| line.contains(id)).collect();
            assert_eq!(
                (&call["op"], &call["idempotent"]),
                (&json!("order_once"), &json!(false)),
                "{call}: {:?} {told:#?}",
                recovery.status,
            );
            assert_eq!(call["replayable"], false);
            assert_eq!(call["reason"], "execution_incomplete");
            let audit_id = AuditId::parse(id).unwrap();
            let outcome = run(host.resume(&audit_id, "test", None)).outcome;
            let kind = host_kind(&outcome.unwrap_err());
            assert_eq!(kind, Some(HostErrorKind::OutcomeUnknown), "not repeated: {call}");
            let skip = SkipRequest { actor: "test".into(), reason: "looked at".into(), frees_key: false };
            run(host.skip(&audit_id, skip)).unwrap();
        }
        drop(host);
        assert_eq!(list(), json!([]));
        let findings = checker.finds(self);
        assert!(findings.is_empty() && checker.without_end().is_empty(), "{findings:#?}");
        self.cli().run(&["audit", "verify"]).ok();
    }
}

/// A running process.
pub(super) struct Load {
    pub(super) jobs: Vec<Job>,
    child: Child,
    told: Receiver<String>,
    lines: Vec<String>,
}

/// The remains of a process.
pub(super) struct Left {
    pub(super) jobs: Vec<Job>,
    /// The complete lines that it printed, on which a reader may rely.
    pub(super) lines: Vec<String>,
    pub(super) status: ExitStatus,
}

impl Load {
    pub(super) fn of(mut command: Command, jobs: Vec<Job>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while out.read_line(&mut line).unwrap() > 0 {
                // Cut off by the kill, it is not a line.
                if line.ends_with('\n') {
                    let _ = tell.send(std::mem::take(&mut line));
                }
            }
        });
        Self { jobs, child, told, lines: Vec::new() }
    }

    /// Waits until `lines` were printed, or it has ended.
    pub(super) fn prints(&mut self, lines: usize) {
        while self.lines.len() < lines {
            match self.told.recv_timeout(Duration::from_secs(120)) {
                Ok(line) => self.lines.push(line),
                Err(_) => return,
            }
        }
    }

    /// Waits until an error was printed, or it has ended.
    pub(super) fn fails(&mut self) {
        while let Ok(line) = self.told.recv_timeout(Duration::from_secs(120)) {
            let failed = line.contains("\"error\"");
            self.lines.push(line);
            if failed {
                return;
            }
        }
    }

    pub(super) fn kill(mut self) -> Left {
        self.child.kill().unwrap();
        self.end()
    }

    /// As Ctrl-C does.
    pub(super) fn interrupt(self) -> Left {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.end()
    }

    /// Waits for its end. One that hangs fails the test, in the place of stopping all of them.
    pub(super) fn end(mut self) -> Left {
        let until = Instant::now() + Duration::from_secs(300);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= until {
                self.child.kill().unwrap();
                panic!("it hangs after {:?} {:?}", self.lines, self.told.iter().collect::<Vec<_>>());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.lines.extend(self.told.iter());
        Left { jobs: self.jobs, lines: self.lines, status }
    }
}

impl Left {
    pub(super) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }
}
