//! Replays the recorded outcome of a call byte for byte. Nothing is loaded, and nothing runs.

use cofferdam_audit::CallStatus;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, sanitize_line};

use super::recorded_call::{RecordedCall, find};
use crate::call::{CallPipeline, RecordedOutcome};

/// Returns the outcome of a call as it was returned to its caller. Blocks.
///
/// # Errors
/// `audit_not_found`; `not_replayable`, with the reason: `still_running`, `execution_incomplete`, `cancelled`,
/// `not_kept` or `sealed_under_another_key`; `audit_unavailable`: the audit log cannot be read.
pub(crate) fn replay(
    pipeline: &CallPipeline,
    audit_id: &AuditId,
) -> Result<RecordedOutcome<String>, HostError> {
    let mut found = find(&**pipeline.log(), audit_id)?;
    if let (None, Some(of)) = (&found.outcome, &found.replayed_of) {
        // The outcome is stored once, with the call that ran.
        found = find(&**pipeline.log(), of)?;
    }
    let audit_id = &found.row.audit_id;
    let Some(outcome) = &found.outcome else { return Err(without_outcome(&found)) };
    pipeline.recorded(audit_id, outcome).map_err(|error| {
        let message = format!("The outcome of {audit_id} does not open.");
        refused("sealed_under_another_key", &message)
            .with_hint("Either host.key is not the one that it was sealed with, or it was changed: `cofferdam audit verify` looks.")
            .with_source(error)
    })
}

fn without_outcome(found: &RecordedCall) -> HostError {
    let id = &found.row.audit_id;
    let show = format!("`cofferdam audit show {id}` has what is known.");
    match (found.row.status, &found.resumed_by) {
        (CallStatus::Running, _) => refused("still_running", &format!("The call {id} is still running."))
            .with_hint("Wait for its end."),
        (CallStatus::Resumed, Some(by)) => {
            let by = sanitize_line(by, 60);
            refused("execution_incomplete", &format!("The call {id} was cut short, and done again as {by}."))
                .with_hint(format!("cofferdam replay {by}"))
        }
        (CallStatus::Incomplete | CallStatus::Resumed, _) => {
            refused("execution_incomplete", &format!("The call {id} was cut short: it has no outcome."))
                .with_hint("`cofferdam recover list` shows what can be done about it.")
        }
        (CallStatus::Skipped, _) => {
            refused("execution_incomplete", &format!("The call {id} was cut short, and skipped."))
                .with_hint(show)
        }
        (CallStatus::Cancelled, _) => {
            refused("cancelled", &format!("The call {id} was cancelled before it had an outcome."))
                .with_hint(show)
        }
        _ => refused("not_kept", &format!("The outcome of {id} is not kept.")).with_hint(show),
    }
}

fn refused(reason: &str, message: &str) -> HostError {
    HostError::new(HostErrorKind::NotReplayable, message).detail("replayable", false).detail("reason", reason)
}
