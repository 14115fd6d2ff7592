//! `console`: the web console for reviewers and operators.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_console::{Console, FailureExplanation, SESSION_LIFETIME, SessionRight};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::limits::parse_time;
use cofferdam_server::http_api::HttpApi;
use cofferdam_server::server::{BoundServer, ServerSettings, Shutdown};
use serde::Serialize;

use crate::explain::{self, TermKind};
use crate::listen::{ListenArgs, ServerLimits};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

/// The variable that may hold the token itself.
const TOKEN: &str = "COFFERDAM_CONSOLE_TOKEN";

/// The memory for requests, which have no bodies of size.
const REQUEST_MEMORY: usize = 16 << 20;

const EXAMPLES: &str = "\
Open the printed link in a browser: it works once, and for five minutes. Then the browser has a session until --session \
is over. Pages show the installed connectors, their grants and limits, the calls on record and those that wait for a \
person; they change nothing. With --approvals a second link is printed, whose session may also approve and deny. \
docs/guides/console.md has more.

Examples:
  cofferdam console
  cofferdam console --listen 127.0.0.1:0 --session 30m
  cofferdam console --approvals
  cofferdam serve --console";

/// Shows connectors and calls in a browser.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The address to listen on; with port 0 the system chooses a free one. Beyond loopback it needs a token and a
    /// certificate.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4180")]
    listen: SocketAddr,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    over: ListenArgs,
}

/// The sessions of browsers.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct SessionArgs {
    /// The time after which the session of a browser ends, like 30m [default: 12 hours].
    #[arg(id = "session_lifetime", long = "session", value_name = "TIME", value_parser = lifetime)]
    lifetime: Option<Duration>,

    /// Prints a second link, whose session may also answer calls that wait for a person.
    #[arg(id = "session_approvals", long = "approvals")]
    approvals: bool,
}

impl SessionArgs {
    /// Refuses options for a console that is not served.
    pub(super) fn check(self, has_console: bool) -> Result<(), HostError> {
        let given = self.lifetime.map(|_| "--session").or_else(|| self.approvals.then_some("--approvals"));
        let Some(option) = given.filter(|_| !has_console) else { return Ok(()) };
        let message = format!("{option} is for the console, which is not served.");
        Err(HostError::new(HostErrorKind::Validation, message).with_hint("Add --console, or leave it out."))
    }
}

/// Reads a time like 30m, at most a week.
fn lifetime(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(7 * 24 * 60 * 60);
    parse_time(text)
        .filter(|time| *time <= most)
        .ok_or_else(|| "write it like 30m or 3600s, at most a week".to_owned())
}

/// The addresses of a server with a console.
#[derive(Serialize)]
pub(super) struct ReadyNotice {
    listening: String,
    /// The link that opens the console, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<String>,
    /// The link to a session that may answer calls that wait for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    approve: Option<String>,
}

impl ReadyNotice {
    /// Creates the links of `console`, if there is one, at the address of its server.
    pub(super) fn new(
        listening: String,
        console: Option<&Console>,
        sessions: SessionArgs,
    ) -> Result<Self, HostError> {
        let link = |right: SessionRight| -> Result<_, HostError> {
            let link = console.map(|console| console.new_link(right)).transpose()?;
            Ok(link.map(|link| format!("{listening}{link}")))
        };
        let approve = if sessions.approvals { link(SessionRight::Answer)? } else { None };
        Ok(Self { open: link(SessionRight::Read)?, approve, listening })
    }

    /// Reports the addresses.
    pub(super) fn report(&self, session: &Session<'_>) -> Result<(), CommandError> {
        session.ui.result(self, |page| {
            page.field("listening", &self.listening);
            let links = [("open", &self.open), ("approve", &self.approve)];
            for (name, link) in links {
                if let Some(link) = link {
                    page.field(name, link);
                }
            }
        })
    }
}

/// Returns the console of `api`, for a server with these settings.
pub(super) fn console(api: HttpApi, sessions: SessionArgs, settings: &ServerSettings) -> Console {
    let lifetime = sessions.lifetime.unwrap_or(SESSION_LIFETIME);
    Console::new(api, Arc::new(SystemClock), explain_failure, lifetime, settings.is_over_tls())
}

/// Explains the code of a failure, or else its class.
fn explain_failure(class: Option<&str>, code: Option<&str>) -> Option<FailureExplanation> {
    let infos = explain::code_infos();
    let of_class = |info: &&explain::CodeInfo| match info.kind {
        TermKind::Code => info.class.map(|class| class.name()) == class,
        TermKind::HostError => class.is_none(),
        _ => false,
    };
    let code = code.and_then(|code| infos.iter().filter(of_class).find(|info| info.word == code));
    let class = || {
        class.and_then(|class| infos.iter().find(|info| info.kind == TermKind::Class && info.word == class))
    };
    let info = code.or_else(class)?;
    Some(FailureExplanation {
        meaning: info.meaning.clone(),
        advice: info.again.advice().to_owned(),
        fixed_by: info.fixed_by.text().to_owned(),
        fix: info.remedy.clone(),
    })
}

/// Serves the console until it is stopped.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let limits = ServerLimits::without_calls(REQUEST_MEMORY);
    let settings = args.over.settings(args.listen, TOKEN, &limits)?;
    let host = session.serving_host_with(|builder| builder)?;
    let shutdown = Shutdown::new();
    let serving = async {
        let api = HttpApi::new(host.clone(), shutdown.clone());
        let console = console(api, args.session, &settings);
        let server = BoundServer::bind(settings.with_path_access(console.access())).await?;
        ReadyNotice::new(server.url(), Some(&console), args.session)?.report(session)?;
        server.serve(console.router(), shutdown.clone()).await;
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, serving)
}
