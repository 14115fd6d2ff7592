//! The recorded outcome of a call, given again byte for byte: nothing is loaded, and nothing runs.

use cofferdam_audit::CallStatus;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, safe_line};
use cofferdam_sandbox::Answer;

use super::found::{Found, find};
use crate::call::{Pipeline, Recorded};

/// The outcome of a call as it was told. Blocks.
///
/// # Errors
/// `audit_not_found`; `not_replayable`, and why: `still_running`, `execution_incomplete`, `cancelled`, `not_kept` or
/// `sealed_under_another_key`; `audit_unavailable`: the record cannot be read.
pub(crate) fn replay<A: Answer>(pipeline: &Pipeline, audit_id: &AuditId) -> Result<Recorded<A>, HostError> {
    let mut found = find(&**pipeline.log(), audit_id)?;
    if let (None, Some(of)) = (&found.outcome, &found.replayed_of) {
        // The outcome is kept once: with the call that ran.
        found = find(&**pipeline.log(), of)?;
    }
    let audit_id = &found.row.audit_id;
    let Some(outcome) = &found.outcome else { return Err(without_outcome(&found)) };
    pipeline.recorded(audit_id, outcome).map_err(|error| {
        let message = format!("The outcome of {audit_id} does not open.");
        refused("sealed_under_another_key", &message)
            .hint("Either host.key is not the one that it was sealed with, or it was changed: `cofferdam audit verify` looks.")
            .because(error)
    })
}

fn without_outcome(found: &Found) -> HostError {
    let id = &found.row.audit_id;
    let show = format!("`cofferdam audit show {id}` has what is known.");
    match (found.row.status, &found.resumed_by) {
        (CallStatus::Running, _) if !found.row.incomplete => {
            refused("still_running", &format!("The call {id} is still running.")).hint("Wait for its end.")
        }
        (CallStatus::Resumed, Some(by)) => {
            let by = safe_line(by, 60);
            refused("execution_incomplete", &format!("The call {id} was cut short, and done again as {by}."))
                .hint(format!("cofferdam replay {by}"))
        }
        (CallStatus::Running | CallStatus::Resumed, _) => {
            refused("execution_incomplete", &format!("The call {id} was cut short: it has no outcome."))
                .hint("`cofferdam recover list` shows what can be done about it.")
        }
        (CallStatus::Skipped, _) => {
            refused("execution_incomplete", &format!("The call {id} was cut short, and skipped.")).hint(show)
        }
        (CallStatus::Cancelled, _) => {
            refused("cancelled", &format!("The call {id} was cancelled before it had an outcome.")).hint(show)
        }
        _ => refused("not_kept", &format!("The outcome of {id} is not kept.")).hint(show),
    }
}

fn refused(reason: &str, message: &str) -> HostError {
    HostError::new(HostErrorKind::NotReplayable, message).detail("replayable", false).detail("reason", reason)
}
