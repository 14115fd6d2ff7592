//! `serve`: the HTTP API for programs that are not agents.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::cli::listen::Listen;
use crate::cli::page::Page;
use crate::cli::private::AllowPrivate;
use crate::cli::report::Stop;
use crate::cli::runtime;
use crate::cli::session::Session;
use crate::http_api::HttpApi;
use crate::limits::parse_time;
use crate::server::{Listening, Shutdown};

/// The variable that may hold the token itself.
const TOKEN: &str = "COFFERDAM_SERVE_TOKEN";

const EXAMPLES: &str = "\
POST /v1/calls makes one call, GET /v1/audit/ID says what is on record of it, GET /openapi.json describes both, and \
GET /healthz says whether the process lives. Ctrl-C or SIGTERM ends it: nothing new is taken, what runs may come to its \
end for a while (--grace), and is cancelled then; a second one cancels at once. docs/serve.md has more.

Examples:
  cofferdam serve
  cofferdam serve --listen 127.0.0.1:4100 --token-file serve.token
  cofferdam serve --listen 0.0.0.0:4100 --token-file serve.token --tls-cert cert.pem --tls-key key.pem
  curl -H 'content-type: application/json' http://127.0.0.1:4100/v1/calls \\
       -d '{\"connector\": \"github://acme/hello\", \"op\": \"greet\", \"args\": {\"name\": \"Ada\"}}'";

/// Answers calls over HTTP, for programs that are not agents.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Where to listen; with port 0 the system chooses one that is free. Beyond loopback it wants a token and a
    /// certificate. COFFERDAM_SERVE_TOKEN may hold the token itself.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4100")]
    listen: SocketAddr,

    #[command(flatten)]
    over: Listen,

    /// How many calls run at once, 1 to 256; more wait their turn.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,

    /// How long running calls may go on when the server is to end; then they are cancelled.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    grace: Duration,

    #[command(flatten)]
    private: AllowPrivate,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "write it like 500ms, 10s or 2m".to_owned())
}

/// That it can be asked.
#[derive(Serialize)]
struct Ready<'a> {
    listening: &'a str,
}

/// Serves until it is told to end.
pub(in crate::cli) fn run(args: Args, session: &Session<'_>) -> Result<(), Stop> {
    let settings = args.over.settings(session.ui, args.listen, TOKEN, args.grace)?;
    let has_token = settings.has_token();
    let concurrency = args.concurrency;
    let host = session.host_with(|builder| args.private.of(builder).concurrency(concurrency))?;
    let shutdown = Shutdown::new();
    let serving = async {
        let listening = Listening::bind(settings).await?;
        let url = listening.url();
        session.ui.result(&Ready { listening: &url }, || {
            let mut page = Page::default();
            page.field("listening", &url);
            page
        })?;
        let api = HttpApi::new(host.clone(), shutdown.clone()).described_with_token(has_token);
        listening.serve(api.router(), shutdown.clone()).await;
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, serving)
}
