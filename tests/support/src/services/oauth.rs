//! oauth2-mock-server, an authorisation server, and httpbin, which echoes its requests.

use super::{Server, Tools};
use crate::package::repository;

/// A running authorisation server.
pub struct OAuth {
    server: Server,
}

impl OAuth {
    /// The refresh token that it refuses.
    pub const REVOKED: &str = "revoked";

    /// Starts it.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(tools: &Tools) -> Self {
        let script = repository().join("tests/services/tools/oauth.cjs").display().to_string();
        let args = |port: u16| [script, port.to_string()].to_vec();
        Self { server: Server::start::<String>(tools, tools.python("node"), args, &[]) }
    }

    /// The number of token requests with this grant.
    #[must_use]
    pub fn asked_for(&self, grant: &str) -> usize {
        let line = format!("asked for {grant}");
        self.server.log().lines().filter(|said| *said == line).count()
    }

    /// The process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The token endpoint: plain HTTP, on loopback.
    #[must_use]
    pub fn token_url(&self) -> String {
        format!("http://{}/token", self.server.host_port())
    }
}

/// Starts httpbin.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn httpbin(tools: &Tools) -> Server {
    let args = |port: u16| {
        let args =
            ["--app", "httpbin:app", "run", "--host", "127.0.0.1", "--port"].map(str::to_owned).to_vec();
        [args, vec![port.to_string()]].concat()
    };
    Server::start::<String>(tools, tools.python("flask"), args, &[])
}
