//! `approvals show`: all that a person has to know about a call that waits.

use cofferdam_audit::approvals::ApprovalState;

use super::view;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
The arguments are as the audit log has them: secrets are removed, and long ones are cut.

Examples:
  cofferdam approvals show approval-01890000-0000-7000-8000-000000000001
  cofferdam approvals show 01890000-0000-7000-8000-000000000001 --format json";

/// Shows a call that waits for the approval of a person, with its arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The approval, as `approvals list` shows it; it may be abbreviated if no other one begins the same.
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let approval = session.host()?.approval(&args.id)?;
    session.ui.result(&approval, |page| view::page(&approval, page))?;
    if approval.state == ApprovalState::Waiting {
        session.ui.note("Answer it: cofferdam approvals approve ID, or cofferdam approvals deny ID");
    }
    Ok(())
}
