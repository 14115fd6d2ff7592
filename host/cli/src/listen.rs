//! The options of every server: access, transport, limits and shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_core::error::HostError;
use cofferdam_core::limits::{LimitRequest, parse_time};
use cofferdam_server::server::{BearerToken, RequestBudget, ServerSettings, ServerTls};

use super::files;
use super::ui::Ui;

/// Longest file of certificates or keys, in bytes.
const PEM_BYTES: u64 = 1024 * 1024;

/// The access to a server, and its transport.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ListenArgs {
    /// The file with the token that requests have to carry as `Authorization: Bearer ...`; only its owner may be able
    /// to read it. COFFERDAM_MCP_TOKEN (for `mcp`), COFFERDAM_SERVE_TOKEN (for `serve`),
    /// COFFERDAM_CONSOLE_TOKEN (for `console`) or COFFERDAM_WORKER_TOKEN (for `worker`) may hold the token itself.
    #[arg(long, value_name = "FILE", help_heading = "Listening")]
    token_file: Option<PathBuf>,

    /// The server's certificate with its chain, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Listening")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, a PEM file that only its owner may be able to read.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Listening")]
    tls_key: Option<PathBuf>,

    /// A host that requests may name, in addition to loopback's names and the address they arrive at; may be given several
    /// times.
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Listening")]
    allowed_host: Vec<String>,

    /// An origin whose web pages may send requests, in addition to loopback's; may be given several times.
    #[arg(long, value_name = "ORIGIN", help_heading = "Listening")]
    allowed_origin: Vec<String>,

    /// Listens beyond loopback without TLS, because something before it has TLS. A token is needed all the same.
    #[arg(long, help_heading = "Listening")]
    behind_tls: bool,
}

impl ListenArgs {
    /// Returns whether any of these options was given, although they need a server.
    pub(super) fn is_given(&self) -> bool {
        self.token_file.is_some()
            || self.tls_cert.is_some()
            || self.behind_tls
            || !(self.allowed_host.is_empty() && self.allowed_origin.is_empty())
    }

    /// The settings of a server at `address`, whose token `variable` may hold.
    pub(super) fn settings(
        &self,
        address: SocketAddr,
        variable: &str,
        pace: &ServerLimits,
    ) -> Result<ServerSettings, HostError> {
        let mut settings = ServerSettings::new(address).grace(pace.grace).budget(pace.budget());
        let token = match &self.token_file {
            Some(path) => Some(BearerToken::new(&files::read_private("The token file", path)?)?),
            // One that is set and empty was meant to be something: it is refused as a file without a token is.
            None => match std::env::var_os(variable) {
                None => None,
                Some(token) => Some(BearerToken::new(token.to_str().unwrap_or_default())?),
            },
        };
        if let Some(token) = token {
            settings = settings.token(token);
        }
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let cert = files::read_trusted("The certificate", cert, PEM_BYTES)?;
            let key = files::read_private("The private key", key)?;
            settings = settings.tls(ServerTls::from_pem(&cert, key.as_bytes())?);
        }
        for host in &self.allowed_host {
            settings = settings.allow_host(host)?;
        }
        for origin in &self.allowed_origin {
            settings = settings.allow_origin(origin)?;
        }
        if self.behind_tls {
            settings = settings.cleartext_beyond_loopback();
        }
        Ok(settings)
    }
}

/// Warns that a server without a token answers every local user.
pub(super) fn note_who_can_ask(ui: &Ui, has_token: bool) {
    if !has_token {
        ui.note("There is no token: every user of this machine can send requests to this server.");
    }
}

/// The limits of a server, and the time for its shutdown.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ServerLimits {
    /// The number of calls that run at once, 1 to 1024; more calls wait in a queue, and are refused as busy if it is full.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) concurrency: u32,

    /// The time for running calls to end when the server shuts down, like 10s; then they are cancelled.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(super) grace: Duration,

    /// The memory for requests that are being read, wait, run or are being answered, like 128MiB; one client gets half
    /// of it over HTTP. A request that does not fit is refused as busy.
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = size)]
    pub(super) request_memory: usize,
}

impl ServerLimits {
    /// The limits of a server that runs no calls.
    pub(super) fn without_calls(request_memory: usize) -> Self {
        Self { concurrency: 1, grace: Duration::from_secs(10), request_memory }
    }

    /// The limits of a worker, which serves its health and its metrics.
    #[cfg(feature = "cluster")]
    pub(super) fn of_worker(concurrency: u32, grace: Duration) -> Self {
        Self { concurrency, grace, request_memory: 16 << 20 }
    }

    /// The memory for requests.
    pub(super) fn budget(&self) -> RequestBudget {
        RequestBudget::new(self.request_memory)
    }
}

/// The bytes of an amount of memory like 64MiB; none where it is no such amount.
pub(super) fn memory(text: &str) -> Option<usize> {
    let size = LimitRequest::parse(None, None, Some(text)).ok()?.memory()?;
    usize::try_from(size).ok()
}

/// Reads a size like 64MiB.
fn size(text: &str) -> Result<usize, String> {
    memory(text)
        .filter(|bytes| *bytes >= 16 << 20)
        .ok_or_else(|| "write it like 64MiB, 16MiB at least".to_owned())
}

/// Reads a time like 500ms, 10s or 2m.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "write it like 500ms, 10s or 2m".to_owned())
}
