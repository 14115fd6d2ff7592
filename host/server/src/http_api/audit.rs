//! `GET /v1/audit` and `GET /v1/audit/{id}`: the part of the audit entries of calls that programs may see, and `GET
//! /v1/stats`: their number and what they used.
//!
//! The caller of the API may be neither the operator nor the caller of the requested call. So there are no
//! arguments and no results here, no causes, no paths of requests and no log of a connector: `cofferdam audit show` has
//! those.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use cofferdam_audit::{AuditError, CallRow, LoggedEvent, Stats, StatsQuery, StatsReport, StoredEntry};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::recorded::{AttemptEnded, RecordedEvent, RecordedPhases, RecordedRequest};
use cofferdam_core::failure::{AuditId, sanitize_line};
use cofferdam_runtime::host::{Host, unreadable};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::calls::read_queued;
use super::query::{self, QueryParameters};
use super::{HttpApi, response};

/// The fields of an event that are returned: no texts of callers, connectors or services.
const FACTS: [&str; 11] =
    ["attempt", "candidate", "class", "code", "delay_ms", "of", "by", "step", "call", "status", "parent"];

/// The fields of a failure that are returned: the host's own words. Its message may contain text of a service
/// or a connector.
const OF_FAILURES: [&str; 5] = ["class", "code", "boundary", "retriable", "retried"];

/// A page of calls, the newest first.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallPage {
    /// The calls.
    pub calls: Vec<CallRow>,
    /// The value of `before` for the next page; none if this is the last one.
    pub next: Option<String>,
}

/// A call in the audit log.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "CallOnRecord")]
pub struct LoggedCallView {
    /// The call in one row.
    #[serde(flatten)]
    pub call: CallRow,
    /// The hash of the package that it ran, `sha256:` and 64 digits; none if none was admitted.
    pub hash: Option<String>,
    /// The id of the key that signed the package.
    pub signer: Option<String>,
    /// The name of its retry profile.
    pub profile: Option<String>,
    /// `given` if its caller gave an idempotency key, `minted` if the host made one.
    pub key: Option<String>,
    /// True if it ended and it is unknown what was done under its idempotency key: no call runs under the key
    /// until an operator decides.
    pub key_undecided: bool,
    /// The failure as its caller received it, without its message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Map<String, Value>>,
    /// The attempts that ended, in order.
    pub ended_attempts: Vec<AttemptReport>,
    /// The events, in order.
    pub events: Vec<LoggedEventView>,
    /// The entries of the audit log that have the events, in order.
    pub entries: Vec<LoggedEntryView>,
}

/// An attempt that ended.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Attempt")]
pub struct AttemptReport {
    /// The number of the attempt within the call, from 1.
    pub attempt: u32,
    /// The connector, as `name@version`: a fallback may be another one.
    pub connector: String,
    /// The time at which it ended, as RFC 3339.
    pub ended: String,
    /// `value`, `failure` or `refused`.
    pub status: String,
    /// The failure's class.
    pub class: Option<String>,
    /// The failure's or the error's code.
    pub code: Option<String>,
    /// The durations of its parts.
    pub phases: AttemptPhases,
    /// The resources that it used.
    pub usage: AttemptUsage,
    /// Its requests, without their paths, in the order in which the connector sent them.
    pub requests: Vec<RequestReport>,
}

/// The durations of an attempt's parts in microseconds.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct AttemptPhases {
    /// Queueing, loading and checks before it.
    pub admit_us: u64,
    /// Writing its beginning to the audit log.
    pub record_us: u64,
    /// The creation of the sandbox.
    pub instantiate_us: u64,
    /// The connector, its requests included.
    pub guest_us: u64,
}

/// The resources that an attempt used, and their limits.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct AttemptUsage {
    /// Burnt fuel.
    pub fuel: u64,
    /// The limit on fuel.
    pub fuel_limit: u64,
    /// The most bytes of memory in use at once.
    pub memory_bytes: u64,
    /// The limit on memory.
    pub memory_limit_bytes: u64,
    /// The wall time in microseconds.
    pub wall_us: u64,
    /// The limit on the wall time in milliseconds.
    pub wall_limit_ms: u64,
    /// The number of requests, with refused ones.
    pub requests: u64,
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Bytes of the requests' first lines and bodies.
    pub bytes_out: u64,
}

/// A request of an attempt, as the host observed it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Request")]
pub struct RequestReport {
    /// The time at which the connector sent it, as RFC 3339.
    pub at: String,
    /// The method.
    pub method: String,
    /// The host and port; empty if the URL had a secret in it.
    pub host: String,
    /// The status of its response.
    pub status: Option<u16>,
    /// The code of its failure or of its refusal.
    pub code: Option<String>,
    /// The phase in which it failed.
    pub phase: Option<String>,
    /// The time until its end in milliseconds.
    pub ms: u64,
    /// Bytes that may have left.
    pub bytes_sent: u64,
    /// Bytes of the response's body.
    pub bytes_received: u64,
    /// True if it carried the call's idempotency key.
    pub keyed: bool,
    /// True if it had neither a response nor an error when the attempt ended.
    pub aborted: bool,
    /// The names of the bindings whose credentials it carried.
    pub bindings: Vec<String>,
}

/// One event of a call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Event")]
pub struct LoggedEventView {
    /// From 1, without gaps.
    pub seq: u32,
    /// The time, as RFC 3339.
    pub at: String,
    /// The event's name.
    #[serde(rename = "type")]
    pub name: String,
    /// The fields of the event that may be returned.
    pub facts: Map<String, Value>,
}

/// The place of an entry in the hash chain of the audit log; without the hash of its line, by which short arguments could
/// be guessed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Entry")]
pub struct LoggedEntryView {
    /// The writer of its journal.
    pub writer: String,
    /// Its number in that journal, from 1, without gaps.
    pub n: u64,
}

impl HttpApi {
    /// Returns a page of the calls that the parameters of `GET /v1/audit` select, the newest first.
    ///
    /// # Errors
    /// `validation`: a parameter is not acceptable. `audit_unavailable`: the audit log cannot be read.
    pub async fn calls(&self, parameters: Vec<(String, String)>) -> Result<CallPage, HostError> {
        let mut filter = query::page(QueryParameters::new(parameters)?)?;
        let limit = filter.limit;
        // One more shows whether there is another page.
        filter.limit = limit.saturating_add(1);
        let host = self.host.clone();
        read_queued(self, move || {
            let Some(mut reader) = host.audit().existing()? else {
                return Ok(CallPage { calls: Vec::new(), next: None });
            };
            let mut rows = reader.list(&filter).map_err(unreadable)?;
            let has_more = rows.len() > limit;
            rows.truncate(limit);
            let next = rows.last().filter(|_| has_more).map(|row| row.audit_id.to_string());
            Ok(CallPage { calls: rows, next })
        })
        .await
    }

    /// Returns one call.
    ///
    /// # Errors
    /// `audit_not_found`; the audit log cannot be read.
    pub async fn logged_call(&self, id: &str) -> Result<LoggedCallView, HostError> {
        let Some(id) = AuditId::parse(id) else {
            let message = format!("`{}` is not the id of a call.", sanitize_line(id, 100));
            let hint = "It is written like audit-0193b5c8-7d3e-7c4a-9f21-3e5d8a1b6c70.";
            return Err(HostError::new(HostErrorKind::AuditNotFound, message).with_hint(hint));
        };
        let host = self.host.clone();
        read_queued(self, move || read_call(&host, &id)).await
    }

    /// Returns the statistics of the calls that the parameters of `GET /v1/stats` select.
    ///
    /// # Errors
    /// As [`calls`](Self::calls).
    pub async fn stats(&self, parameters: Vec<(String, String)>) -> Result<StatsReport, HostError> {
        let (filter, stats) = query::stats(QueryParameters::new(parameters)?)?;
        let host = self.host.clone();
        read_queued(self, move || {
            let Some(mut reader) = host.audit().existing()? else {
                return Ok(StatsReport::new(&Stats::default(), &Stats::default(), stats.by, Vec::new()));
            };
            let mut read = || -> Result<_, AuditError> {
                let all = reader.stats(&filter, StatsQuery::default())?;
                let grouped = reader.stats(&filter, stats)?;
                Ok(StatsReport::new(&all, &grouped, stats.by, reader.sealed_usage()?))
            };
            read().map_err(unreadable)
        })
        .await
    }
}

/// The parameters of a query, or the reason why they are none.
pub(super) type Parameters = Result<Query<Vec<(String, String)>>, QueryRejection>;

pub(super) fn parameters(parameters: Parameters) -> Result<Vec<(String, String)>, HostError> {
    parameters.map(|Query(parameters)| parameters).map_err(unreadable_query)
}

/// Returns the error for a query that is not in the form of a query.
pub(super) fn unreadable_query(error: QueryRejection) -> HostError {
    HostError::new(HostErrorKind::Validation, "The query cannot be read.")
        .with_hint("Write it like ?connector=github%3A%2F%2Facme%2Fslack&limit=10.")
        .with_source(error)
}

/// Returns a page of calls.
pub(super) async fn list(State(api): State<HttpApi>, query: Parameters) -> Response {
    let page = async { api.calls(parameters(query)?).await };
    page.await.map_or_else(response::host_error, |page| response::view(&page))
}

/// Returns the call's view.
pub(super) async fn show(State(api): State<HttpApi>, id: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(id)) = id else { return response::no_such_path() };
    api.logged_call(&id).await.map_or_else(response::host_error, |call| response::view(&call))
}

/// Returns the statistics.
pub(super) async fn stats(State(api): State<HttpApi>, query: Parameters) -> Response {
    let stats = async { api.stats(parameters(query)?).await };
    stats.await.map_or_else(response::host_error, |stats| response::view(&stats))
}

fn read_call(host: &Host, id: &AuditId) -> Result<LoggedCallView, HostError> {
    let not_there = || {
        HostError::new(HostErrorKind::AuditNotFound, format!("The audit log has no call {id}."))
            .with_hint("Old calls are removed by `cofferdam audit prune`, and by `retention` in config.toml.")
    };
    let mut reader = host.audit().existing()?.ok_or_else(not_there)?;
    let mut read = || -> Result<_, AuditError> {
        let Some(row) = reader.call(id)? else { return Ok(None) };
        let (entries, events) = reader.events_of(id)?;
        let mut view = call_view(row, entries, events);
        // An operator may have decided since.
        view.key_undecided = view.key_undecided && !reader.undecided_keys(Some(id))?.is_empty();
        Ok(Some(view))
    };
    read().map_err(unreadable)?.ok_or_else(not_there)
}

/// Returns the call of these entries and events, as it ended.
fn call_view(row: CallRow, entries: Vec<StoredEntry>, events: Vec<LoggedEvent>) -> LoggedCallView {
    let failure = events.iter().rev().find_map(|event| event.failure(&row));
    // The host's own errors are returned as a code only: their messages may name paths of the machine.
    let failure = failure.filter(|failure| failure.contains_key("class"));
    let error = failure.map(|failure| facts(&failure, &OF_FAILURES));
    let (mut admitted, mut ended_attempts, mut key_undecided) = (None, Vec::new(), false);
    for event in &events {
        match event.event() {
            // Of several candidates, the last one.
            RecordedEvent::Admitted(candidate) => admitted = Some(candidate),
            RecordedEvent::AttemptEnded(ended) => ended_attempts.push(attempt_report(&event.at, ended)),
            RecordedEvent::Final(end) => {
                key_undecided = end.key_end.is_some_and(|key| key.state == "unknown")
            }
            _ => {}
        }
    }
    let admitted = admitted.unwrap_or_default();
    LoggedCallView {
        hash: Some(admitted.hash.into_owned()).filter(|hash| !hash.is_empty()),
        signer: admitted.signer.map(Into::into),
        profile: admitted.profile.map(Into::into),
        key: admitted.key.map(Into::into),
        key_undecided,
        ended_attempts,
        call: row,
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
        entries: entries
            .into_iter()
            .map(|entry| LoggedEntryView { writer: entry.writer, n: entry.n })
            .collect(),
    }
}

fn attempt_report(at: &str, ended: AttemptEnded<'_>) -> AttemptReport {
    let RecordedPhases { admit_us, record_us, instantiate_us, guest_us } = ended.phases;
    let used = ended.usage;
    AttemptReport {
        attempt: ended.attempt,
        connector: ended.connector.unwrap_or_default().into_owned(),
        ended: at.to_owned(),
        status: ended.status.into(),
        class: ended.class.map(Into::into),
        code: ended.code.map(Into::into),
        phases: AttemptPhases { admit_us, record_us, instantiate_us, guest_us },
        usage: AttemptUsage {
            fuel: used.fuel,
            fuel_limit: used.fuel_limit,
            memory_bytes: used.memory_bytes,
            memory_limit_bytes: used.memory_limit_bytes,
            wall_us: used.wall_us,
            wall_limit_ms: used.wall_limit_ms,
            requests: used.requests,
            bytes_in: used.bytes_in,
            bytes_out: used.bytes_out,
        },
        requests: ended.requests.into_iter().map(request_report).collect(),
    }
}

fn request_report(request: RecordedRequest<'_>) -> RequestReport {
    RequestReport {
        at: request.at,
        method: sanitize_line(&request.method, 64),
        host: sanitize_line(&request.host, 300),
        status: request.status,
        code: request.code.map(Into::into),
        phase: request.phase.map(Into::into),
        ms: request.ms,
        bytes_sent: request.bytes_sent,
        bytes_received: request.bytes_received,
        keyed: request.keyed,
        aborted: request.aborted,
        bindings: request.bindings.into_iter().map(Into::into).collect(),
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
