//! The socket: bound once, accepting until told to end, and shut down in an order that loses no answer.

use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use cofferdam_core::error::{HostError, HostErrorKind};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{self, ServerContext};
use super::connection_limit::ConnectionLimiter;
use super::settings::ServerSettings;
use super::shutdown::Shutdown;

/// The time for cancelled calls to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause of the listener if the system has no more sockets.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A bound socket, to which clients can connect already.
#[derive(Debug)]
pub struct BoundServer {
    socket: TcpListener,
    address: SocketAddr,
    settings: ServerSettings,
}

impl BoundServer {
    /// Binds the socket.
    ///
    /// # Errors
    /// `configuration`: it is reachable from outside and has no token or no TLS; or the address is not
    /// available.
    pub async fn bind(settings: ServerSettings) -> Result<Self, HostError> {
        settings.check()?;
        let unusable = |error: std::io::Error| {
            let message = format!("The server cannot listen at {}: {error}.", settings.address);
            HostError::new(HostErrorKind::Configuration, message)
                .with_hint("Choose another port; with port 0 the system chooses one that is free.")
                .with_source(error)
        };
        let socket = TcpListener::bind(settings.address).await.map_err(unusable)?;
        let address = socket.local_addr().map_err(unusable)?;
        Ok(Self { socket, address, settings })
    }

    /// Returns its address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the beginning of its URLs, like `http://127.0.0.1:4100`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves `app` until `shutdown` begins. Then it accepts nothing new, lets running requests continue for
    /// the grace period, has them cancelled, and waits until that is recorded. Returns when no connection is
    /// left.
    ///
    /// Handlers that run calls have to end them when [`Shutdown::cancelled`] is ready.
    pub async fn serve(self, app: Router, shutdown: Shutdown) {
        let Self { socket, settings, .. } = self;
        let places = ConnectionLimiter::new(settings.connections);
        let shared = Arc::new(ServerContext {
            app,
            access: settings.access,
            tls: settings.tls,
            io_timeout: settings.io_timeout,
            budget: settings.budget,
            has_sessions: settings.has_sessions,
            readiness: settings.readiness,
            own_access: settings.own_access,
            salt: RandomState::new(),
            shutdown: shutdown.clone(),
        });
        let mut connections = JoinSet::new();
        loop {
            // Capacity first: a client that cannot be served yet waits in the system's queue and costs
            // nothing here.
            tokio::select! {
                biased;
                () = shutdown.begun() => break,
                () = places.wait_for_capacity() => {}
            }
            let accepted = tokio::select! {
                biased;
                () = shutdown.begun() => break,
                accepted = socket.accept() => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection::serve(Arc::clone(&shared), stream, places.acquire()));
                }
                Err(error) => {
                    tracing::warn!(target: "cofferdam::server", %error, "a connection could not be accepted");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
        drop(socket);
        let ended = async |connections: &mut JoinSet<()>| while connections.join_next().await.is_some() {};
        if timeout(settings.grace, ended(&mut connections)).await.is_err() {
            shutdown.cancel();
            if timeout(DRAIN_TIMEOUT, ended(&mut connections)).await.is_err() {
                tracing::warn!(
                    target: "cofferdam::server", connections = connections.len(), "connections were cut"
                );
            }
        }
        connections.shutdown().await;
    }
}

/// The server's certificate and key for TLS 1.2 and 1.3.
#[derive(Debug, Clone)]
pub struct ServerTls(pub(super) Arc<ServerConfig>);

impl ServerTls {
    /// Loads a certificate with its chain, and its private key, both as PEM text.
    ///
    /// # Errors
    /// `configuration`: no certificate, no key, or two that do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, HostError> {
        let wrong = |message: &str, hint: &str| {
            HostError::new(HostErrorKind::Configuration, message.to_owned()).with_hint(hint)
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
            wrong(
                "The certificate file has no certificate.",
                "Give a PEM file with -----BEGIN CERTIFICATE-----.",
            )
        })?;
        // The error does not describe the flaw of a key.
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            wrong("The key file has no private key.", "Give a PEM file with -----BEGIN PRIVATE KEY-----.")
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unusable = |error: rustls::Error| {
            wrong(
                "The certificate and the key cannot be used.",
                "Give a certificate and the key that it is for.",
            )
            .with_source(error)
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}
