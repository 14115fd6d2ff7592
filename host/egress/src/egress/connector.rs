//! From a target to an open connection: look up once, check every answer, connect to what was checked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::Phase;
use cofferdam_model::manifest::Scheme;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::Target;
use super::connection::Connection;
use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::multiplexed::Multiplexed;
use super::policy::Policy;
use super::progress::Progress;
use super::resolve::{Resolve, ResolveError};
use super::stream::Metered;
use super::tls::{ConnectorTls, H2, NoRoots, Tls};

/// Addresses that are tried for one name. A name with thousands of answers is no name of a service.
const ADDRESSES: usize = 16;

/// The head start of an address over the next one, so that one dead address does not cost the whole
/// timeout (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// The lookups of one connector that may be under way. One that stalls cannot be interrupted everywhere: a
/// connector whose names stall waits for its own, and takes nobody else's.
const LOOKUPS: usize = 8;

/// Opens connections for one connector.
pub(super) struct Connector {
    tls: Arc<Tls>,
    own_tls: OnceCell<ConnectorTls>,
    resolver: Arc<dyn Resolve>,
    lookups: Arc<Semaphore>,
}

/// A new connection, which spoke nothing yet.
pub(super) enum Opened {
    Http1(Connection),
    Http2(Multiplexed),
}

impl Connector {
    pub(super) fn new(tls: Arc<Tls>, resolver: Arc<dyn Resolve>) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        Self { tls, own_tls: OnceCell::new(), resolver, lookups }
    }

    /// A new connection to `target`; lookup, TCP and TLS together have until `deadline`.
    ///
    /// The certificate is checked against the very name that the policy admitted and that was looked up.
    pub(super) async fn open(
        &self,
        policy: &Policy,
        target: &Target,
        deadline: Instant,
        progress: &Progress,
    ) -> Result<Opened, SendError> {
        let late = |phase| move |_| fault(phase, code::TIMEOUT);
        progress.begin(Phase::Dns);
        let resolved = timeout_at(deadline, self.look_up(target)).await;
        let addresses = checked(policy, target, resolved.map_err(late(Phase::Dns))?)?;
        progress.begin(Phase::Connect);
        let tcp = timeout_at(deadline, first_to_connect(&addresses)).await.map_err(late(Phase::Connect))?;
        let tcp = tcp.map_err(|error| fault(Phase::Connect, classify(&error)))?;
        // Small requests must not wait for an acknowledgement; a socket that cannot be told is no error.
        let _ = tcp.set_nodelay(true);
        if target.scheme() == Scheme::Http {
            return Connection::open(Metered::plain(tcp)).await.map(Opened::Http1);
        }
        progress.begin(Phase::Tls);
        let secure = timeout_at(deadline, self.secure(target, tcp)).await.map_err(late(Phase::Tls))??;
        let http2 = secure.get_ref().1.alpn_protocol() == Some(H2);
        let stream = Metered::buffering(secure);
        match http2 {
            true => Multiplexed::open(stream).await.map(Opened::Http2),
            false => Connection::open(stream).await.map(Opened::Http1),
        }
    }

    /// Looks the name up. Who gives up leaves the lookup to end by itself, where it still counts.
    async fn look_up(&self, target: &Target) -> Result<Vec<IpAddr>, ResolveError> {
        let lookups = Arc::clone(&self.lookups);
        let counted = lookups.acquire_owned().await.map_err(|_| ResolveError::Failed)?;
        let (resolver, host) = (Arc::clone(&self.resolver), target.host().to_owned());
        let lookup = tokio::spawn(async move {
            let answer = resolver.resolve(&host).await;
            drop(counted);
            answer
        });
        lookup.await.unwrap_or_else(|lost| match lost.try_into_panic() {
            // A resolver that panics is the host's fault, and no answer of the network's.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ResolveError::Failed),
        })
    }

    async fn secure(&self, target: &Target, tcp: TcpStream) -> Result<TlsStream<TcpStream>, SendError> {
        let tls = self.own_tls.get_or_try_init(|| self.tls.for_connector()).await;
        let tls = tls.map_err(|NoRoots| fault(Phase::Tls, code::TLS_NO_ROOTS))?;
        let name = ServerName::try_from(target.host().to_owned())
            .map_err(|_| fault(Phase::Tls, code::TLS_CERTIFICATE))?;
        let secure = TlsConnector::from(Arc::clone(&tls.config)).connect(name, tcp).await;
        secure.map_err(|error| match tls_code(&error) {
            code::TLS_UNKNOWN_ISSUER if tls.bare => fault(Phase::Tls, code::TLS_NO_ROOTS),
            word => fault(Phase::Tls, word),
        })
    }
}

fn fault(phase: Phase, code: &'static str) -> SendError {
    SendError::Fault(NetworkFaultParts { phase, code, request_sent: false })
}

/// Bytes that are not TLS fail the handshake, whatever their reader calls them.
fn tls_code(error: &io::Error) -> &'static str {
    match classify(error) {
        code::MALFORMED_RESPONSE | code::IO => code::TLS_HANDSHAKE,
        word => word,
    }
}

/// The addresses that may be connected to, in the order of the answer.
///
/// An answer that mixes public and private addresses is cut to its public ones; one with nothing else is
/// the refusal of its first address.
fn checked(
    policy: &Policy,
    target: &Target,
    answer: Result<Vec<IpAddr>, ResolveError>,
) -> Result<Vec<SocketAddr>, SendError> {
    let answer = answer.map_err(|error| match error {
        ResolveError::NotFound => fault(Phase::Dns, code::DNS_NOT_FOUND),
        ResolveError::Failed => fault(Phase::Dns, code::DNS_FAILED),
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
        (true, None) => Err(fault(Phase::Dns, code::DNS_NOT_FOUND)),
    }
}

/// Tries the addresses in order, each with a head start; dropping it gives all of them up.
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
        let policy = Policy::new(&[HostGrant::parse("service.test:443").unwrap()], &[]);
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
