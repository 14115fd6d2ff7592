//! The socket: bound once, accepting until told to end, and ending in the order that loses no answer.

use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use cofferdam_core::error::{HostError, HostErrorKind};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{self, Shared};
use super::places::Places;
use super::settings::ServerSettings;
use super::shutdown::Shutdown;

/// How long cancelled calls have to say so.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long the listener rests where the system has no more sockets.
const REST: Duration = Duration::from_millis(100);

/// A bound socket, to which clients can connect already.
#[derive(Debug)]
pub struct Listening {
    socket: TcpListener,
    address: SocketAddr,
    settings: ServerSettings,
}

impl Listening {
    /// Binds the socket.
    ///
    /// # Errors
    /// `configuration`: others could reach it and it has no token or no TLS; or the address cannot be had.
    pub async fn bind(settings: ServerSettings) -> Result<Self, HostError> {
        settings.check()?;
        let unusable = |error: std::io::Error| {
            let message = format!("The server cannot listen at {}: {error}.", settings.address);
            HostError::new(HostErrorKind::Configuration, message)
                .hint("Choose another port; with port 0 the system chooses one that is free.")
                .because(error)
        };
        let socket = TcpListener::bind(settings.address).await.map_err(unusable)?;
        let address = socket.local_addr().map_err(unusable)?;
        Ok(Self { socket, address, settings })
    }

    /// Where it listens, with the port that it really has.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The beginning of its URLs, like `http://127.0.0.1:4100`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves `app` until `shutdown` begins; then takes nothing new, lets what runs go on for the time of grace, has
    /// it cancelled, and waits until that was said. Returns when no connection is left.
    ///
    /// Handlers that run calls have to end them when [`Shutdown::cancelled`] is ready.
    pub async fn serve(self, app: Router, shutdown: Shutdown) {
        let Self { socket, settings, .. } = self;
        let places = Places::new(settings.connections);
        let shared = Arc::new(Shared {
            app,
            access: settings.access,
            tls: settings.tls,
            patience: settings.patience,
            budget: settings.budget,
            has_sessions: settings.has_sessions,
            salt: RandomState::new(),
            shutdown: shutdown.clone(),
        });
        let mut connections = JoinSet::new();
        loop {
            // Room first: who cannot be served yet waits in the system's queue and costs nothing here.
            tokio::select! {
                biased;
                () = shutdown.begun() => break,
                () = places.room() => {}
            }
            let accepted = tokio::select! {
                biased;
                () = shutdown.begun() => break,
                accepted = socket.accept() => accepted,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection::serve(Arc::clone(&shared), stream, places.take()));
                }
                Err(error) => {
                    tracing::warn!(target: "cofferdam::server", %error, "a connection could not be accepted");
                    sleep(REST).await;
                }
            }
        }
        drop(socket);
        let ended = async |connections: &mut JoinSet<()>| while connections.join_next().await.is_some() {};
        if timeout(settings.grace, ended(&mut connections)).await.is_err() {
            shutdown.cancel();
            if timeout(LAST_WORDS, ended(&mut connections)).await.is_err() {
                tracing::warn!(
                    target: "cofferdam::server", connections = connections.len(), "connections were cut"
                );
            }
        }
        connections.shutdown().await;
    }
}
