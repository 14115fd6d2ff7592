//! `jobs show`: one job, with its outcome.

use std::time::Duration;

use cofferdam_server::http_api::JobService as _;
use tokio::time::{Instant, sleep};

use super::{page, with_jobs};
use crate::listen::time;
use crate::report::CommandError;
use crate::session::Session;

/// The pause between two looks at a job.
const PAUSE: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  cofferdam jobs show job-5a1d0d3c6f0e4b7f9a32c1d8e7b6a594
  cofferdam jobs show job-5a1d0d3c6f0e4b7f9a32c1d8e7b6a594 --wait 30s --format json";

/// Shows a job. Its outcome is shown to the user that submitted it; `cofferdam audit show` has it for operators.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The job's id.
    #[arg(value_name = "JOB")]
    id: String,

    /// Waits until it is over, for this long at most, like 30s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let job = with_jobs(session, async |jobs| {
        let until = args.wait.and_then(|wait| Instant::now().checked_add(wait));
        loop {
            let job = jobs.show(&args.id, jobs.actor()).await?;
            if job.state.is_final() || until.is_none_or(|until| Instant::now() >= until) {
                return Ok(job);
            }
            sleep(PAUSE).await;
        }
    })?;
    session.ui.result(&job, |it| page(&job, it))
}
