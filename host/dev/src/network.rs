//! The network that a connector under development sees: mapped services answer on the loopback interface.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use cofferdam_egress::egress::{HostPort, Resolve, ResolveError, ResolvedAddresses};
use cofferdam_runtime::host::HostBuilder;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::authority::{CertificateError, LocalAuthority};
use crate::upstream::{LocalTarget, UpstreamMapping};

/// The first byte of a TLS handshake.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// Decides whether a connection to this host and port is refused. It is asked once for each connection.
pub type RefuseConnection = Arc<dyn Fn(&str, u16) -> bool + Send + Sync>;

/// Names that resolve to local servers, and the relays that end TLS for them. The relays stop with the value.
pub struct LocalNetwork {
    authority: Arc<LocalAuthority>,
    /// The local port for each service.
    routes: HashMap<(String, u16), SocketAddr>,
    /// Resolves all other names; without it they do not exist.
    others: Option<Arc<dyn Resolve>>,
    refuses: Option<RefuseConnection>,
    /// Runs the relays, whichever runtime the host has, or none yet. Taken when it ends.
    relays: Option<Runtime>,
}

impl LocalNetwork {
    /// Creates a network in which no name exists until it is mapped.
    ///
    /// # Errors
    /// The system has no randomness for the authority's key.
    pub fn isolated() -> Result<Self, CertificateError> {
        Ok(Self::with_authority(Arc::new(LocalAuthority::new()?)))
    }

    /// Creates such a network whose services `authority` certifies.
    #[must_use]
    pub fn with_authority(authority: Arc<LocalAuthority>) -> Self {
        Self { authority, routes: HashMap::new(), others: None, refuses: None, relays: None }
    }

    /// Resolves names that are not mapped with `resolver`.
    #[must_use]
    pub fn with_others(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.others = Some(resolver);
        self
    }

    /// Refuses the connections to mapped services for which `refuses` returns true.
    #[must_use]
    pub fn refusing(mut self, refuses: RefuseConnection) -> Self {
        self.refuses = Some(refuses);
        self
    }

    /// Returns the authority that a host with this network trusts.
    #[must_use]
    pub fn authority(&self) -> &LocalAuthority {
        &self.authority
    }

    /// Lets connections to `service` reach the loopback address `local`, which speaks TLS itself if the service does.
    pub fn route(&mut self, service: &HostPort, local: SocketAddr) {
        self.routes.insert((service.host().to_owned(), service.port()), local);
    }

    /// Starts a relay for `mapping`: it ends TLS for the service and passes the bytes on to the local server. Connections
    /// without TLS are passed on as they are.
    ///
    /// # Errors
    /// No loopback port is free, the service's name cannot be certified, or no thread can be started.
    pub fn relay(&mut self, mapping: &UpstreamMapping) -> io::Result<()> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let config = self.authority.server_config(&[mapping.service().host()]).map_err(io::Error::other)?;
        self.route(mapping.service(), listener.local_addr()?);
        let relays = match &mut self.relays {
            Some(relays) => relays,
            none => none.insert(Builder::new_multi_thread().worker_threads(1).enable_all().build()?),
        };
        let _entered = relays.enter();
        let listener = TcpListener::from_std(listener)?;
        relays.spawn(accept(listener, config, mapping.target().clone()));
        Ok(())
    }

    /// Makes the host under configuration use this network.
    #[must_use]
    pub fn apply_to(&self, builder: HostBuilder) -> HostBuilder {
        let (routes, others) = (self.routes.clone(), self.others.clone());
        let resolver = LocalResolver { routes, others, refuses: self.refuses.clone() };
        let builder = builder.resolver(Arc::new(resolver)).extra_root_pem(self.authority.pem());
        self.routes.iter().fold(builder, |builder, ((host, port), local)| {
            builder.allow_private(format!("{host}:{port}={}", local.ip()))
        })
    }
}

impl Drop for LocalNetwork {
    fn drop(&mut self) {
        // A runtime must not be dropped where blocking is not allowed.
        if let Some(relays) = self.relays.take() {
            relays.shutdown_background();
        }
    }
}

impl std::fmt::Debug for LocalNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalNetwork").field("routes", &self.routes).finish_non_exhaustive()
    }
}

/// Accepts connections until the relay is dropped.
async fn accept(listener: TcpListener, config: Arc<ServerConfig>, target: LocalTarget) {
    let acceptor = TlsAcceptor::from(config);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // A connection that was reset before it was accepted is not a reason to stop.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, target) = (acceptor.clone(), target.clone());
        connections.spawn(async move { drop(relay(stream, acceptor, &target).await) });
    }
}

/// Connects to the local server first, so that the guest sees a lost connection, and not an empty response, if the
/// server is not running.
async fn relay(guest: TcpStream, acceptor: TlsAcceptor, target: &LocalTarget) -> io::Result<()> {
    let mut server = TcpStream::connect(target.address()).await?;
    let mut first = [0];
    guest.peek(&mut first).await?;
    match first {
        [TLS_HANDSHAKE] => pass_on(acceptor.accept(guest).await?, &mut server).await,
        _ => pass_on(guest, &mut server).await,
    }
}

async fn pass_on(mut guest: impl AsyncRead + AsyncWrite + Unpin, server: &mut TcpStream) -> io::Result<()> {
    copy_bidirectional(&mut guest, server).await.map(drop)
}

/// Resolves mapped services to their local address.
struct LocalResolver {
    routes: HashMap<(String, u16), SocketAddr>,
    others: Option<Arc<dyn Resolve>>,
    refuses: Option<RefuseConnection>,
}

impl LocalResolver {
    fn local(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.routes.get(&(host.to_owned(), port)).copied()
    }
}

impl Resolve for LocalResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        let local: Option<IpAddr> =
            self.routes.iter().find_map(|((name, _), local)| (name == host).then(|| local.ip()));
        match (local, &self.others) {
            (Some(local), _) => Box::pin(std::future::ready(Ok(vec![local]))),
            (None, Some(others)) => others.resolve(host),
            (None, None) => Box::pin(std::future::ready(Err(ResolveError::NotFound))),
        }
    }

    /// A port of a mapped name that is not mapped itself leads nowhere: nothing listens on port 0.
    fn connect_port(&self, host: &str, port: u16) -> u16 {
        match self.local(host, port) {
            Some(_) if self.refuses.as_ref().is_some_and(|refuses| refuses(host, port)) => 0,
            Some(local) => local.port(),
            None if self.routes.keys().any(|(name, _)| name == host) => 0,
            None => port,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_mapped_service_is_reached_over_tls_on_loopback() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("api.tickets.example:443=http://{}", server.local_addr().unwrap());
        let mut network = LocalNetwork::isolated().unwrap();
        network.relay(&url.parse().unwrap()).unwrap();
        let resolver = LocalResolver { routes: network.routes.clone(), others: None, refuses: None };
        let address = resolver.resolve("api.tickets.example").await.unwrap();
        assert_eq!(address, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        assert_eq!(resolver.resolve("other.example").await, Err(ResolveError::NotFound));
        assert_eq!(
            resolver.connect_port("api.tickets.example", 8443),
            0,
            "only the mapped port leads anywhere"
        );

        let served = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            stream.write_all(b"pong").await.unwrap();
            said
        });
        let mut roots = rustls::RootCertStore::empty();
        roots.add(network.authority.certificate()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let port = resolver.connect_port("api.tickets.example", 443);
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let name = "api.tickets.example".try_into().unwrap();
        let mut tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        tls.write_all(b"ping!").await.unwrap();
        let mut answer = [0; 4];
        tls.read_exact(&mut answer).await.unwrap();
        assert_eq!((&answer, &served.await.unwrap()), (b"pong", b"ping!"));
    }
}
