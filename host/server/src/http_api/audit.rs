//! `GET /v1/audit/{id}`: what the record has of a call that programs may know.
//!
//! Who calls may be another than the operator, and another than who made the call that is asked for. So there are no
//! arguments and no results here, no causes and nothing that a connector wrote: `cofferdam audit show` has those.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_audit::{AuditError, CallRow, StoredEntry};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, safe_line};
use cofferdam_runtime::host::{Host, unreadable};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HttpApi, answer};

/// What of an event is told: no texts of callers, connectors or services.
const FACTS: [&str; 12] = [
    "attempt",
    "candidate",
    "class",
    "code",
    "delay_ms",
    "outcome",
    "of",
    "by",
    "step",
    "call",
    "status",
    "parent",
];

/// What of a failure is told: words of the host's. Its message may have a service's or a connector's in it.
const OF_FAILURES: [&str; 5] = ["class", "code", "boundary", "retriable", "retried"];

/// A call on record.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "CallOnRecord")]
pub(super) struct Shown {
    /// The call's id.
    audit_id: String,
    /// When it was received, as RFC 3339.
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
    /// Who asked.
    actor: String,
    /// Whether it may be repeated.
    idempotent: bool,
    /// `running`, `value`, `failure`, `refused`, `cancelled`, `resumed`, `skipped`; or `incomplete`: begun by a process
    /// that is gone.
    status: String,
    /// The failure's class.
    class: Option<String>,
    /// The failure's or the error's code.
    code: Option<String>,
    /// How long it took, in microseconds; none while it has no end.
    duration_us: Option<u64>,
    /// How many attempts were made; none while it has no end.
    attempts: Option<u32>,
    /// What its caller was told of a failure, but for its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Map<String, Value>>,
    /// What happened, in order.
    events: Vec<Happened>,
}

/// One step of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "Event")]
pub(super) struct Happened {
    /// From 1, without gaps.
    seq: u32,
    /// When, as RFC 3339.
    at: String,
    /// What.
    #[serde(rename = "type")]
    name: String,
    /// What can be told of it.
    facts: Map<String, Value>,
}

#[derive(Deserialize)]
struct Body {
    events: Vec<EventOf>,
}

#[derive(Deserialize)]
struct EventOf {
    seq: u32,
    at: String,
    #[serde(rename = "type")]
    name: String,
    payload: Map<String, Value>,
}

/// Shows it.
pub(super) async fn shown(State(api): State<HttpApi>, id: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(id)) = id else { return answer::no_such_path() };
    let Some(id) = AuditId::parse(&id) else {
        let message = format!("`{}` is not the id of a call.", safe_line(&id, 100));
        let hint = "It is written like audit-0193b5c8-7d3e-7c4a-9f21-3e5d8a1b6c70.";
        return answer::host_error(HostError::new(HostErrorKind::AuditNotFound, message).hint(hint));
    };
    let host = api.host.clone();
    let read = tokio::task::spawn_blocking(move || look(&host, &id)).await.unwrap_or_else(|error| {
        Err(HostError::new(HostErrorKind::Internal, "The record could not be read.").because(error))
    });
    match read {
        // Texts and numbers: nothing in it can fail.
        Ok(shown) => answer::json(StatusCode::OK, serde_json::to_string(&shown).unwrap_or_default()),
        Err(error) => answer::host_error(error),
    }
}

fn look(host: &Host, id: &AuditId) -> Result<Shown, HostError> {
    let not_there = || HostError::new(HostErrorKind::AuditNotFound, format!("The record has no call {id}."));
    let mut reader = host.audit().existing()?.ok_or_else(not_there)?;
    let mut read = || -> Result<_, AuditError> {
        let Some(row) = reader.call(id)? else { return Ok(None) };
        Ok(Some((row, reader.entries_of(id)?)))
    };
    let (row, entries) = read().map_err(unreadable)?.ok_or_else(not_there)?;
    let events: Vec<EventOf> = entries.iter().flat_map(events).collect();
    Ok(told(row, events))
}

/// What is no entry of ours says nothing here: the chain is what `audit verify` is for.
fn events(entry: &StoredEntry) -> Vec<EventOf> {
    serde_json::from_str::<Body>(&entry.body).map(|body| body.events).unwrap_or_default()
}

fn told(row: CallRow, events: Vec<EventOf>) -> Shown {
    let failure = events.iter().rev().find_map(|event| event.payload.get("failure")?.as_object());
    // The host's own errors are told by their code alone: their messages may name places of the machine.
    let failure = failure.filter(|failure| failure.contains_key("class"));
    let error = failure.map(|failure| facts(failure, &OF_FAILURES));
    let status = if row.incomplete { "incomplete" } else { row.status.name() };
    Shown {
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
            .map(|event| Happened {
                facts: facts(&event.payload, &FACTS),
                seq: event.seq,
                at: event.at,
                name: event.name,
            })
            .collect(),
    }
}

/// Those of the fields that are told, where they are small.
fn facts(fields: &Map<String, Value>, told: &[&str]) -> Map<String, Value> {
    let small = |value: &Value| match value {
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= 2_000,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    let fields = fields.iter().filter(|(key, value)| told.contains(&key.as_str()) && small(value));
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}
