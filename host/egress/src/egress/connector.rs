//! Opens a connection to a target: looks the name up once, checks every address, and connects to a checked
//! one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::RequestPhase;
use cofferdam_model::manifest::UrlScheme;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::RequestTarget;
use super::connection::Http1Connection;
use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::multiplexed::H2Connection;
use super::policy::EgressPolicy;
use super::progress::ConnectProgress;
use super::resolve::{Resolve, ResolveError};
use super::stream::CountingIo;
use super::tls::{ConnectorTls, H2, NoRoots, Tls};

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
pub(super) struct Connector {
    tls: Arc<Tls>,
    own_tls: OnceCell<ConnectorTls>,
    resolver: Arc<dyn Resolve>,
    lookups: Arc<Semaphore>,
}

/// A new connection on which nothing was sent yet.
pub(super) enum OpenedConnection {
    Http1(Http1Connection),
    Http2(H2Connection),
}

impl Connector {
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
        progress: &ConnectProgress,
    ) -> Result<OpenedConnection, SendError> {
        let late = |phase| move |_| fault(phase, code::TIMEOUT);
        progress.begin(RequestPhase::Dns);
        let resolved = timeout_at(deadline, self.look_up(target)).await;
        let addresses = checked(policy, target, resolved.map_err(late(RequestPhase::Dns))?)?;
        progress.begin(RequestPhase::Connect);
        let tcp =
            timeout_at(deadline, first_to_connect(&addresses)).await.map_err(late(RequestPhase::Connect))?;
        let tcp = tcp.map_err(|error| fault(RequestPhase::Connect, classify(&error)))?;
        // Small requests must not wait for an acknowledgement. A failure to set the option is harmless.
        let _ = tcp.set_nodelay(true);
        if target.scheme() == UrlScheme::Http {
            return Http1Connection::open(CountingIo::plain(tcp)).await.map(OpenedConnection::Http1);
        }
        progress.begin(RequestPhase::Tls);
        let secure =
            timeout_at(deadline, self.secure(target, tcp)).await.map_err(late(RequestPhase::Tls))??;
        let http2 = secure.get_ref().1.alpn_protocol() == Some(H2);
        let stream = CountingIo::buffering(secure);
        match http2 {
            true => H2Connection::open(stream).await.map(OpenedConnection::Http2),
            false => Http1Connection::open(stream).await.map(OpenedConnection::Http1),
        }
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

/// Returns the addresses that may be connected to, in the order of the response.
///
/// A response that mixes public and private addresses is reduced to its public ones. If none remains, the
/// denial of its first address is returned.
fn checked(
    policy: &EgressPolicy,
    target: &RequestTarget,
    answer: Result<Vec<IpAddr>, ResolveError>,
) -> Result<Vec<SocketAddr>, SendError> {
    let answer = answer.map_err(|error| match error {
        ResolveError::NotFound => fault(RequestPhase::Dns, code::DNS_NOT_FOUND),
        ResolveError::Failed => fault(RequestPhase::Dns, code::DNS_FAILED),
    })?;
    let (mut addresses, mut refused) = (Vec::new(), None);
    for ip in answer {
        let address = SocketAddr::new(ip, target.port());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
    use super::*;
    use cofferdam_model::manifest::HostGrant;

    fn check(answer: &[IpAddr]) -> Result<Vec<SocketAddr>, SendError> {
        let policy = EgressPolicy::new(&[HostGrant::parse("service.test:443").unwrap()], &[]);
        let target = policy.decide(&"https://service.test".parse().unwrap(), None).unwrap();
        checked(&policy, &target, Ok(answer.to_vec()))
    }

    #[test]
    fn row_87_a_mixed_answer_is_cut_to_its_public_addresses() {
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
}
