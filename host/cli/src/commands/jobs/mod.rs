//! `jobs`: lists, shows, cancels and retries jobs.

mod list;
mod show;

use cofferdam_cluster::jobs::Jobs;
use cofferdam_server::http_api::{JobService as _, JobState, JobView};
use jiff::Timestamp;

use super::time_format::format_timestamp;
use crate::jobs_queue::{self, QueueConfig};
use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

const CANCEL_EXAMPLES: &str = "\
Examples:
  cofferdam jobs cancel job-5a1d0d3c6f0e4b7f9a32c1d8e7b6a594";

const RETRY_EXAMPLES: &str = "\
Examples:
  cofferdam jobs list --state dead
  cofferdam jobs retry job-5a1d0d3c6f0e4b7f9a32c1d8e7b6a594";

/// Lists the jobs on the queue, and shows, cancels or retries one.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Show(show::Args),
    Cancel(CancelArgs),
    Retry(RetryArgs),
}

/// Cancels a job.
///
/// One that waits is never run. The worker that runs one cancels its call within seconds; it may have had effects, and
/// `cofferdam recover list` has what is to be decided about then. One that is dead is discarded.
#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub(crate) struct CancelArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    id: String,
}

/// Puts a dead job on the queue again, under its key: what is done of it is not done again.
///
/// Mend the cause first: `cofferdam jobs show` has it. After `outcome_unknown`, look at the service, and free the key with
/// `cofferdam recover skip ID --free-key` if the effect is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = RETRY_EXAMPLES)]
pub(crate) struct RetryArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    id: String,
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list::run(&args, session),
        Command::Show(args) => show::run(&args, session),
        Command::Cancel(args) => changed(session, async |jobs| jobs.cancel(&args.id).await),
        Command::Retry(args) => changed(session, async |jobs| jobs.retry(&args.id).await),
    }
}

/// Changes a job, and prints it.
fn changed(
    session: &Session<'_>,
    change: impl AsyncFnOnce(&Jobs) -> Result<JobView, cofferdam_core::error::HostError>,
) -> Result<(), CommandError> {
    let job = with_jobs(session, async |jobs| Ok(change(jobs).await?))?;
    session.ui.result(&job, |it| page(&job, it))
}

/// Runs `ask` with the service of jobs.
fn with_jobs<T>(
    session: &Session<'_>,
    ask: impl AsyncFnOnce(&Jobs) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let config = QueueConfig::required(session)?;
    let host = session.host()?;
    let name = jobs_queue::host_name(session)?;
    runtime::block_on_with(&host, async {
        let queue = config.connect(&host, session, false).await?;
        let metrics = jobs_queue::ProcessMetrics::new(&name).jobs;
        ask(&jobs_queue::service(queue, host.clone(), metrics)).await
    })
}

/// Shows a job to a person.
pub(in crate::commands) fn page(job: &JobView, page: &mut Page) {
    page.field("job", &job.id);
    page.styled_field("state", style(job.state), job.state.name());
    page.field("key", &job.idempotency_key);
    page.field("runs", &job.target.to_string());
    page.field("asked by", &job.actor);
    page.field("submitted", &format_time(&job.submitted_at));
    page.field("changed", &format_time(&job.updated_at));
    page.field("attempts", &job.attempts.to_string());
    let next_attempt = job.next_attempt_at.as_deref().map(format_time);
    let further = [
        ("next attempt", &next_attempt),
        ("audit id", &job.audit_id),
        ("replayed", &job.replayed),
        ("class", &job.class),
        ("code", &job.code),
        ("reason", &job.reason),
    ];
    for (label, text) in further {
        if let Some(text) = text {
            page.field(label, text);
        }
    }
    if let Some(value) = &job.value {
        page.field("value", value.get());
    }
}

/// Formats an RFC 3339 time, as the tables of the audit log have it.
fn format_time(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), format_timestamp)
}

fn style(state: JobState) -> TextStyle {
    match state {
        JobState::Queued | JobState::Running | JobState::Done => TextStyle::Good,
        JobState::Cancelled => TextStyle::Doubtful,
        JobState::Failed | JobState::Dead => TextStyle::Bad,
    }
}
