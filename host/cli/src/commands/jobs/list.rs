//! `jobs list`: the jobs that are known.

use cofferdam_server::http_api::JobState;

use super::{format_time, with_jobs};
use crate::report::CommandError;
use crate::session::Session;

/// Longest target in the table, in characters.
const TARGET_CHARS: usize = 70;

const EXAMPLES: &str = "\
Examples:
  cofferdam jobs list
  cofferdam jobs list --state dead --format json";

/// Lists the jobs that wait, run, or ended within their time, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only those in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<StateArg>,

    /// At most so many jobs; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum StateArg {
    /// It waits.
    Queued,
    /// A worker runs it.
    Running,
    /// It has a value.
    Done,
    /// It has a failure.
    Failed,
    /// An operator has to decide.
    Dead,
    /// It was cancelled.
    Cancelled,
}

impl From<StateArg> for JobState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Queued => Self::Queued,
            StateArg::Running => Self::Running,
            StateArg::Done => Self::Done,
            StateArg::Failed => Self::Failed,
            StateArg::Dead => Self::Dead,
            StateArg::Cancelled => Self::Cancelled,
        }
    }
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let state = args.state.map(JobState::from);
    let most = if args.limit == 0 { usize::MAX } else { args.limit };
    let jobs = with_jobs(session, async |jobs| Ok(jobs.list(state, most).await?))?;
    session.ui.result(&jobs, |page| {
        if jobs.is_empty() {
            page.line("No job is known.");
            return;
        }
        let rows = jobs.iter().map(|job| {
            let target = cofferdam_core::failure::sanitize_line(&job.target.to_string(), TARGET_CHARS);
            let code = job.code.clone().unwrap_or_default();
            [job.id.clone(), job.state.name().to_owned(), format_time(&job.submitted_at), target, code]
        });
        page.table(["JOB", "STATE", "SUBMITTED", "RUNS", "CODE"], rows.collect());
    })
}
