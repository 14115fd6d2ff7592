//! A home with the probe in it, a server that counts, and action files of a single test.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use cofferdam::{Error, Host, HostBuilder};
use cofferdam_core::digest::Digest;
use cofferdam_runtime::flow::ActionResult;
use cofferdam_runtime::flow::{ActionReport, ActionValue, RunRequest};
use cofferdam_test_support::{Cli, Home, ManualClock, Signer, Upstream, package};
use serde_json::Value;

use crate::COFFERDAM;
use crate::shared_host::run;

/// Shared by all tests, so that it is compiled once.
pub(super) struct ActionHome {
    pub(super) home: Home,
    pub(super) upstream: Upstream,
    /// A port that is granted, and at which no server listens.
    pub(super) closed: String,
    /// The SHA-256 of the probe's package.
    hash: String,
}

static GROUND: LazyLock<ActionHome> = LazyLock::new(|| ActionHome::shared("actions"));

impl ActionHome {
    /// One for a value that nothing drops.
    pub(super) fn shared(name: &str) -> Self {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&base).unwrap();
        Self::over(Home::shared(COFFERDAM, &base))
    }

    /// One for a single test: killed processes leave traces.
    pub(super) fn own() -> Self {
        Self::over(Home::new(COFFERDAM))
    }

    fn over(home: Home) -> Self {
        let (signer, upstream) = (Signer::new(), Upstream::start());
        home.trust(&signer.public(), "github://cofferdam/*");
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let closed = format!("localhost:{port}");
        let bytes = package::guest_package("probe", &[upstream.grant(), format!("http://{closed}")]);
        run(home.install(&bytes, &signer)).unwrap();
        let config = format!("[network]\nallow_private = [\"{}\", \"{closed}\"]\n", upstream.host_port());
        fs::write(home.path().join("config.toml"), config).unwrap();
        Self { home, upstream, closed, hash: Digest::sha256(&bytes).to_string() }
    }

    /// Writes the action `name`: these inputs and steps, with the probe required and all of it allowed.
    pub(super) fn action(&self, name: &str, rest: &str) {
        self.action_with(name, "", rest);
    }

    /// The same, with more at the top.
    pub(super) fn action_with(&self, name: &str, top: &str, rest: &str) {
        let Self { hash, closed, .. } = self;
        let hosts = format!("[\"{}\", \"http://{closed}\"]", self.upstream.grant());
        let operations = "[\"fetch\", \"post\", \"order\", \"sleep\", \"fetch_all\", \"big_result\", \
                          \"leave_behind\"]";
        let text = format!(
            "+++\nname = \"{name}\"\nversion = \"1.0.0\"\n{top}\n[[requires.connectors]]\n\
             name = \"github://cofferdam/probe\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n\
             capabilities = {{ operations = {operations}, hosts = {hosts} }}\n{rest}\n+++\nA test.\n"
        );
        write(self.home.path(), name, &text);
    }

    pub(super) fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// The number of requests for a path.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.upstream.seen(path).len()
    }
}

/// Puts an action's file where actions are.
pub(crate) fn write(home: &Path, name: &str, text: &str) {
    let dir = home.join("actions");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).unwrap();
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(dir.join(format!("{name}.md"))).unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
}

/// An input that is a text and must be given.
pub(super) fn input(name: &str) -> String {
    format!("[[inputs]]\nname = \"{name}\"\ntype = \"string\"\ndescription = \"A text.\"\n")
}

/// A step of the probe, with more of it.
pub(super) fn step(id: &str, op: &str, inputs: &str, more: &str) -> String {
    format!(
        "[[execute]]\nid = \"{id}\"\nconnector = \"github://cofferdam/probe\"\nop = \"{op}\"\ninputs = {{ {inputs} }}\n{more}\n"
    )
}

/// One test's host, with a separate clock that skips waits.
pub(super) struct Stage {
    pub(super) clock: Arc<ManualClock>,
    pub(super) host: Host,
    pub(super) ground: &'static ActionHome,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(super) fn with(configure: impl FnOnce(HostBuilder) -> HostBuilder) -> Self {
        let (clock, ground) = (ManualClock::new(), &*GROUND);
        let mut builder = configure(ground.home.builder_at(&clock));
        for host_port in [ground.upstream.host_port(), ground.closed.clone()] {
            builder = builder.allow_private(host_port);
        }
        Self { clock, host: builder.build().unwrap(), ground }
    }

    /// A URL of the server.
    pub(super) fn url(&self, path: &str) -> String {
        self.ground.upstream.url(path)
    }

    pub(super) fn asked(&self, path: &str) -> usize {
        self.ground.asked(path)
    }

    /// A step that gets a path.
    pub(super) fn fetch(&self, id: &str, path: &str, more: &str) -> String {
        step(id, "fetch", &format!("url = \"{}\"", self.url(path)), more)
    }

    /// A step that posts to a path, which is not to be repeated.
    pub(super) fn post(&self, id: &str, path: &str, body: &str) -> String {
        step(id, "post", &format!("url = \"{}\", body = \"{body}\"", self.url(path)), "")
    }

    pub(super) fn run(&self, name: &str, args: Value) -> (Result<ActionValue, Error>, ActionReport) {
        self.asks(name, RunRequest::new(args))
    }

    pub(super) fn asks(&self, name: &str, asked: RunRequest) -> (Result<ActionValue, Error>, ActionReport) {
        let ActionResult { outcome, report } = run(self.host.run_action(name, asked));
        (outcome, report)
    }
}

/// The status of each step.
pub(super) fn statuses(report: &ActionReport) -> Vec<&'static str> {
    report.steps.iter().map(|step| step.status.name()).collect()
}
