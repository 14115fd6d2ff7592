//! `recover resume`: repeats interrupted calls, if repeating them is safe.

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::call::{CallResult, Cancellation};
use cofferdam_runtime::host::Host;
use serde::Serialize;
use serde_json::Value;

use crate::allow_private::AllowPrivate;
use crate::answer::OutcomeFields;
use crate::commands::audit;
use crate::exit_codes::exit_code;
use crate::process_user::ProcessUser;
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;

const EXAMPLES: &str = "\
Each is one line of JSON: which call it does again, its own id, and its outcome. It runs under the \
idempotency key that the first had, with its arguments and its package. What must not be repeated is \
refused; with --all it is left out.

Examples:
  cofferdam recover resume audit-01890000-0000-7000-8000-000000000001
  cofferdam recover resume --all";

/// Repeats interrupted calls, if they may be repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The calls, as `recover list` shows them; each may be abbreviated if no other call begins the same.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,

    /// Every one that may be repeated, the oldest first.
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    private: AllowPrivate,
}

/// The outcome of one call.
#[derive(Serialize)]
struct ResumedCall<'a> {
    resumes: &'a AuditId,
    audit_id: &'a AuditId,
    #[serde(flatten)]
    outcome: OutcomeFields<'a, Value>,
}

pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host_with(|builder| args.private.apply_to(builder))?;
    let ids: Vec<AuditId> = match args.all {
        false => args.ids.iter().map(|id| audit::resolve_id(&host, id)).collect::<Result<_, _>>()?,
        true => {
            let found = host.incomplete()?.into_iter();
            found.filter(|call| call.resumable).map(|call| call.audit_id).collect()
        }
    };
    let cancellation = Cancellation::new();
    let all = resume(&host, &ids, args.all, &cancellation, session);
    let (outcome, stop) = runtime::block_on_call(&host, &cancellation, all)?;
    match (outcome?, stop) {
        (_, Some(stop)) => Err(stop),
        (Some(code), None) => Err(CommandError::Shown(code)),
        (None, None) => Ok(()),
    }
}

/// Does them again one after the other; the exit code of the first that has no value.
async fn resume(
    host: &Host,
    ids: &[AuditId],
    all: bool,
    cancellation: &Cancellation,
    session: &Session<'_>,
) -> Result<Option<u8>, CommandError> {
    let (mut failed, mut done, actor) = (None, 0_u32, ProcessUser::look_up().actor());
    for before in ids {
        if cancellation.is_cancelled() {
            break;
        }
        let CallResult { outcome, report } = host.resume(before, &actor, Some(cancellation)).await;
        match &outcome {
            // It was resumed since the listing, through its key or by another command.
            Err(Error::Host(error)) if all && error.kind() == HostErrorKind::Conflict => continue,
            Err(error) => failed = failed.or(Some(exit_code(error))),
            Ok(_) => {}
        }
        done += 1;
        let outcome = (&outcome).into();
        let resumed = ResumedCall { resumes: before, audit_id: &report.audit_id, outcome };
        session.ui.line_of_json(&resumed).map_err(CommandError::with_work_left)?;
        failpoint::pass("outcome.told");
    }
    if done == 0 {
        session.ui.note("There is nothing to do again.");
    }
    Ok(failed)
}
