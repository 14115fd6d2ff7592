//! One host with the example guests, one upstream server and one runtime, shared by the tests that only call.

use std::sync::LazyLock;

use cofferdam::{Call, ConnectorRef, Error, Failure, Host, HostErrorKind};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, Upstream, connector, log_capture, package};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

use crate::COFFERDAM;

/// The runtime of every asynchronous test: pooled connections outlive a single test.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// Runs `future` to its end.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// Begins `future`, and leaves it to itself.
pub(crate) fn begin<F: Future<Output: Send> + Send + 'static>(
    future: F,
) -> tokio::task::JoinHandle<F::Output> {
    RUNTIME.spawn(future)
}

/// The host and what is around it.
pub(crate) struct SharedHost {
    pub(crate) upstream: Upstream,
    /// A server that no connector is granted.
    pub(crate) elsewhere: Upstream,
    /// A port that the guests are granted, and at which no server listens.
    pub(crate) closed_port: u16,
    _closed: TcpSocket,
    pub(crate) home: Home,
    pub(crate) host: Host,
    pub(crate) packages: Vec<(&'static str, Vec<u8>)>,
}

/// The example guests, with whether they are granted the upstream server. Those that are not keep the hosts of their
/// manifests, and meet them in `services`.
pub(crate) const GUESTS: [(&str, bool); 8] = [
    ("hello", false),
    ("conformance", false),
    ("github-issues", true),
    ("github-openapi", true),
    ("probe", true),
    ("s3", false),
    ("slack", false),
    ("stripe", false),
];

static WORLD: LazyLock<SharedHost> = LazyLock::new(|| {
    log_capture::catch();
    let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
    let home = Home::shared(COFFERDAM, std::path::Path::new(env!("CARGO_TARGET_TMPDIR")));
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let (closed, closed_port) = closed_port();
    let mut packages = Vec::new();
    for (name, network) in GUESTS {
        let hosts = [upstream.grant(), format!("http://localhost:{closed_port}")];
        packages.push((name, package::guest_package(name, if network { &hosts } else { &[] })));
    }
    let host = home
        .builder()
        .allow_private(upstream.host_port())
        .allow_private(format!("localhost:{closed_port}"))
        .build()
        .unwrap();
    for (name, bytes) in &packages {
        let install = host.install_accepted(bytes.clone(), Some(signer.sign(bytes)), Default::default());
        run(install).unwrap_or_else(|error| panic!("{name}: {}", serde_json::to_string(&error).unwrap()));
    }
    SharedHost { upstream, elsewhere, closed_port, _closed: closed, home, host, packages }
});

/// The world.
pub(crate) fn shared_host() -> &'static SharedHost {
    &WORLD
}

impl SharedHost {
    /// Calls an operation of an example guest.
    pub(crate) fn call(&self, guest: &str, op: &str, args: Value) -> Result<Value, Error> {
        run(self.host.call(&example(guest), op, args))
    }

    /// Calls an operation that has to succeed.
    #[track_caller]
    pub(crate) fn value(&self, guest: &str, op: &str, args: Value) -> Value {
        let shown = args.to_string();
        self.call(guest, op, args).unwrap_or_else(|error| {
            panic!("{guest} {op} {shown}: {}", serde_json::to_string_pretty(&error).unwrap())
        })
    }

    /// Calls an operation that has to fail.
    #[track_caller]
    pub(crate) fn failure(&self, guest: &str, op: &str, args: Value) -> Failure {
        failed(self.call(guest, op, args))
    }

    /// Calls an operation that has to fail, within its own limits.
    #[track_caller]
    pub(crate) fn failure_within(
        &self,
        guest: &str,
        op: &str,
        args: Value,
        (fuel, wall_time, memory): (Option<u64>, Option<&str>, Option<&str>),
    ) -> Failure {
        let limits = cofferdam_core::limits::LimitRequest::parse(fuel, wall_time, memory).unwrap();
        failed(run(self.host.run(Call::new(example(guest), op, args).limits(limits))).outcome)
    }
}

/// An example guest, at the version in its manifest.
pub(crate) fn example(guest: &str) -> ConnectorRef {
    connector(&format!("github://cofferdam/{guest}@0.1.0"))
}

/// The failure of a call.
#[track_caller]
pub(crate) fn failed(outcome: Result<Value, Error>) -> Failure {
    match outcome {
        Err(Error::Failure(failure)) => failure,
        Err(Error::Host(error)) => panic!("not taken up: {}", serde_json::to_string_pretty(&error).unwrap()),
        Ok(value) => panic!("a value: {value}"),
    }
}

/// Returns the kind of an error of the host.
pub(crate) fn host_kind(error: &Error) -> Option<HostErrorKind> {
    match error {
        Error::Failure(_) => None,
        Error::Host(error) => Some(error.kind()),
    }
}

/// The host's own error of a request.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> cofferdam::HostError {
    match outcome {
        Err(Error::Host(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

/// A port at which no server listens: the socket is bound, so that no other server gets the port, and refuses
/// connections.
fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}
