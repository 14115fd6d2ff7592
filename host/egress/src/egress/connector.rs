//! Opens a connection to a target: looks the name up once, with a resolver that tests can replace, checks every
//! address, and connects to a checked one.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cofferdam_core::failure::RequestPhase;
use cofferdam_model::manifest::UrlScheme;
use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::RequestTarget;
use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::http1::{CountingIo, Http1Connection};
use super::policy::EgressPolicy;
use super::tls::{ConnectorTls, NoRoots, Tls};

/// The number of addresses that are tried for one name. No real service has a name with thousands of
/// addresses.
const ADDRESSES: usize = 16;

/// The head start of an address over the next one, so that one dead address does not cost the whole timeout
/// (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// The number of concurrent lookups of one connector. A stalled lookup cannot be interrupted everywhere: a
/// connector with stalling names waits for its own lookups and does not use up those of others.
const LOOKUPS: usize = 8;

/// Opens connections for one connector.
pub(super) struct NetworkConnector {
    tls: Arc<Tls>,
    own_tls: OnceCell<ConnectorTls>,
    resolver: Arc<dyn Resolve>,
    lookups: Arc<Semaphore>,
}

impl NetworkConnector {
    pub(super) fn new(tls: Arc<Tls>, resolver: Arc<dyn Resolve>) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        Self { tls, own_tls: OnceCell::new(), resolver, lookups }
    }

    /// Opens a connection to `target`; `deadline` limits lookup, TCP and TLS together.
    ///
    /// The certificate is checked against the very name that the policy admitted and that was looked up.
    pub(super) async fn open(
        &self,
        policy: &EgressPolicy,
        target: &RequestTarget,
        deadline: Instant,
    ) -> Result<Http1Connection, SendError> {
        let resolved = timeout_at(deadline, self.look_up(target)).await.map_err(late(RequestPhase::Dns))?;
        let port = self.resolver.connect_port(target.host(), target.port());
        let tcp = connect(policy, target, port, resolved, deadline).await?;
        // Small requests must not wait for an acknowledgement. A failure to set the option is harmless.
        let _ = tcp.set_nodelay(true);
        if target.scheme() == UrlScheme::Http {
            return Http1Connection::open(CountingIo::plain(tcp)).await;
        }
        let secure =
            timeout_at(deadline, self.secure(target, tcp)).await.map_err(late(RequestPhase::Tls))??;
        Http1Connection::open(CountingIo::buffering(secure)).await
    }

    /// Looks the name up. Cancelling leaves the lookup to end on its own; until then it counts towards the
    /// limit.
    async fn look_up(&self, target: &RequestTarget) -> Result<Vec<IpAddr>, ResolveError> {
        let lookups = Arc::clone(&self.lookups);
        let counted = lookups.acquire_owned().await.map_err(|_| ResolveError::Failed)?;
        let (resolver, host) = (Arc::clone(&self.resolver), target.host().to_owned());
        let lookup = tokio::spawn(async move {
            let answer = resolver.resolve(&host).await;
            drop(counted);
            answer
        });
        lookup.await.unwrap_or_else(|lost| match lost.try_into_panic() {
            // A panic of the resolver is a bug of the host, not a result of the network.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ResolveError::Failed),
        })
    }

    async fn secure(
        &self,
        target: &RequestTarget,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, SendError> {
        let tls = self.own_tls.get_or_try_init(|| self.tls.for_connector()).await;
        let tls = tls.map_err(|NoRoots| fault(RequestPhase::Tls, code::TLS_NO_ROOTS))?;
        let name = ServerName::try_from(target.host().to_owned())
            .map_err(|_| fault(RequestPhase::Tls, code::TLS_CERTIFICATE))?;
        let secure = TlsConnector::from(Arc::clone(&tls.config)).connect(name, tcp).await;
        secure.map_err(|error| match tls_code(&error) {
            code::TLS_UNKNOWN_ISSUER if tls.bare => fault(RequestPhase::Tls, code::TLS_NO_ROOTS),
            word => fault(RequestPhase::Tls, word),
        })
    }
}

/// Opens a TCP connection to `target`, for a client that is not a connector: looks the name up, and connects to an
/// address that `policy` admits, whether or not it grants the host. `deadline` limits both together.
///
/// # Errors
/// A denial of every address, or a network fault.
pub async fn connect_admitted(
    resolver: &dyn Resolve,
    policy: &EgressPolicy,
    target: &RequestTarget,
    deadline: Instant,
) -> Result<TcpStream, SendError> {
    let literal = target.host().trim_start_matches('[').trim_end_matches(']').parse();
    let resolved = match literal {
        Ok(address) if target.is_literal() => Ok(vec![address]),
        _ => timeout_at(deadline, resolver.resolve(target.host())).await.map_err(late(RequestPhase::Dns))?,
    };
    let port = resolver.connect_port(target.host(), target.port());
    connect(policy, target, port, resolved, deadline).await
}

/// Connects to an admitted one of the resolved addresses.
async fn connect(
    policy: &EgressPolicy,
    target: &RequestTarget,
    port: u16,
    resolved: Result<Vec<IpAddr>, ResolveError>,
    deadline: Instant,
) -> Result<TcpStream, SendError> {
    let addresses = checked(policy, target, port, resolved)?;
    let tcp =
        timeout_at(deadline, first_to_connect(&addresses)).await.map_err(late(RequestPhase::Connect))?;
    tcp.map_err(|error| fault(RequestPhase::Connect, classify(&error)))
}

/// Returns the fault of a phase that was not over in time.
fn late(phase: RequestPhase) -> impl FnOnce(Elapsed) -> SendError {
    move |_| fault(phase, code::TIMEOUT)
}

fn fault(phase: RequestPhase, code: &'static str) -> SendError {
    SendError::Fault(NetworkFaultParts { phase, code, request_sent: false })
}

/// Bytes that are not TLS fail the handshake, whichever error their reader returns.
fn tls_code(error: &io::Error) -> &'static str {
    match classify(error) {
        code::MALFORMED_RESPONSE | code::IO => code::TLS_HANDSHAKE,
        word => word,
    }
}

/// Returns the addresses that may be connected to, each with `port`, in the order of the response.
///
/// A response that mixes public and private addresses is reduced to its public ones. If none remains, the
/// denial of its first address is returned.
fn checked(
    policy: &EgressPolicy,
    target: &RequestTarget,
    port: u16,
    answer: Result<Vec<IpAddr>, ResolveError>,
) -> Result<Vec<SocketAddr>, SendError> {
    let answer = answer.map_err(|error| match error {
        ResolveError::NotFound => fault(RequestPhase::Dns, code::DNS_NOT_FOUND),
        ResolveError::Failed => fault(RequestPhase::Dns, code::DNS_FAILED),
    })?;
    let (mut addresses, mut refused) = (Vec::new(), None);
    for ip in answer {
        let address = SocketAddr::new(ip, port);
        match policy.admit_address(target, ip) {
            Ok(()) if addresses.contains(&address) => {}
            Ok(()) => addresses.push(address),
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
        if addresses.len() == ADDRESSES {
            break;
        }
    }
    match (addresses.is_empty(), refused) {
        (false, _) => Ok(addresses),
        (true, Some(refusal)) => Err(SendError::Refused(refusal)),
        (true, None) => Err(fault(RequestPhase::Dns, code::DNS_NOT_FOUND)),
    }
}

/// Tries the addresses in order, each with a head start. Dropping the future cancels all of them.
async fn first_to_connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut first_error = None;
    let mut waiting = addresses.iter();
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(TcpStream::connect(*address));
        }
        let ended = tokio::select! {
            ended = attempts.join_next() => ended,
            () = sleep(HEAD_START), if waiting.len() > 0 => continue,
        };
        let error = match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => error,
            Some(Err(broken)) => io::Error::other(broken),
            None => return Err(first_error.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())),
        };
        first_error = first_error.or(Some(error));
    }
}

/// The number of lookups that may occupy threads at once. A lookup cannot be interrupted (`getaddrinfo`
/// blocks for half a minute on a dead server), so stalling names could otherwise take every blocking thread.
/// Each connector has 8 of them at most, so that many connectors with stalling names are needed to delay
/// others.
const SYSTEM_LOOKUPS: usize = 128;

/// A running lookup.
pub type ResolvedAddresses<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Resolves a name to its addresses.
///
/// The result is not trusted: the policy checks every address before a connection to it is opened.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses of `host`, best first. The caller bounds the wait.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a>;

    /// Returns the port to connect to for `port` of `host`. Default: `port` itself. The development tools map a service
    /// to a local server this way; the grants, the certificate and the request are still those of `host:port`.
    fn connect_port(&self, _host: &str, port: u16) -> u16 {
        port
    }
}

/// The reason why a name has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name does not exist, or has no address.
    #[error("the name does not exist, or has no address")]
    NotFound,
    /// The lookup failed temporarily.
    #[error("the name could not be looked up")]
    Failed,
}

/// The machine's own resolver (`getaddrinfo`: hosts file, DNS, and other configured sources).
#[derive(Debug, Clone)]
pub struct SystemResolver {
    running: Arc<Semaphore>,
}

impl Default for SystemResolver {
    /// Allows at most 128 lookups at once; further ones wait.
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(SYSTEM_LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        let running = Arc::clone(&self.running);
        let host = host.to_owned();
        Box::pin(async move {
            let permit = running.acquire_owned().await.map_err(|_| ResolveError::Failed)?;
            // The permit belongs to the thread: a cancelled caller does not free a thread that is still
            // blocked.
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = look_up(&host);
                drop(permit);
                addresses
            });
            lookup.await.map_err(|_| ResolveError::Failed)?
        })
    }
}

fn look_up(host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let answers = getaddrinfo(Some(host), None, Some(hints)).map_err(|error| match error.kind() {
        LookupErrorKind::NoName | LookupErrorKind::NoData => ResolveError::NotFound,
        _ => ResolveError::Failed,
    })?;
    Ok(answers.filter_map(Result::ok).map(|answer| answer.sockaddr.ip()).collect())
}

/// The number of idle connections of one connector, all targets together. If it were lower than the number
/// of its concurrent calls, each call above it would connect again.
const CONNECTIONS: usize = 128;

/// The time that a connection stays idle. Servers drop idle ones after 5 to 75 seconds; the shorter the time,
/// the rarer a request is written to a connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The properties that two requests must have in common to use the same connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolKey {
    pub(super) target: RequestTarget,
    /// The bindings and their version; see [`Authorization`](super::Authorization).
    pub(super) identity: Option<Arc<str>>,
}

/// The idle connections of one connector.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool(Mutex<PoolState>);

#[derive(Debug, Default)]
struct PoolState {
    connections: Vec<(PoolKey, Instant, Http1Connection)>,
    reaper_running: bool,
}

impl PoolState {
    fn discard_stale(&mut self) {
        let now = Instant::now();
        self.connections.retain(|(_, since, connection)| {
            now.saturating_duration_since(*since) < IDLE_TIMEOUT && !connection.sender.is_closed()
        });
    }
}

impl ConnectionPool {
    /// Returns the connection of this key that was used last, which may be closed by now.
    pub(super) fn take(&self, key: &PoolKey) -> Option<Http1Connection> {
        let mut idle = self.lock();
        idle.discard_stale();
        let position = idle.connections.iter().rposition(|(of, ..)| of == key)?;
        Some(idle.connections.remove(position).2)
    }

    /// Takes back a connection whose request was completely sent and whose response was completely read.
    pub(super) fn put(self: &Arc<Self>, key: PoolKey, connection: Http1Connection) {
        let mut idle = self.lock();
        idle.discard_stale();
        if idle.connections.len() >= CONNECTIONS {
            idle.connections.remove(0);
        }
        idle.connections.push((key, Instant::now(), connection));
        // Without a runtime there is no reaper; then the next take or put reaps.
        if !idle.reaper_running
            && let Ok(runtime) = Handle::try_current()
        {
            idle.reaper_running = true;
            runtime.spawn(reap(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that were idle for too long, until none is left or the pool is gone.
async fn reap(pool: Weak<ConnectionPool>) {
    loop {
        sleep(IDLE_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        idle.discard_stale();
        if idle.connections.is_empty() {
            idle.reaper_running = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

    use cofferdam_model::manifest::HostGrant;

    use super::*;

    fn check(answer: &[IpAddr]) -> Result<Vec<SocketAddr>, SendError> {
        let policy = EgressPolicy::new(&[HostGrant::parse("service.test:443").unwrap()], &[]);
        let target = policy.decide(&"https://service.test".parse().unwrap(), None).unwrap();
        checked(&policy, &target, target.port(), Ok(answer.to_vec()))
    }

    #[test]
    fn mixed_addresses_are_filtered_to_public_ones() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mixed = [ip("10.0.0.1"), ip("8.8.8.8"), ip("::1"), ip("8.8.8.8"), ip("2606:4700::1")];
        let public: Vec<SocketAddr> =
            ["8.8.8.8:443", "[2606:4700::1]:443"].map(|text| text.parse().unwrap()).into();
        assert_eq!(check(&mixed).unwrap(), public);
        match check(&[ip("10.0.0.1"), ip("127.0.0.1")]) {
            Err(SendError::Refused(refusal)) => assert_eq!(refusal.address(), Some(ip("10.0.0.1"))),
            other => panic!("{other:?}"),
        }
        let thousands: Vec<_> =
            (0..10_000_u32).map(|n| IpAddr::from((0x0808_0000 + n).to_be_bytes())).collect();
        assert_eq!(check(&thousands).unwrap().len(), ADDRESSES);
    }

    #[tokio::test]
    async fn the_machine_knows_itself_and_no_such_name() {
        let resolver = SystemResolver::default();
        let own = resolver.resolve("localhost").await;
        assert!(
            own.as_ref().is_ok_and(|addresses| addresses.iter().any(std::net::IpAddr::is_loopback)),
            "{own:?}"
        );
        // The error depends on whether this machine reaches a DNS server.
        let none = resolver.resolve("no-such-name.invalid").await;
        assert!(matches!(none, Err(ResolveError::NotFound | ResolveError::Failed)), "{none:?}");
    }
}
