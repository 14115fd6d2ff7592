//! `approvals list`: the calls that wait for a person.

use cofferdam_audit::approvals::{Approval, ApprovalState};

use crate::layout::Page;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
A call that waits was not run. Once it is approved, its caller repeats it. Answers and ended requests are shown \
with --all as long as they are kept; the audit log has them for good. `approvals grants` lists what connectors \
were denied.

Examples:
  cofferdam approvals list
  cofferdam approvals list --all --format json";

/// Lists the calls that wait for the approval of a person, the oldest first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Lists those with an answer, too, and those that ended without one.
    #[arg(long)]
    all: bool,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let mut found = session.host()?.approvals()?;
    found.retain(|approval| args.all || approval.state == ApprovalState::Waiting);
    session.ui.result(&found, |it| page(&found, it))?;
    match found.is_empty() {
        true => session.ui.note("No call waits for a person."),
        false => session.ui.note("See what one would do, and answer it: cofferdam approvals show ID"),
    }
    session.ui.note("See what connectors were denied: cofferdam approvals grants");
    Ok(())
}

fn page(found: &[Approval], page: &mut Page) {
    if found.is_empty() {
        return;
    }
    let rows = found.iter().map(|approval| {
        [
            approval.id.to_string(),
            approval.state.name().to_owned(),
            approval.actor.clone(),
            format!("{} {}", approval.connector, approval.op),
            format!("{:.0}", approval.waits_until),
        ]
    });
    page.table(["ID", "STATE", "ACTOR", "CALL", "UNTIL"], rows.collect());
}
