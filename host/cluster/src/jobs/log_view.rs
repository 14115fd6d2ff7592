//! The audit log's word about the run of a job. It alone decides what is said about an outcome.

use cofferdam_audit::{AuditError, CallStatus};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::host::{Host, unreadable};
use serde_json::Value;
use serde_json::value::RawValue;

/// The state of a run in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoggedRun {
    /// The log does not have it: it did not begin, or was pruned.
    Absent,
    /// It runs, on a host that lives.
    Running,
    /// It has no end, and its host is gone.
    Interrupted,
    /// It has a value.
    Value,
    /// It has a failure.
    Failure,
    /// It ended without an outcome: it was refused or cancelled, or an operator decided about it.
    Ended,
}

/// The outcome of a run, as its caller got it.
#[derive(Debug, Default)]
pub(super) struct LoggedOutcome {
    pub(super) value: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
}

/// Returns the state of a run.
///
/// # Errors
/// `audit_unavailable`: the log cannot be read.
pub(super) async fn look(host: &Host, audit_id: &AuditId) -> Result<LoggedRun, HostError> {
    let id = audit_id.clone();
    in_background(host, move |host| {
        let Some(mut reader) = host.audit().existing()? else { return Ok(LoggedRun::Absent) };
        let row = reader.call(&id).map_err(|error: AuditError| unreadable(error))?;
        Ok(match row {
            None => LoggedRun::Absent,
            Some(row) => match row.status {
                CallStatus::Running => LoggedRun::Running,
                CallStatus::Incomplete => LoggedRun::Interrupted,
                CallStatus::Value => LoggedRun::Value,
                CallStatus::Failure => LoggedRun::Failure,
                _ => LoggedRun::Ended,
            },
        })
    })
    .await
}

/// Returns the outcome of a run; an empty one if none is kept.
///
/// # Errors
/// `audit_unavailable`: the log cannot be read. A job that is done must not look as if it had no value.
pub(super) async fn outcome(host: &Host, audit_id: &AuditId) -> Result<LoggedOutcome, HostError> {
    let id = audit_id.clone();
    let read = in_background(host, move |host| {
        let outcome = host.replay(&id)?.outcome;
        Ok(match outcome {
            Ok(text) => LoggedOutcome { value: RawValue::from_string(text).ok(), error: None },
            Err(error) => LoggedOutcome { value: None, error: envelope_content(&error) },
        })
    });
    match read.await {
        Err(error) if error.kind() == HostErrorKind::AuditUnavailable => Err(error),
        // Without results in the log, the state is still known.
        read => Ok(read.unwrap_or_default()),
    }
}

/// Returns the content of the envelope of an error.
fn envelope_content(error: &Error) -> Option<Box<RawValue>> {
    let mut envelope = serde_json::to_value(error).ok()?;
    let content = envelope.get_mut("error").map(Value::take)?;
    serde_json::value::to_raw_value(&content).ok()
}

/// Runs `read`, which blocks, off the executor's threads.
///
/// # Errors
/// Those of `read`.
pub(super) async fn in_background<T: Send + 'static>(
    host: &Host,
    read: impl FnOnce(&Host) -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let host = host.clone();
    let done = tokio::task::spawn_blocking(move || read(&host)).await;
    done.unwrap_or_else(|error| {
        Err(HostError::new(HostErrorKind::Internal, "A part of a job could not be read.").with_source(error))
    })
}
