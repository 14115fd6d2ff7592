//! `submit`: puts a call or an action on the queue of jobs.

mod action;
mod call;

use cofferdam_core::error::HostError;
use cofferdam_core::failure::sanitize_line;
use cofferdam_server::http_api::{JobRequest, JobService as _, NewJob, SubmittedJob};
use serde_json::Value;

use crate::commands::jobs;
use crate::jobs_queue::{self, QueueConfig};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

/// Puts a call or an action on the queue, where it waits for a worker.
///
/// The job is durable when its id is printed. Submitting the same key again submits nothing. `cofferdam jobs show` has its
/// outcome.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Call(call::Args),
    Run(action::Args),
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::Call(args) => call::run(args, session),
        Command::Run(args) => action::run(args, session),
    }
}

/// Submits the job with this body, and prints it.
fn submit(
    session: &Session<'_>,
    host: &cofferdam_runtime::host::Host,
    body: &Value,
    key: Option<String>,
) -> Result<(), CommandError> {
    let config = QueueConfig::required(session)?;
    let request = JobRequest::read(body.to_string().as_bytes())?.resolve(host)?;
    let actor = host.actor().to_owned();
    let submitted = runtime::block_on_with(host, async {
        let queue = config.connect(host, session, false).await?;
        let name = jobs_queue::host_name(session)?;
        let metrics = jobs_queue::ProcessMetrics::new(&name).jobs;
        let jobs = jobs_queue::service(queue, host.clone(), metrics);
        Ok(jobs.submit(NewJob { key, actor, request, traceparent: None }).await?)
    })?;
    let SubmittedJob { job, is_known } = submitted;
    if is_known {
        let key = sanitize_line(&job.idempotency_key, 200);
        session.ui.note(&format!("submitted before with the key {key}: it is one job"));
    }
    session.ui.result(&job, |page| jobs::page(&job, page))
}

/// Returns the fields of an object that are not null.
fn fields(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Returns the identities as an object; null if there are none.
fn identities(chosen: Vec<(String, String)>) -> Value {
    match chosen.is_empty() {
        true => Value::Null,
        false => chosen
            .into_iter()
            .map(|(service, identity)| (service, Value::from(identity)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// Checks that there is a queue before anything else is read.
fn require_queue(session: &Session<'_>) -> Result<(), HostError> {
    QueueConfig::required(session).map(drop)
}
