//! `mcp`: offers tools to agents, over standard input and output or over HTTP.

mod clients;
mod config;
mod tools;

use std::net::SocketAddr;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_runtime::host::Host;
use cofferdam_server::mcp::{
    CallNotes, GivenNames, LiveCatalog, McpSettings, SessionLimits, ToolFilter, ToolPins,
};
use cofferdam_server::server::{BoundServer, Shutdown};

use crate::allow_private::AllowPrivate;
use crate::listen::{ListenArgs, ServerLimits, memory, note_who_can_ask, time};
use crate::report::CommandError;
use crate::session::Session;
use crate::{cluster_trust, runtime};

/// The file of pins in the home directory.
const PINS: &str = "mcp-pins.json";

/// The file of the names that tools were offered under.
const NAMES: &str = "mcp-names.json";

/// The variable with the token of the server.
const TOKEN: &str = "COFFERDAM_MCP_TOKEN";

/// The path of the server.
const PATH: &str = "/mcp";

const EXAMPLES: &str = "\
An MCP client starts `cofferdam mcp` itself; `cofferdam mcp config` writes how. Tools are the actions in \
the home directory, and such operations as are named here. Nothing that an agent can call grants, binds, \
trusts or installs anything.

Examples:
  cofferdam mcp --operations slack.post_message,github-issues
  cofferdam mcp --all-operations --list-tools
  cofferdam mcp --operations slack --pin
  cofferdam mcp --http 127.0.0.1:4101 --token-file mcp.token";

/// Offers tools to agents, in the Model Context Protocol.
///
/// Over standard input and output unless `--http` says where to listen. Then nothing but the protocol is on
/// standard output, and the end of standard input ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_value_name = "COMMAND")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: McpServeArgs,
}

/// The other options.
#[derive(Debug, clap::Subcommand)]
enum Command {
    Config(config::Args),
}

/// The options for the offered tools and the transport.
#[derive(Debug, clap::Args)]
struct McpServeArgs {
    /// Offers operations as tools: CONNECTOR or CONNECTOR.OP, the connector as `slack`, `github://acme/slack` or
    /// `github://acme/slack@1.2.0`; TOOL=CONNECTOR.OP gives the tool that name. May be given several times.
    #[arg(long, value_name = "[TOOL=]CONNECTOR[.OP]", value_delimiter = ',')]
    operations: Vec<String>,

    /// Offers every operation of the active version of every installed connector.
    #[arg(long, conflicts_with = "operations")]
    all_operations: bool,

    /// Leaves out what uses another connector than these; may be given several times.
    #[arg(long, value_name = "CONNECTOR", value_delimiter = ',')]
    only: Vec<String>,

    /// Leaves out all that is not known to change nothing: what a manifest does not declare `read_only`, and whose
    /// connector reaches any host.
    #[arg(long)]
    read_only: bool,

    /// The longest value that agents are shown, in bytes of JSON, like 256KiB. Of a longer one they are shown a part,
    /// and told so.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = value_size)]
    value_limit: usize,

    /// Sends values as text alone, for clients that show their model nothing else. Tools have no schema of their output
    /// then.
    #[arg(long)]
    text_values: bool,

    /// Shows the tools instead of offering them: their names, what each runs, and what is withheld and why. With
    /// `--format json` all that agents would read.
    #[arg(long)]
    list_tools: bool,

    /// Pins the tools as they are now. From then on a tool that changes, or is new, is not offered before it is pinned.
    #[arg(long, conflicts_with = "list_tools")]
    pin: bool,

    /// Listens for HTTP here; with port 0 the system chooses one. The path is /mcp. COFFERDAM_MCP_TOKEN may hold
    /// the token itself.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["list_tools", "pin"])]
    http: Option<SocketAddr>,

    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    limits: ServerLimits,

    #[command(flatten)]
    private: AllowPrivate,

    /// Sessions over HTTP at once; for tests.
    #[arg(long, hide = true, value_name = "N", default_value_t = SessionLimits::default().sessions)]
    sessions: usize,

    /// The longest silence of a session over HTTP; for tests.
    #[arg(long, hide = true, value_name = "TIME", default_value = "5m", value_parser = time)]
    session_idle: Duration,
}

/// Offers, shows or pins the tools, or says how clients are configured.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    match args.command {
        Some(Command::Config(config)) => config::run(&config, session),
        None => serve(args.serve, session),
    }
}

fn serve(args: McpServeArgs, session: &Session<'_>) -> Result<(), CommandError> {
    if args.http.is_none() && args.listen.is_given() {
        let error = HostError::new(
            HostErrorKind::Validation,
            "Only a server that listens has a token, TLS, hosts and origins.",
        );
        return Err(error.with_hint("Add --http 127.0.0.1:PORT.").into());
    }
    // The token and the certificate are read before the process confines itself.
    let settings = match args.http {
        Some(address) => Some(args.listen.settings(address, TOKEN, &args.limits)?.with_sessions()),
        None => None,
    };
    let watch = session.trust_watch()?;
    let host = session.serving_host_with(|builder| {
        args.private
            .clone()
            .apply_to(builder)
            .concurrency(args.limits.concurrency)
            .listener(CallNotes::listener())
    })?;
    let offer = offer(&args);
    let pins_file = session.home()?.join(PINS);
    let names = GivenNames::load(session.home()?.join(NAMES))?;
    if args.pin {
        // Pinning again repairs a file that cannot be read.
        let pins = ToolPins::load(&pins_file).unwrap_or_else(|_| ToolPins::none(&pins_file));
        return tools::pin(&host, &offer, pins, names, session.ui);
    }
    let pins = ToolPins::load(&pins_file);
    if args.list_tools {
        // Also if they are unusable, because the operator has to look before pinning again.
        let pins = pins.map_err(|error| (error, ToolPins::none(&pins_file)));
        return tools::list(&host, &offer, pins, &names, session.ui);
    }
    let pins = pins?;
    let shutdown = Shutdown::new();
    let serving = async {
        let offered = LiveCatalog::read(host.clone(), offer, pins, names).await?;
        let following = offered.clone();
        let following = tokio::spawn(async move { following.follow().await });
        let mcp = McpSettings {
            host: Host::clone(&host),
            offered: offered.clone(),
            shutdown: shutdown.clone(),
            grace: args.limits.grace,
            budget: args.limits.budget(),
            value_bytes: args.value_limit,
            sessions: SessionLimits { sessions: args.sessions, idle: args.session_idle },
        };
        let listing = offered.now().listing();
        let count = listing.tools.len();
        match settings {
            None => {
                if count == 0 {
                    session.ui.warn(tools::nothing(&listing));
                }
                let (input, output) = rmcp::transport::stdio_pipes();
                mcp.serve_streams(input, output).await;
            }
            Some(settings) => {
                let has_token = settings.has_token();
                let listening = BoundServer::bind(settings).await?;
                note_who_can_ask(session.ui, has_token);
                session.ui.note(&format!("Serving {count} tools at {}{PATH}", listening.url()));
                let (app, calls) = mcp.router(PATH);
                listening.serve(app, shutdown.clone()).await;
                shutdown.begin();
                calls.ended().await;
            }
        }
        following.abort();
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, cluster_trust::beside(watch, &host, serving))
}

/// Reads the size of a value.
fn value_size(text: &str) -> Result<usize, String> {
    let bytes = memory(text).filter(|bytes| (1 << 10..=PAYLOAD_BYTES).contains(bytes));
    bytes.ok_or_else(|| "write it like 256KiB, from 1KiB to 4MiB".to_owned())
}

fn offer(args: &McpServeArgs) -> ToolFilter {
    let mut offer = ToolFilter::new();
    if args.all_operations {
        offer = offer.every_operation();
    }
    if args.read_only {
        offer = offer.read_only();
    }
    if args.text_values {
        offer = offer.text_values();
    }
    let named = |texts: &[String]| texts.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
    let offer = named(&args.operations).into_iter().fold(offer, ToolFilter::operations);
    named(&args.only).into_iter().fold(offer, ToolFilter::only)
}
