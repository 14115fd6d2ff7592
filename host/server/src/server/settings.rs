//! The settings of a server; no unsafe setting is the default.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};

use super::auth::{AccessPolicy, BearerToken, OwnAccess, PathAccess};
use super::budget::RequestBudget;
use super::listener::ServerTls;
use super::readiness::{Readiness, ReadinessCheck};

/// The time for a request to arrive, for its head and its body each, and the longest idle time of a
/// connection.
const IO_TIMEOUT: Duration = Duration::from_secs(15);

/// The time for running calls once the server is told to end.
const GRACE: Duration = Duration::from_secs(10);

/// The most connections at once.
const CONNECTIONS: usize = 256;

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<ServerTls>,
    pub(super) access: AccessPolicy,
    pub(super) cleartext: bool,
    pub(super) io_timeout: Duration,
    pub(super) grace: Duration,
    pub(super) connections: usize,
    pub(super) budget: RequestBudget,
    pub(super) has_sessions: bool,
    pub(super) readiness: Option<Readiness>,
    pub(super) own_access: OwnAccess,
}

impl ServerSettings {
    /// Creates settings for a server at `address`; port 0 selects a free one.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            access: AccessPolicy::default(),
            cleartext: false,
            io_timeout: IO_TIMEOUT,
            grace: GRACE,
            connections: CONNECTIONS,
            budget: RequestBudget::default(),
            has_sessions: false,
            readiness: None,
            own_access: OwnAccess::default(),
        }
    }

    /// Requires this token in requests.
    #[must_use]
    pub fn token(mut self, token: BearerToken) -> Self {
        self.access.token = Some(token);
        self
    }

    /// Serves connections over TLS.
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Allows requests that name this host, `example.com` or `example.com:8443`, in addition to loopback's
    /// names and the address that they arrive at.
    ///
    /// # Errors
    /// `configuration`: it is not a host.
    pub fn allow_host(mut self, host: &str) -> Result<Self, HostError> {
        self.access.allow_host(host)?;
        Ok(self)
    }

    /// Allows requests from pages of this origin, `https://example.com` or `https://example.com:8443`, in
    /// addition to those of loopback. Requests that do not come from a page have no origin.
    ///
    /// # Errors
    /// `configuration`: it is not an origin.
    pub fn allow_origin(mut self, origin: &str) -> Result<Self, HostError> {
        self.access.allow_origin(origin)?;
        Ok(self)
    }

    /// Lets the server listen beyond loopback without TLS, for use behind a proxy that terminates TLS. A
    /// token is still required.
    #[must_use]
    pub fn cleartext_beyond_loopback(mut self) -> Self {
        self.cleartext = true;
        self
    }

    /// Sets the time for a request to arrive, for its head and its body each; the longest idle time of a
    /// connection; and the longest time that an answer may be unread. Default: 15 seconds.
    #[must_use]
    pub fn io_timeout(mut self, patience: Duration) -> Self {
        self.io_timeout = patience;
        self
    }

    /// Sets the time for running calls once the server is told to end; then they are cancelled. Default: 10
    /// seconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the most connections at once. If all are taken, the oldest unauthenticated connection, at least a
    /// second old, is closed for a new one; if all are authenticated, the new client waits. A sixteenth is
    /// reserved for authenticated ones. Default: 256.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Sets the bytes of requests that the server holds at once. Default: 128 MiB, of which a client gets
    /// half.
    #[must_use]
    pub fn budget(mut self, budget: RequestBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Distinguishes clients of one address by the session that a request names (`Mcp-Session-Id`). Default:
    /// one address is one client.
    #[must_use]
    pub fn with_sessions(mut self) -> Self {
        self.has_sessions = true;
        self
    }

    /// Answers the readiness check with what `check` finds. Default: the server is ready until it ends.
    #[must_use]
    pub fn with_readiness(mut self, check: Arc<dyn ReadinessCheck>) -> Self {
        self.readiness = Some(Readiness::new(check));
        self
    }

    /// Lets a part of the server decide itself about requests to its paths, without the token. The host and the origin of
    /// requests are checked all the same.
    #[must_use]
    pub fn with_path_access(mut self, access: Arc<dyn PathAccess>) -> Self {
        self.own_access = OwnAccess::new(access);
        self
    }

    /// Returns true if clients reach the server over TLS, its own or that of a proxy.
    #[must_use]
    pub fn is_over_tls(&self) -> bool {
        self.tls.is_some() || self.cleartext
    }

    /// Returns true if requests have to carry a token.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.access.token.is_some()
    }

    /// Checks that it may listen at its address.
    pub(super) fn check(&self) -> Result<(), HostError> {
        if self.address.ip().is_loopback() {
            return Ok(());
        }
        let wrong = |what: &str, hint: &str| {
            let message = format!("The server cannot listen at {}: {what}.", self.address);
            Err(HostError::new(HostErrorKind::Configuration, message).with_hint(hint))
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
