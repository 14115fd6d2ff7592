//! Where a server listens and whom it answers; what is not safe cannot be set by leaving something out.

use std::net::SocketAddr;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};

use super::access::Access;
use super::budget::RequestBudget;
use super::tls::ServerTls;
use super::token::Token;

/// How long a request may take to arrive, its head and its body each, and how long a connection may lie idle.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long running calls may go on once the server is told to end.
const GRACE: Duration = Duration::from_secs(10);

/// Connections at once.
const CONNECTIONS: usize = 256;

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<ServerTls>,
    pub(super) access: Access,
    pub(super) cleartext: bool,
    pub(super) patience: Duration,
    pub(super) grace: Duration,
    pub(super) connections: usize,
    pub(super) budget: RequestBudget,
    pub(super) has_sessions: bool,
}

impl ServerSettings {
    /// A server at `address`; port 0 is one that is free.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            access: Access::default(),
            cleartext: false,
            patience: PATIENCE,
            grace: GRACE,
            connections: CONNECTIONS,
            budget: RequestBudget::default(),
            has_sessions: false,
        }
    }

    /// Requests have to carry this token.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.access.token = Some(token);
        self
    }

    /// Connections are TLS.
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Requests may name this host, `example.com` or `example.com:8443`, beside loopback's names and the address that
    /// they arrive at.
    ///
    /// # Errors
    /// `configuration`: it is not a host.
    pub fn allow_host(mut self, host: &str) -> Result<Self, HostError> {
        self.access.allow_host(host)?;
        Ok(self)
    }

    /// Requests may come from pages of this origin, `https://example.com` or `https://example.com:8443`, beside those
    /// of loopback. Requests that no page makes have no origin.
    ///
    /// # Errors
    /// `configuration`: it is not an origin.
    pub fn allow_origin(mut self, origin: &str) -> Result<Self, HostError> {
        self.access.allow_origin(origin)?;
        Ok(self)
    }

    /// Lets the server listen beyond loopback without TLS: where something else before it has TLS. A token has to be
    /// there all the same.
    #[must_use]
    pub fn cleartext_beyond_loopback(mut self) -> Self {
        self.cleartext = true;
        self
    }

    /// How long a request may take to arrive, its head and its body each; how long a connection may lie idle, and how
    /// long an answer may stand unread. Default: 15 seconds.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long running calls may go on once the server is told to end; then they are cancelled. Default: 10 seconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Connections at once. Where all are taken, the one that is longest there, a second at least, without having been let in makes room;
    /// where all were let in, who comes waits. A sixteenth is for those that were. Default: 256.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// The bytes of requests that the server holds at once. Default: 128 MiB, of which a client gets half.
    #[must_use]
    pub fn budget(mut self, budget: RequestBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Tells clients of one address apart by the session that a request names (`Mcp-Session-Id`). Default: one address is
    /// one client.
    #[must_use]
    pub fn with_sessions(mut self) -> Self {
        self.has_sessions = true;
        self
    }

    /// Whether requests have to carry a token.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.access.token.is_some()
    }

    /// Whether it may listen where it is told to.
    pub(super) fn check(&self) -> Result<(), HostError> {
        if self.address.ip().is_loopback() {
            return Ok(());
        }
        let wrong = |what: &str, hint: &str| {
            let message = format!("The server cannot listen at {}: {what}.", self.address);
            Err(HostError::new(HostErrorKind::Configuration, message).hint(hint))
        };
        if self.access.token.is_none() {
            return wrong(
                "others can reach that, and it has no token",
                "Give it a token, or listen at 127.0.0.1.",
            );
        }
        if self.tls.is_none() && !self.cleartext {
            return wrong(
                "others can reach that, and read the token on its way",
                "Give it a certificate and a key; or allow it where something before it has TLS; or listen at 127.0.0.1.",
            );
        }
        Ok(())
    }
}
