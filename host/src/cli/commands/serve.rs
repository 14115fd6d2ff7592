//! `serve`: the HTTP API for programs that are not agents.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::files;
use crate::cli::page::Page;
use crate::cli::private::AllowPrivate;
use crate::cli::report::Stop;
use crate::cli::runtime;
use crate::cli::session::Session;
use crate::error::{HostError, HostErrorKind};
use crate::http_api::HttpApi;
use crate::server::{Listening, ServerSettings, ServerTls, Shutdown, Token};

/// The variable that may hold the token itself.
const TOKEN: &str = "COFFERDAM_SERVE_TOKEN";

/// Longest file of certificates, in bytes.
const CERTIFICATES_BYTES: u64 = 1024 * 1024;

const EXAMPLES: &str = "\
POST /v1/calls makes one call, GET /v1/audit/ID says what is on record of it, GET /openapi.json describes both, and \
GET /healthz says whether the process lives. Ctrl-C or SIGTERM ends it: nothing new is taken, what runs may end within \
10 seconds, and is cancelled then; a second one cancels at once. docs/serve.md has more.

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
    /// Where to listen; port 0 is one that is free. Beyond loopback it wants a token and a certificate.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4100")]
    listen: SocketAddr,

    /// The file with the token that requests have to carry (`Authorization: Bearer ...`), which its owner alone may be
    /// able to read. COFFERDAM_SERVE_TOKEN may hold the token itself.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The server's certificate and its chain, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, as PEM, which its owner alone may be able to read.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A host that requests may name, beside loopback's names and the address that they arrive at; may be given several
    /// times.
    #[arg(long, value_name = "HOST[:PORT]")]
    allowed_host: Vec<String>,

    /// An origin whose pages may ask, like https://example.com; may be given several times.
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<String>,

    /// Lets it listen beyond loopback without a certificate: only where something before it has TLS.
    #[arg(long)]
    cleartext: bool,

    /// How many calls run at once, 1 to 256; more wait their turn.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,

    #[command(flatten)]
    private: AllowPrivate,
}

/// That it can be asked.
#[derive(Serialize)]
struct Ready<'a> {
    listening: &'a str,
}

/// Serves until it is told to end.
pub(in crate::cli) fn run(args: Args, session: &Session<'_>) -> Result<(), Stop> {
    let (settings, has_token) = settings(&args)?;
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
        if !has_token {
            session.ui.note("No token is asked for: whoever can reach it can make calls.");
        }
        let api = HttpApi::new(host.clone(), shutdown.clone()).described_with_token(has_token);
        listening.serve(api.router(), shutdown.clone()).await;
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, serving)
}

/// Where it listens and whom it answers; whether there is a token.
fn settings(args: &Args) -> Result<(ServerSettings, bool), HostError> {
    let mut settings = ServerSettings::new(args.listen);
    let token = token(args.token_file.as_deref())?;
    let has_token = token.is_some();
    if let Some(token) = token {
        settings = settings.token(token);
    }
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        let cert = files::bounded("The certificate", cert, CERTIFICATES_BYTES)?;
        let key = files::read_private("The certificate's key", key)?;
        settings = settings.tls(ServerTls::from_pem(&cert, key.as_bytes())?);
    }
    for host in &args.allowed_host {
        settings = settings.allow_host(host)?;
    }
    for origin in &args.allowed_origin {
        settings = settings.allow_origin(origin)?;
    }
    if args.cleartext {
        settings = settings.cleartext_beyond_loopback();
    }
    Ok((settings, has_token))
}

fn token(file: Option<&Path>) -> Result<Option<Token>, HostError> {
    match (file, std::env::var(TOKEN)) {
        (Some(path), _) => Token::new(&files::read_private("The file of the token", path)?).map(Some),
        (None, Ok(token)) => Token::new(&token).map(Some),
        (None, Err(std::env::VarError::NotPresent)) => Ok(None),
        (None, Err(error)) => {
            let message = format!("The variable {TOKEN} is not text.");
            Err(HostError::new(HostErrorKind::Configuration, message).because(error))
        }
    }
}
