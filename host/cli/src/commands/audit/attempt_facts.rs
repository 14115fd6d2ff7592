//! The requests and the log lines of an attempt, for people.

use cofferdam_audit::LoggedEvent;
use cofferdam_core::event::recorded::{AttemptEnded, RecordedEvent, RecordedLogLine, RecordedRequest};
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::host::Host;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::time_format;
use crate::layout::{Page, bytes};
use crate::report::CommandError;

/// Returns the recorded attempts of a call, in order.
pub(crate) fn attempts_of(host: &Host, id: &AuditId) -> Result<Vec<AttemptEnded<'static>>, CommandError> {
    let Some(mut reader) = host.audit().existing()? else { return Ok(Vec::new()) };
    let (_, events) = reader.events_of(id)?;
    let ended = |event: &LoggedEvent| match event.event() {
        RecordedEvent::AttemptEnded(ended) => Some(ended),
        _ => None,
    };
    Ok(events.iter().filter_map(ended).collect())
}

/// Adds the requests of an attempt of a call that began at `begin`, as a table.
pub(super) fn requests<'p>(
    page: &'p mut Page,
    indent: usize,
    begin: Timestamp,
    requests: &Value,
) -> &'p mut Page {
    let row = |request: RecordedRequest<'static>| {
        [
            time_format::format_since(begin, &request.at),
            request.method.to_string(),
            request.host.to_string(),
            request.path.to_string(),
            result(&request),
            format!("{} ms", request.ms),
            bytes(request.bytes_sent),
            bytes(request.bytes_received),
            if request.keyed { "yes" } else { "no" }.to_owned(),
            request.bindings.join(", "),
        ]
    };
    let rows = read(requests).into_iter().map(row).collect();
    let header = ["AT", "METHOD", "HOST", "PATH", "RESULT", "TOOK", "SENT", "RECEIVED", "KEY", "CREDENTIALS"];
    page.block(indent, "requests:").indented_table(indent.saturating_add(2), header, rows)
}

/// Returns the result of a request in a few words.
fn result(request: &RecordedRequest<'_>) -> String {
    let status = request.status.map(|status| status.to_string());
    let failure = request.code.as_deref().map(|code| match &request.phase {
        Some(phase) => format!("{code} ({phase})"),
        None => code.to_owned(),
    });
    let aborted = request.aborted.then(|| "aborted".to_owned());
    [status, failure, aborted].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Adds the lines that an attempt of a call that began at `begin` logged.
pub(super) fn log<'p>(page: &'p mut Page, indent: usize, begin: Timestamp, lines: &Value) -> &'p mut Page {
    page.block(indent, "log:");
    for RecordedLogLine { at, level, text } in read(lines) {
        let since = time_format::format_since(begin, &at);
        page.block(indent.saturating_add(2), &format!("{since:>9}  {level:<5}  {text}"));
    }
    page
}

/// Reads a list of which a newer version may have written some items in another form.
fn read<T: DeserializeOwned>(items: &Value) -> Vec<T> {
    let items = items.as_array().into_iter().flatten();
    items.filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}
