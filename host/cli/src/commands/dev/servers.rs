//! The connector under development for clients: agents over MCP, programs over HTTP.

use std::net::SocketAddr;

use cofferdam_dev::DevHome;
use cofferdam_runtime::agent::VALUE_BYTES;
use cofferdam_runtime::host::Host;
use cofferdam_server::http_api::HttpApi;
use cofferdam_server::mcp::{GivenNames, LiveCatalog, McpSettings, SessionLimits, ToolFilter, ToolPins};
use cofferdam_server::server::{BoundServer, RequestBudget, ServerSettings, Shutdown};

use crate::report::CommandError;
use crate::session::Session;

/// The servers beside the prompt.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct ServerArgs {
    /// Offers the operations to an MCP client on standard input and output. The list of tools changes with each build.
    #[arg(long)]
    mcp: bool,

    /// Answers calls over HTTP, as `cofferdam serve` does, at a loopback address.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:4100", value_parser = loopback)]
    serve: Option<SocketAddr>,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "write it like 127.0.0.1:4100".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("what is under development is served on loopback only, like 127.0.0.1:4100".to_owned()),
    }
}

impl ServerArgs {
    /// Returns whether standard input and output belong to a protocol.
    pub(super) fn has_protocol(&self) -> bool {
        self.mcp
    }

    /// Serves until the client has ended; without a server, for ever.
    pub(super) async fn serve(
        &self,
        host: &Host,
        home: &DevHome,
        session: &Session<'_>,
    ) -> Result<(), CommandError> {
        let shutdown = Shutdown::new();
        if let Some(address) = self.serve {
            let listening = BoundServer::bind(ServerSettings::new(address)).await?;
            session.ui.note(&format!("serving {}", listening.url()));
            listening.serve(HttpApi::new(host.clone(), shutdown.clone()).router(), shutdown).await;
            return Ok(());
        }
        if self.mcp {
            let home = home.path();
            let (pins, names) = (ToolPins::none(home.join("mcp-pins.json")), home.join("mcp-names.json"));
            let every = ToolFilter::new().every_operation();
            let offered = LiveCatalog::read(host.clone(), every, pins, GivenNames::load(names)?).await?;
            let mcp = McpSettings {
                host: host.clone(),
                offered: offered.clone(),
                shutdown,
                grace: std::time::Duration::from_secs(1),
                budget: RequestBudget::default(),
                value_bytes: VALUE_BYTES,
                sessions: SessionLimits::default(),
            };
            let (input, output) = rmcp::transport::stdio_pipes();
            tokio::select! {
                () = mcp.serve_streams(input, output) => {}
                () = offered.follow() => {}
            }
            return Ok(());
        }
        std::future::pending().await
    }
}
