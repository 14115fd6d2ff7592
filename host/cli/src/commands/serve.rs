//! `serve`: the HTTP API for programs that are not agents.

use std::net::SocketAddr;

use cofferdam_server::http_api::HttpApi;
use cofferdam_server::server::{BoundServer, Shutdown};
use serde::Serialize;

use crate::allow_private::AllowPrivate;
use crate::listen::{ListenArgs, ServerLimits, note_who_can_ask};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

/// The variable that may hold the token itself.
const TOKEN: &str = "COFFERDAM_SERVE_TOKEN";

const EXAMPLES: &str = "\
POST /v1/calls makes one call, POST /v1/actions/NAME/run runs an action, GET /v1/audit/ID shows the audit log of \
either, GET /openapi.json describes all of it, and GET /healthz says whether the process lives. Ctrl-C or SIGTERM ends it: nothing new is taken, what runs may come to its \
end for a while (--grace), and is cancelled then; a second one cancels at once. docs/guides/http-api.md has more.

Examples:
  cofferdam serve
  cofferdam serve --listen 127.0.0.1:4100 --token-file serve.token
  cofferdam serve --listen 0.0.0.0:4100 --token-file serve.token --tls-cert cert.pem --tls-key key.pem
  curl -H 'content-type: application/json' http://127.0.0.1:4100/v1/calls \\
       -d '{\"connector\": \"github://acme/hello\", \"op\": \"greet\", \"args\": {\"name\": \"Ada\"}}'";

/// Answers calls over HTTP, for programs that are not agents.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The address to listen on; with port 0 the system chooses a free one. Beyond loopback it needs a token and a
    /// certificate. COFFERDAM_SERVE_TOKEN may hold the token itself.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4100")]
    listen: SocketAddr,

    #[command(flatten)]
    over: ListenArgs,

    #[command(flatten)]
    limits: ServerLimits,

    #[command(flatten)]
    private: AllowPrivate,
}

/// That it can be asked.
#[derive(Serialize)]
struct ReadyNotice<'a> {
    listening: &'a str,
}

/// Serves until it is stopped.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let settings = args.over.settings(args.listen, TOKEN, &args.limits)?;
    let has_token = settings.has_token();
    let host = session
        .serving_host_with(|builder| args.private.apply_to(builder).concurrency(args.limits.concurrency))?;
    let shutdown = Shutdown::new();
    let serving = async {
        let listening = BoundServer::bind(settings).await?;
        let url = listening.url();
        note_who_can_ask(session.ui, has_token);
        session.ui.result(&ReadyNotice { listening: &url }, |page| {
            page.field("listening", &url);
        })?;
        let api = HttpApi::new(host.clone(), shutdown.clone()).described_with_token(has_token);
        listening.serve(api.router(), shutdown.clone()).await;
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, serving)
}
