//! `recover skip`: leaves an interrupted call as it is.

use std::sync::Arc;

use cofferdam_runtime::flow::SkipRequest;

use crate::commands::audit;
use crate::process_user::ProcessUser;
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

const EXAMPLES: &str = "\
The reason goes into the audit log, with your name. The call's idempotency key stays taken, so that no client does \
it a second time by giving it again; with --free-key it may be given again, and then it runs. A key that stays \
taken can be freed later in the same way.

Examples:
  cofferdam recover skip audit-01890000-0000-7000-8000-000000000001 --reason 'the message is in the channel'
  cofferdam recover skip 01890000-0000-7000-8000-000000000001 --reason 'no order 17 there' --free-key";

/// Leaves an interrupted call as it is, and records the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The call, as `recover list` shows it; it may be abbreviated if no other call begins the same.
    #[arg(value_name = "ID")]
    id: String,

    /// The reason, such as the state that you found at the service.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Lets the call's idempotency key be used again: only where its effect is missing.
    #[arg(long)]
    free_key: bool,
}

pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let id = audit::resolve_id(&host, &args.id)?;
    let skip = SkipRequest {
        actor: Arc::from(ProcessUser::look_up().actor()),
        reason: args.reason,
        frees_key: args.free_key,
    };
    runtime::block_on_with(&host, async { Ok(host.skip(&id, skip).await?) })?;
    let skipped = serde_json::json!({"audit_id": id, "status": "skipped", "frees_key": args.free_key});
    session.ui.result(&skipped, |page| {
        page.field("skipped", id.as_str());
    })
}
