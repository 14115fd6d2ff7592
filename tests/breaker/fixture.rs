//! A home with the probe, which may reach several servers; each test takes one of them, and a separate clock.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cofferdam::{Call, Error, Failure, Host, HostBuilder};
use cofferdam_egress::egress::HostPort;
use cofferdam_egress::resilience::{CircuitView, RetryProfile};
use cofferdam_test_support::{Home, ManualClock, Signer, Upstream, log_capture, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{example, failed, run};

/// A name that only the resolvers of tests know.
pub(crate) const NAMED: &str = "service.test:80";

/// One more test than there are servers panics with this message.
const SERVERS: usize = 32;

struct Shared {
    home: Home,
    upstreams: Vec<Upstream>,
    taken: AtomicUsize,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    log_capture::catch();
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("breaker");
    std::fs::create_dir_all(&base).unwrap();
    let (home, signer) = (Home::shared(COFFERDAM, &base), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let upstreams: Vec<_> = (0..SERVERS).map(|_| Upstream::start()).collect();
    let mut grants: Vec<_> = upstreams.iter().map(Upstream::grant).collect();
    grants.push(format!("http://{NAMED}"));
    run(home.install(&package::guest_package("probe", &grants), &signer)).unwrap();
    Shared { home, upstreams, taken: AtomicUsize::new(0) }
});

/// One test's server, clock and host. The retry profile is `failover`: three attempts, and a breaker that opens at
/// the first call that fails.
pub(crate) struct Stage {
    pub(crate) upstream: &'static Upstream,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) host: Host,
    /// Its home, if it is not the shared one.
    pub(crate) own_home: Option<Home>,
}

pub(crate) fn stage() -> Stage {
    stage_with(|builder| builder)
}

pub(crate) fn stage_with(configure: impl FnOnce(HostBuilder) -> HostBuilder) -> Stage {
    let taken = SHARED.taken.fetch_add(1, Ordering::SeqCst);
    let upstream = SHARED.upstreams.get(taken).expect("a server for each test: raise SERVERS");
    let clock = ManualClock::new();
    let builder = SHARED.home.builder_at(&clock).allow_private(upstream.host_port());
    Stage { upstream, host: configure(builder).build().unwrap(), clock, own_home: None }
}

/// A stage with a home, and therefore circuits, of its own.
pub(crate) fn stage_alone() -> Stage {
    let stage = stage();
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[stage.upstream.grant()]), &signer)).unwrap();
    let builder = home.builder_at(&stage.clock).allow_private(stage.upstream.host_port());
    Stage { host: builder.build().unwrap(), own_home: Some(home), ..stage }
}

impl Stage {
    pub(crate) fn home(&self) -> &Home {
        self.own_home.as_ref().unwrap_or(&SHARED.home)
    }

    /// The address of its server.
    pub(crate) fn host_port(&self) -> HostPort {
        HostPort::parse(&self.upstream.host_port()).unwrap()
    }

    /// A call that gets `path`.
    pub(crate) fn fetch(&self, path: &str) -> Call {
        self.call("fetch", json!({"url": self.upstream.url(path)}))
    }

    pub(crate) fn call(&self, op: &str, args: Value) -> Call {
        Call::new(example("probe"), op, args).retry(RetryProfile::named("failover").unwrap())
    }

    pub(crate) fn run(&self, call: Call) -> Result<Value, Error> {
        run(self.host.run(call)).outcome
    }

    #[track_caller]
    pub(crate) fn fails(&self, path: &str) -> Failure {
        failed(self.run(self.fetch(path)))
    }

    /// The call was not sent, since the circuit is in this state.
    #[track_caller]
    pub(crate) fn is_refused(&self, path: &str, state: &str) -> Failure {
        let failure = self.fails(path);
        assert_eq!(failure.code(), "circuit_open", "{failure}");
        assert_eq!(failure.details()["circuit"]["state"], state, "{failure}");
        failure
    }

    #[track_caller]
    pub(crate) fn answers(&self) {
        self.run(self.fetch("/text/well")).unwrap_or_else(|error| panic!("{error}"));
    }

    /// The requests whose path begins with this.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.upstream.seen(path).len()
    }

    /// The circuit of its server, where that has something to remember.
    pub(crate) fn circuit(&self) -> Option<CircuitView> {
        self.circuit_at(&self.upstream.host_port())
    }

    pub(crate) fn circuit_at(&self, host: &str) -> Option<CircuitView> {
        self.host.circuits().unwrap().into_iter().find(|circuit| circuit.host == host)
    }

    pub(crate) fn state(&self) -> &'static str {
        self.circuit().map_or("closed", |circuit| circuit.state)
    }

    pub(crate) fn skip(&self, seconds: u64) {
        self.clock.skip(Duration::from_secs(seconds));
    }

    /// The changes of circuits so far: from, to, because of.
    pub(crate) fn changes(&self) -> Vec<(String, String, Value)> {
        let steps = self.clock.steps().into_iter().filter(|step| step.name == "circuit_changed");
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        steps
            .map(|step| (word(&step.facts["from"]), word(&step.facts["to"]), step.facts["cause"].clone()))
            .collect()
    }
}
