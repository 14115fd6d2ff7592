//! A call as one line: in a table, in a stream, for people and for programs.

use cofferdam_audit::{CallRow, CallStatus};
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::host::Host;
use serde::Serialize;

use super::{existing, map_read_error};
use crate::commands::time_format;
use crate::layout::TextStyle;
use crate::report::CommandError;

/// A call, for programs.
#[derive(Debug, Serialize)]
pub(super) struct CallLine<'r> {
    audit_id: &'r AuditId,
    at: String,
    connector: &'r str,
    op: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'r str>,
    actor: &'r str,
    idempotent: bool,
    status: &'static str,
    class: Option<&'r str>,
    code: Option<&'r str>,
    duration_us: Option<u64>,
    attempts: Option<u32>,
}

impl<'r> CallLine<'r> {
    pub(super) fn new(row: &'r CallRow) -> Self {
        Self {
            audit_id: &row.audit_id,
            at: format!("{:.6}", row.at),
            connector: &row.connector,
            op: &row.op,
            action: row.action.as_deref(),
            step: row.step.as_deref(),
            actor: &row.actor,
            idempotent: row.idempotent,
            status: row.state_name(),
            class: row.class.as_deref(),
            code: row.code.as_deref(),
            duration_us: row.duration_us,
            attempts: row.attempts,
        }
    }
}

/// The end of a recorded call, in words.
pub(crate) struct EndedCall {
    pub(crate) operation: String,
    pub(crate) actor: String,
    pub(crate) status: &'static str,
    pub(crate) why: String,
    pub(crate) is_good: bool,
}

/// Returns the end of a call; none if it is not recorded yet.
pub(crate) fn ended_call(host: &Host, id: &AuditId) -> Result<Option<EndedCall>, CommandError> {
    let Some(mut reader) = existing(host)? else { return Ok(None) };
    let row = map_read_error(reader.call(id))?;
    Ok(row.filter(|row| row.status != CallStatus::Running).map(|row| EndedCall {
        status: row.state_name(),
        why: why(&row),
        is_good: row.status == CallStatus::Value,
        operation: row.op,
        actor: row.actor,
    }))
}

/// The style of a state.
pub(super) fn tone(row: &CallRow) -> TextStyle {
    match row.status {
        CallStatus::Value => TextStyle::Good,
        CallStatus::Failure | CallStatus::Refused => TextStyle::Bad,
        CallStatus::Running if !row.incomplete => TextStyle::Good,
        _ => TextStyle::Doubtful,
    }
}

/// The class and the code, as far as there are any.
pub(super) fn why(row: &CallRow) -> String {
    let words: Vec<_> = [&row.class, &row.code].into_iter().flatten().map(String::as_str).collect();
    words.join(".")
}

/// The titles of the columns.
pub(super) const HEADER: [&str; 8] =
    ["TIME", "ID", "CONNECTOR", "OP", "STATUS", "WHY", "DURATION", "ATTEMPTS"];

/// A call, for people.
pub(super) fn cells(row: &CallRow) -> [String; 8] {
    [
        time_format::format_timestamp(row.at),
        row.audit_id.to_string(),
        row.connector.clone(),
        row.op.clone(),
        row.state_name().to_owned(),
        why(row),
        row.duration_us.map(time_format::format_duration).unwrap_or_default(),
        row.attempts.map(|attempts| attempts.to_string()).unwrap_or_default(),
    ]
}
