//! `serve`: the HTTP API for programs that are not agents.

use std::net::SocketAddr;
#[cfg(feature = "cluster")]
use std::sync::Arc;

#[cfg(feature = "cluster")]
use cofferdam_runtime::host::Host;
use cofferdam_server::http_api::HttpApi;
#[cfg(feature = "cluster")]
use cofferdam_server::server::ServerSettings;
use cofferdam_server::server::{BoundServer, Shutdown};

use super::console::{self, ReadyNotice, SessionArgs};
use crate::allow_private::AllowPrivate;
#[cfg(feature = "cluster")]
use crate::jobs_queue::{self, HostReadiness, ProcessMetrics, QueueConfig};
use crate::listen::{ListenArgs, ServerLimits, note_who_can_ask};
use crate::report::CommandError;
use crate::session::Session;
use crate::{cluster_trust, runtime};

/// The variable that may hold the token itself.
const TOKEN: &str = "COFFERDAM_SERVE_TOKEN";

const EXAMPLES: &str = "\
POST /v1/calls makes one call, POST /v1/actions/NAME/run runs an action, GET /v1/audit lists the calls on record, GET \
/v1/connectors what is installed, GET /openapi.json describes all of it, GET /healthz says whether the process lives, and GET /readyz what is \
missing. With a queue (docs/guides/jobs.md), POST /v1/jobs puts a call or an action on it. Ctrl-C or SIGTERM ends it: nothing new is taken, what runs may come to its \
end for a while (--grace), and is cancelled then; a second one cancels at once. docs/guides/http-api.md has more.

Examples:
  cofferdam serve
  cofferdam serve --listen 127.0.0.1:4100 --token-file serve.token
  cofferdam serve --console
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

    /// Serves the web console as well, at /console, and prints the link that opens it.
    #[arg(long)]
    console: bool,

    #[command(flatten)]
    sessions: SessionArgs,
}

/// The parts that a host of a cluster serves besides calls: jobs, metrics, and its readiness.
#[cfg(feature = "cluster")]
struct ServedCluster {
    queue: Option<QueueConfig>,
    metrics: ProcessMetrics,
}

#[cfg(feature = "cluster")]
impl ServedCluster {
    /// Reads the configuration, before the process is confined.
    fn load(session: &Session<'_>) -> Result<Self, CommandError> {
        let metrics = ProcessMetrics::new(&jobs_queue::host_name(session)?);
        Ok(Self { queue: QueueConfig::load(session)?, metrics })
    }

    /// Adds it to the API and to the settings of the server.
    async fn join(
        &self,
        api: HttpApi,
        settings: ServerSettings,
        host: &Host,
        session: &Session<'_>,
    ) -> Result<(HttpApi, ServerSettings), CommandError> {
        let mut api = api.with_metrics(self.metrics.text());
        let queue = match &self.queue {
            Some(config) => Some(config.connect(host, session, true).await?),
            None => None,
        };
        if let Some(queue) = &queue {
            let metrics = Arc::clone(&self.metrics.jobs);
            api = api.with_jobs(Arc::new(jobs_queue::service(queue.clone(), host.clone(), metrics)));
        }
        jobs_queue::check_parts(host);
        let check = HostReadiness { host: host.clone(), queue };
        Ok((api, settings.with_readiness(Arc::new(check))))
    }
}

/// Serves until it is stopped.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    args.sessions.check(args.console)?;
    let settings = args.over.settings(args.listen, TOKEN, &args.limits)?;
    let has_token = settings.has_token();
    let watch = session.trust_watch()?;
    #[cfg(feature = "cluster")]
    let cluster = ServedCluster::load(session)?;
    let host = session.serving_host_with(|builder| {
        let builder = args.private.apply_to(builder).concurrency(args.limits.concurrency);
        #[cfg(feature = "cluster")]
        let builder = builder.listener(Arc::clone(&cluster.metrics.calls) as _);
        builder
    })?;
    let shutdown = Shutdown::new();
    let serving = async {
        let api = HttpApi::new(host.clone(), shutdown.clone()).described_with_token(has_token);
        #[cfg(feature = "cluster")]
        let (api, settings) = cluster.join(api, settings, &host, session).await?;
        let console = args.console.then(|| console::console(api.clone(), args.sessions, &settings));
        let settings = match &console {
            Some(console) => settings.with_path_access(console.access()),
            None => settings,
        };
        let listening = BoundServer::bind(settings).await?;
        note_who_can_ask(session.ui, has_token);
        ReadyNotice::new(listening.url(), console.as_ref(), args.sessions)?.report(session)?;
        let router = api.router();
        let router = match &console {
            Some(console) => console.router().fallback_service(router),
            None => router,
        };
        listening.serve(router, shutdown.clone()).await;
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, cluster_trust::beside(watch, &host, serving))
}
