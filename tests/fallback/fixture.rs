//! Connectors, two upstream servers, and hosts over them that skip their waits.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use cofferdam::{Call, ConnectorRef, Fallback, Host};
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_test_support::{Home, ManualClock, ReceivedRequest, Signer, Upstream, connector, package};
use serde_json::json;

use crate::COFFERDAM;
use crate::shared_host::run;

/// Shared by all tests, so that it is compiled once: connectors `a` and `b`, granted both servers.
pub(super) struct FallbackHome {
    pub(super) home: Home,
    signer: Signer,
    pub(super) a: Upstream,
    pub(super) b: Upstream,
    /// A port at which no server listens.
    closed: u16,
}

static GROUND: LazyLock<FallbackHome> = LazyLock::new(|| {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chain");
    std::fs::create_dir_all(&base).unwrap();
    let (home, signer) = (Home::shared(COFFERDAM, &base), Signer::new());
    home.trust(&signer.public(), "github://acme/*");
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let ground = FallbackHome { home, signer, a: Upstream::start(), b: Upstream::start(), closed };
    ground.install("a");
    ground.install("b");
    ground
});

impl FallbackHome {
    /// The probe under another name. It may `post` again and again, and `post_bytes` only once.
    fn install(&self, name: &str) {
        self.install_with(name, "");
    }

    /// The same, with more in its manifest.
    pub(super) fn install_with(&self, name: &str, more: &str) {
        let manifest = package::guest_manifest("probe")
            .replace("cofferdam/probe", &format!("acme/{name}"))
            .replace("post = \"not_idempotent\"\n", "");
        let closed = format!("http://localhost:{}", self.closed);
        let manifest = package::with_hosts(
            &manifest,
            &[self.a.grant(), self.b.grant(), closed, "api.acme.example:443".into()],
        );
        let bytes = package::pack(&package::guest("probe"), &(manifest + more));
        run(self.home.install(&bytes, &self.signer)).unwrap();
    }
}

/// One test's host, with a separate clock.
pub(super) struct Stage {
    pub(super) clock: Arc<ManualClock>,
    pub(super) host: Host,
    pub(super) ground: &'static FallbackHome,
}

/// One more listener next to the clock.
struct Also<F>(F);

impl<F: Fn(&EventKind<'_>) + Send + Sync + 'static> Listener for Also<F> {
    fn event(&self, event: &Event<'_>) {
        (self.0)(&event.kind);
    }
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with_listener(|_, _| {})
    }

    /// Another listener next to the clock.
    pub(super) fn with_listener(
        listener: impl Fn(&EventKind<'_>, &'static FallbackHome) + Send + Sync + 'static,
    ) -> Self {
        let (clock, ground) = (ManualClock::new(), &*GROUND);
        let also = Also(move |step: &EventKind<'_>| listener(step, ground));
        let mut builder = ground.home.builder_at(&clock).listener(Arc::new(also));
        for host_port in [ground.a.host_port(), ground.b.host_port(), format!("localhost:{}", ground.closed)]
        {
            builder = builder.allow_private(host_port);
        }
        Self { clock, host: builder.build().unwrap(), ground }
    }

    /// A URL of the one server.
    pub(super) fn a(&self, path: &str) -> String {
        self.ground.a.url(path)
    }

    /// A URL of the other server.
    pub(super) fn b(&self, path: &str) -> String {
        self.ground.b.url(path)
    }

    /// A URL at which no server listens.
    pub(super) fn nowhere(&self) -> String {
        format!("http://localhost:{}/", self.ground.closed)
    }

    pub(super) fn seen_a(&self, path: &str) -> Vec<ReceivedRequest> {
        self.ground.a.seen(path)
    }

    pub(super) fn seen_b(&self, path: &str) -> Vec<ReceivedRequest> {
        self.ground.b.seen(path)
    }

    pub(super) fn asked_a(&self, path: &str) -> usize {
        self.seen_a(path).len()
    }

    pub(super) fn asked_b(&self, path: &str) -> usize {
        self.seen_b(path).len()
    }

    /// The call without retries.
    pub(super) fn at_once(&self, call: Call) -> Call {
        call.retry(RetryProfile::named("none").unwrap())
    }

    pub(super) fn install(&self, name: &str) {
        self.ground.install(name);
    }
}

impl FallbackHome {
    /// Removes a connector, as another process would.
    pub(super) fn remove(&self, name: &str) {
        self.home.host().remove(&other(name)).unwrap();
    }
}

/// A connector of the stage.
pub(super) fn other(name: &str) -> ConnectorRef {
    connector(&format!("github://acme/{name}@0.1.0"))
}

/// A call that gets a URL.
pub(super) fn ask(name: &str, url: String) -> Call {
    Call::new(other(name), "fetch", json!({"url": url}))
}

/// A fallback with another URL.
pub(super) fn fallback(name: &str, url: String) -> Fallback {
    let args = json!({"url": url}).as_object().unwrap().clone();
    Fallback::new(other(name), "fetch").with_args(args)
}
