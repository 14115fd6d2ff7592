//! `worker`: runs jobs from the queue.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_cluster::jobs::{Worker, WorkerSettings};
use cofferdam_server::http_api::metrics_router;
use cofferdam_server::server::{BoundServer, Shutdown};
use serde::Serialize;

use crate::allow_private::AllowPrivate;
use crate::jobs_queue::{self, HostReadiness, ProcessMetrics, QueueConfig};
use crate::listen::{ListenArgs, ServerLimits, note_who_can_ask, time};
use crate::report::CommandError;
use crate::session::Session;
use crate::{cluster_trust, runtime, telemetry};

/// The variable that may hold the token itself.
const TOKEN: &str = "COFFERDAM_WORKER_TOKEN";

/// The number of runs without an end after which a job is dead: it may be what ends its workers.
const INTERRUPTIONS: u32 = 5;

const EXAMPLES: &str = "\
Ctrl-C or SIGTERM ends it: it takes no more jobs, those that run may come to their end for a while (--grace), and their \
calls are cancelled then; a second one cancels at once. What is not over goes back to the queue. A worker that is killed \
loses nothing: its jobs are delivered again, and go on where the audit log stands. docs/guides/jobs.md has more.

Examples:
  cofferdam worker
  cofferdam worker --concurrency 32 --listen 127.0.0.1:4101
  COFFERDAM_NATS_URL=tls://worker:secret@nats.corp:4222 cofferdam worker";

/// Runs jobs from the queue until it is stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The number of jobs that run at once, 1 to 1024.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: u32,

    /// The time for running jobs to end when the worker shuts down, like 10s; then their calls are cancelled.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    grace: Duration,

    /// The address for /healthz, /readyz and /metrics; with port 0 the system chooses a free one [default: none].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    over: ListenArgs,

    #[command(flatten)]
    private: AllowPrivate,
}

/// The notice that it takes jobs.
#[derive(Serialize)]
struct ReadyNotice<'a> {
    worker: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    listening: Option<&'a str>,
}

/// Works until it is stopped.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let config = QueueConfig::required(session)?;
    let host_name = jobs_queue::host_name(session)?;
    let watch = session.trust_watch()?;
    let limits = ServerLimits::of_worker(args.concurrency, args.grace);
    let listen = args.listen.map(|address| args.over.settings(address, TOKEN, &limits)).transpose()?;
    let metrics = ProcessMetrics::new(&host_name);
    let calls = Arc::clone(&metrics.calls);
    let host = session.serving_host_with(|builder| {
        args.private.apply_to(builder).concurrency(args.concurrency).listener(calls)
    })?;
    let shutdown = Shutdown::new();
    let working = async {
        let queue = config.connect(&host, session, true).await?;
        jobs_queue::check_parts(&host);
        let name = format!("{host_name}-{}", std::process::id());
        let bound = match listen {
            Some(settings) => {
                let has_token = settings.has_token();
                let check = HostReadiness { host: host.clone(), queue: Some(queue.clone()) };
                let bound = BoundServer::bind(settings.with_readiness(Arc::new(check))).await?;
                note_who_can_ask(session.ui, has_token);
                Some(bound)
            }
            None => None,
        };
        let url = bound.as_ref().map(BoundServer::url);
        session.ui.result(&ReadyNotice { worker: &name, listening: url.as_deref() }, |page| {
            page.field("worker", &name);
            if let Some(url) = &url {
                page.field("listening", url);
            }
        })?;
        let settings = WorkerSettings {
            name,
            concurrency: args.concurrency,
            max_interruptions: INTERRUPTIONS,
            grace: args.grace,
        };
        let worker = Worker::new(
            queue,
            host.clone(),
            settings,
            Arc::clone(&metrics.jobs),
            telemetry::job_trace(),
            shutdown.clone(),
        );
        let serving = async {
            if let Some(bound) = bound {
                bound.serve(metrics_router(metrics.text()), shutdown.clone()).await;
            }
        };
        tokio::join!(worker.run(), serving);
        Ok(())
    };
    runtime::block_on_server(&host, &shutdown, cluster_trust::beside(watch, &host, working))
}
