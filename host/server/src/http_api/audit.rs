//! `GET /v1/audit/{id}`: the part of a call's audit entry that programs may see.
//!
//! The caller of the API may be neither the operator nor the caller of the requested call. So there are no
//! arguments and no results here, no causes and no text of a connector: `cofferdam audit show` has those.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_audit::{AuditError, CallRow, LoggedEvent};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::recorded::{AttemptEnded, Ended, RecordedEvent};
use cofferdam_core::failure::{AuditId, sanitize_line};
use cofferdam_runtime::host::{Host, unreadable};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{HttpApi, response};

/// The fields of an event that are returned: no texts of callers, connectors or services.
const FACTS: [&str; 11] =
    ["attempt", "candidate", "class", "code", "delay_ms", "of", "by", "step", "call", "status", "parent"];

/// The fields of a failure that are returned: the host's own words. Its message may contain text of a service
/// or a connector.
const OF_FAILURES: [&str; 5] = ["class", "code", "boundary", "retriable", "retried"];

/// A call in the audit log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "CallOnRecord")]
pub(super) struct LoggedCallView {
    /// The call's id.
    audit_id: String,
    /// The time at which it was received, as RFC 3339.
    at: String,
    /// The connector, as `name@version`.
    connector: String,
    /// The operation.
    op: String,
    /// The action that it was a step of.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    /// The caller's name.
    actor: String,
    /// True if it may be repeated.
    idempotent: bool,
    /// `running`, `value`, `failure`, `refused`, `cancelled`, `resumed`, `skipped`; or `incomplete`: started
    /// by a process that is gone.
    status: String,
    /// The failure's class.
    class: Option<String>,
    /// The failure's or the error's code.
    code: Option<String>,
    /// The duration in microseconds; none while it is running.
    duration_us: Option<u64>,
    /// The number of attempts; none while it is running.
    attempts: Option<u32>,
    /// The failure as its caller received it, without its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Map<String, Value>>,
    /// The events, in order.
    events: Vec<LoggedEventView>,
}

/// One event of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "Event")]
pub(super) struct LoggedEventView {
    /// From 1, without gaps.
    seq: u32,
    /// The time, as RFC 3339.
    at: String,
    /// The event's name.
    #[serde(rename = "type")]
    name: String,
    /// The fields of the event that may be returned.
    facts: Map<String, Value>,
}

/// Returns the call's view.
pub(super) async fn show(State(api): State<HttpApi>, id: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(id)) = id else { return response::no_such_path() };
    let Some(id) = AuditId::parse(&id) else {
        let message = format!("`{}` is not the id of a call.", sanitize_line(&id, 100));
        let hint = "It is written like audit-0193b5c8-7d3e-7c4a-9f21-3e5d8a1b6c70.";
        return response::host_error(HostError::new(HostErrorKind::AuditNotFound, message).with_hint(hint));
    };
    let host = api.host.clone();
    let read = tokio::task::spawn_blocking(move || read_call(&host, &id)).await.unwrap_or_else(|error| {
        Err(HostError::new(HostErrorKind::Internal, "The audit log could not be read.").with_source(error))
    });
    match read {
        // Texts and numbers: the serialization cannot fail.
        Ok(shown) => response::json(StatusCode::OK, serde_json::to_string(&shown).unwrap_or_default()),
        Err(error) => response::host_error(error),
    }
}

fn read_call(host: &Host, id: &AuditId) -> Result<LoggedCallView, HostError> {
    let not_there =
        || HostError::new(HostErrorKind::AuditNotFound, format!("The audit log has no call {id}."));
    let mut reader = host.audit().existing()?.ok_or_else(not_there)?;
    let mut read = || -> Result<_, AuditError> {
        let Some(row) = reader.call(id)? else { return Ok(None) };
        Ok(Some((row, reader.entries_of(id)?)))
    };
    let (row, entries) = read().map_err(unreadable)?.ok_or_else(not_there)?;
    // An invalid entry has no events here: `audit verify` checks the chain.
    let events: Vec<LoggedEvent> =
        entries.iter().flat_map(|entry| entry.events().unwrap_or_default()).collect();
    Ok(call_view(row, events))
}

fn call_view(row: CallRow, events: Vec<LoggedEvent>) -> LoggedCallView {
    let failure = events.iter().rev().find_map(|event| match event.event() {
        RecordedEvent::Final(Ended { failure, .. })
        | RecordedEvent::AttemptEnded(AttemptEnded { failure, .. }) => {
            serde_json::from_str::<Map<String, Value>>(failure?.get()).ok()
        }
        _ => None,
    });
    // The host's own errors are returned as a code only: their messages may name paths of the machine.
    let failure = failure.filter(|failure| failure.contains_key("class"));
    let error = failure.map(|failure| facts(&failure, &OF_FAILURES));
    let status = if row.incomplete { "incomplete" } else { row.status.name() };
    LoggedCallView {
        audit_id: row.audit_id.to_string(),
        at: format!("{:.6}", row.at),
        connector: row.connector,
        op: row.op,
        action: row.action,
        step: row.step,
        actor: row.actor,
        idempotent: row.idempotent,
        status: status.to_owned(),
        class: row.class,
        code: row.code,
        duration_us: row.duration_us,
        attempts: row.attempts,
        error,
        events: events
            .into_iter()
            .map(|event| LoggedEventView {
                facts: facts(&event.facts(), &FACTS),
                seq: event.seq,
                at: event.at,
                name: event.name,
            })
            .collect(),
    }
}

/// Returns the fields in `told` that are small.
fn facts(fields: &Map<String, Value>, told: &[&str]) -> Map<String, Value> {
    let small = |value: &Value| match value {
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= 2_000,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    let fields = fields.iter().filter(|(key, value)| told.contains(&key.as_str()) && small(value));
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}
