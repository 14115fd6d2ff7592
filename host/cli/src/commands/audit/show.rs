//! `audit show`: everything in the audit log about one call, for its operator.

use cofferdam_audit::{CallRow, CallStatus, LoggedEvent, StoredEntry};
use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{attempt_facts, id, line};
use crate::commands::time_format;
use crate::layout::Page;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
This is the operator's view, with causes and notes that callers and agents do not get.

Examples:
  cofferdam audit show audit-0193b5c8-7d3e-7c4a-9f21-3e5d8a1b6c70
  cofferdam audit show 0193b5c8-7d3e
  cofferdam audit show 0193b5c8-7d3e --format json | jq .error";

/// Shows the audit log of one call: every step with its time, and its failure with its causes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The call's ID; `audit-` may be left out, and so may the end where no other call begins the same.
    #[arg(value_name = "ID")]
    id: String,
}

/// The place of one entry in the hash chain.
#[derive(Debug, Serialize)]
struct EntryPlace {
    writer: String,
    n: u64,
    sha256: String,
}

impl From<&StoredEntry> for EntryPlace {
    fn from(entry: &StoredEntry) -> Self {
        Self { writer: entry.writer.clone(), n: entry.n, sha256: entry.sha256() }
    }
}

/// Everything, for programs.
#[derive(Debug, Serialize)]
struct CallDetails<'r> {
    #[serde(flatten)]
    call: &'r CallRow,
    error: Option<&'r Map<String, Value>>,
    events: &'r [LoggedEvent],
    entries: &'r [EntryPlace],
}

/// Shows it.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let Some(mut reader) = host.audit().existing()? else { return id::find(None, &args.id).map(drop) };
    let id = id::find(Some(&mut *reader), &args.id)?;
    let gone = || HostError::new(HostErrorKind::AuditNotFound, "The call is not in the audit log any more.");
    let row = reader.call(&id)?.ok_or_else(gone)?;
    let (entries, events) = reader.events_of(&id)?;
    let places: Vec<_> = entries.iter().map(EntryPlace::from).collect();
    let error = error(&row, &events);
    let shown = CallDetails { call: &row, error: error.as_ref(), events: &events, entries: &places };
    session.ui.result(&shown, |it| {
        page(&row, error.as_ref(), &events, it);
        it.heading("in the audit log");
        for EntryPlace { writer, n, sha256 } in &places {
            it.block(0, &format!("entry {n} of the journal {writer}, sha256 {sha256}"));
        }
    })
}

/// The failure or the error that the call ended with, with everything that the audit log has about it.
fn error(row: &CallRow, events: &[LoggedEvent]) -> Option<Map<String, Value>> {
    row.code.as_ref()?;
    let known = || {
        let known = [("class", &row.class), ("code", &row.code)];
        let known = known.into_iter().filter_map(|(key, word)| Some((key.to_owned(), word.clone()?.into())));
        known.collect()
    };
    Some(events.iter().rev().find_map(|event| event.failure(row)).unwrap_or_else(known))
}

fn page(row: &CallRow, error: Option<&Map<String, Value>>, events: &[LoggedEvent], page: &mut Page) {
    page.field("call", row.audit_id.as_str());
    page.styled_field("status", line::tone(row), &format!("{} {}", row.status.name(), line::why(row)));
    page.field("connector", &row.connector);
    page.field("operation", &row.op);
    if let Some(action) = &row.action {
        let step = row.step.as_ref().map(|step| format!(", step {step}")).unwrap_or_default();
        page.field("action", &format!("{action}{step}"));
    }
    page.field("asked by", &row.actor);
    page.field("received", &time_format::format_timestamp(row.at));
    if let Some(micros) = row.duration_us {
        let attempts = match row.attempts {
            Some(0) => ", nothing was attempted".to_owned(),
            None | Some(1) => String::new(),
            Some(attempts) => format!(", {attempts} attempts"),
        };
        page.field("took", &format!("{}{attempts}", time_format::format_duration(micros)));
    }
    if row.status == CallStatus::Incomplete {
        let next = "its host is gone, and it has no end: `cofferdam recover list` says what can be done";
        page.field("incomplete", next);
    }
    page.heading("what happened");
    for event in events {
        let (since, facts) = (time_format::format_since(row.at, &event.at), event.facts());
        page.block(0, &format!("{:>3}  {since:>9}  {}", event.seq, event.name));
        for (key, value) in &facts {
            match (key.as_str(), value) {
                // All of the last one is said below.
                ("failure", Value::Object(failure)) => page.block(18, &in_short(&facts, failure)),
                ("requests", value) => attempt_facts::requests(page, 18, row.at, value),
                ("log", value) => attempt_facts::log(page, 18, row.at, value),
                (key, value) => add(page, 18, key, value),
            };
        }
    }
    if let Some(error) = error {
        page.heading("why it failed");
        for (key, value) in error {
            add(page, 2, key, value);
        }
    }
}

/// The failure in an event, in a line.
fn in_short(event: &Map<String, Value>, failure: &Map<String, Value>) -> String {
    let words: Vec<_> = ["class", "code"].iter().filter_map(|key| event.get(*key)?.as_str()).collect();
    let message = failure.get("message").and_then(Value::as_str).unwrap_or_default();
    format!("failure: {}: {message}", words.join("."))
}

/// A fact, set in by `indent` columns; what it consists of is set in further.
fn add<'p>(page: &'p mut Page, indent: usize, key: &str, value: &Value) -> &'p mut Page {
    let further = indent.saturating_add(2).min(40);
    let key = if key.is_empty() { "-".to_owned() } else { format!("{key}:") };
    match value {
        Value::Null => {}
        Value::Object(fields) if fields.is_empty() => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(fields) if fields.values().all(is_small) => {
            let facts = fields.iter().filter(|(_, value)| !value.is_null());
            let facts: Vec<_> = facts.map(|(key, value)| format!("{key} {}", plain(value))).collect();
            page.block(indent, &format!("{key} {}", facts.join(", ")));
        }
        Value::Object(fields) => {
            page.block(indent, &key);
            for (key, value) in fields {
                add(page, further, key, value);
            }
        }
        Value::Array(items) => {
            page.block(indent, &key);
            for item in items {
                add(page, further, "", item);
            }
        }
        value => {
            let text = plain(value);
            let mut lines = text.lines();
            page.block(indent, &format!("{key} {}", lines.next().unwrap_or_default()));
            lines.for_each(|line| {
                page.block(further, line);
            });
        }
    }
    page
}

/// Returns whether it fits on a line with other values.
fn is_small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= 40 && !text.contains('\n'),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
