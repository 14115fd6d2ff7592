//! A call as one line for people: in a table, in a stream.

use cofferdam_audit::{CallRow, CallStatus};
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::host::Host;

use crate::commands::time_format;
use crate::layout::TextStyle;
use crate::report::CommandError;

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
    let Some(mut reader) = host.audit().existing()? else { return Ok(None) };
    let row = reader.call(id)?;
    Ok(row.filter(|row| row.status.has_end()).map(|row| EndedCall {
        status: row.status.name(),
        why: why(&row),
        is_good: row.status == CallStatus::Value,
        operation: row.op,
        actor: row.actor,
    }))
}

/// The style of a state.
pub(super) fn tone(row: &CallRow) -> TextStyle {
    match row.status {
        CallStatus::Value | CallStatus::Running => TextStyle::Good,
        CallStatus::Failure | CallStatus::Refused => TextStyle::Bad,
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
        row.status.name().to_owned(),
        why(row),
        row.duration_us.map(time_format::format_duration).unwrap_or_default(),
        row.attempts.map(|attempts| attempts.to_string()).unwrap_or_default(),
    ]
}
