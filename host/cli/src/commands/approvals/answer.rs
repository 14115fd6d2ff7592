//! `approvals approve` and `approvals deny`: the answer of a person.

use std::time::Duration;

use cofferdam_runtime::approvals::ApprovalPolicy;
use cofferdam_runtime::host::{ApprovalAnswer, ApprovalDecision};

use crate::report::CommandError;
use crate::session::Session;

const APPROVE_EXAMPLES: &str = "\
The answer is in the audit log with your name. It is for exactly this caller, operation, arguments, package and \
idempotency key, and for one call, which has to be made again within ten minutes unless `config.toml` says \
otherwise. With --for and --same-arguments every call that differs in its key alone may run, until that time is over.

Examples:
  cofferdam approvals approve approval-01890000-0000-7000-8000-000000000001
  cofferdam approvals approve 01890000-0000-7000-8000-000000000001 --reason 'asked for in ticket 17'
  cofferdam approvals approve 01890000-0000-7000-8000-000000000001 --for 10m --same-arguments";

const DENY_EXAMPLES: &str = "\
The answer is in the audit log with your name. The same call is refused until its request would have ended. An \
approval that no call has used up is withdrawn by this.

Examples:
  cofferdam approvals deny approval-01890000-0000-7000-8000-000000000001
  cofferdam approvals deny 01890000-0000-7000-8000-000000000001 --reason 'the folder is still in use'";

/// Lets a call run that waits for the approval of a person.
#[derive(Debug, clap::Args)]
#[command(after_help = APPROVE_EXAMPLES)]
pub(crate) struct ApproveArgs {
    /// The approval, as `approvals list` shows it; it may be abbreviated if no other one begins the same.
    #[arg(value_name = "ID")]
    id: String,

    /// The time within which all calls with the same arguments may run, from 10s to 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = window, requires = "same_arguments")]
    time: Option<Duration>,

    /// Lets all calls with the same arguments run, and not one alone.
    #[arg(long, requires = "time")]
    same_arguments: bool,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Refuses a call that waits for the approval of a person.
#[derive(Debug, clap::Args)]
#[command(after_help = DENY_EXAMPLES)]
pub(crate) struct DenyArgs {
    /// The approval, as `approvals list` shows it; it may be abbreviated if no other one begins the same.
    #[arg(value_name = "ID")]
    id: String,

    /// The reason, for the audit log. The caller is not told.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn approve(args: ApproveArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let decision = args.time.map_or(ApprovalDecision::Approve, ApprovalDecision::ApproveSameArguments);
    answer(&args.id, decision, args.reason, session)
}

pub(super) fn deny(args: DenyArgs, session: &Session<'_>) -> Result<(), CommandError> {
    answer(&args.id, ApprovalDecision::Deny, args.reason, session)
}

fn answer(
    id: &str,
    decision: ApprovalDecision,
    reason: Option<String>,
    session: &Session<'_>,
) -> Result<(), CommandError> {
    let host = session.host()?;
    let approval = host.answer_approval(id, ApprovalAnswer { decision, reason, by: None })?;
    session.ui.result(&approval, |page| {
        page.field(approval.state.name(), approval.id.as_str());
        if let Some(until) = approval.usable_until {
            page.field("until", &format!("{until:.0}"));
        }
    })?;
    if decision != ApprovalDecision::Deny {
        session.ui.note("Its caller has to repeat the call.");
    }
    Ok(())
}

fn window(text: &str) -> Result<Duration, String> {
    ApprovalPolicy::window(text).map_err(|refused| format!("{}: {}", refused.message(), refused.fix()))
}
