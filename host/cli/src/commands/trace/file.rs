//! The file of a trace, in Chrome's trace format: one process for each attempt, one thread for each kind of event.

use std::path::Path;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_core::trace::{AttemptTrace, TracedRequest};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::files;

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The threads of an attempt.
const ATTEMPT: u32 = 1;
const HOST_CALLS: u32 = 2;
const LOG: u32 = 3;
/// Of the first request; each further one has a thread of its own, since they may overlap.
const REQUESTS: u32 = 10;

/// A trace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TraceFile {
    #[serde(rename = "displayTimeUnit")]
    display_time_unit: String,
    #[serde(rename = "otherData")]
    pub(super) call: TracedCall,
    #[serde(rename = "traceEvents")]
    pub(super) events: Vec<TraceEvent>,
}

/// The traced call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TracedCall {
    /// The version of cofferdam that wrote the file.
    cofferdam: String,
    pub(super) connector: String,
    pub(super) operation: String,
    pub(super) audit_id: String,
}

/// One event of Chrome's format. Times are microseconds since the start of the first attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TraceEvent {
    pub(super) name: String,
    pub(super) cat: EventCategory,
    ph: EventPhase,
    pub(super) ts: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dur: Option<f64>,
    /// The attempt.
    pub(super) pid: u32,
    tid: u32,
    pub(super) args: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventCategory {
    Attempt,
    HostCall,
    Request,
    Log,
    /// Names and counters, for viewers.
    Viewer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum EventPhase {
    /// With a duration.
    #[serde(rename = "X")]
    Complete,
    #[serde(rename = "i")]
    Instant,
    #[serde(rename = "C")]
    Counter,
    #[serde(rename = "M")]
    Metadata,
}

impl TraceFile {
    /// Makes the trace of a call.
    pub(crate) fn new(
        connector: String,
        operation: String,
        audit_id: &AuditId,
        attempts: &[AttemptTrace],
    ) -> Self {
        let start = attempts.iter().map(|attempt| attempt.started).min().unwrap_or_default();
        let call = TracedCall {
            cofferdam: env!("CARGO_PKG_VERSION").to_owned(),
            connector,
            operation,
            audit_id: audit_id.as_str().to_owned(),
        };
        let events =
            attempts.iter().flat_map(|attempt| AttemptEvents::new(attempt, start).events()).collect();
        Self { display_time_unit: "ms".to_owned(), call, events }
    }

    /// Writes the file, readable for its owner only.
    pub(crate) fn write(&self, path: &Path) -> Result<(), HostError> {
        let text = serde_json::to_vec(self).map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The trace cannot be written as JSON.").with_source(error)
        })?;
        files::write_private(path, &text)
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, HostError> {
        let text = files::bounded("The trace", path, MAX_BYTES)?;
        serde_json::from_slice(&text).map_err(|error| {
            let message = format!("{} is not a trace of a call: {error}.", files::shown(path));
            HostError::new(HostErrorKind::Validation, message)
                .with_hint("Give a file that `cofferdam call --trace FILE` wrote.")
        })
    }
}

/// The events of one attempt.
struct AttemptEvents<'a> {
    attempt: &'a AttemptTrace,
    /// The time between the start of the trace and that of the attempt.
    offset: Duration,
}

impl<'a> AttemptEvents<'a> {
    fn new(attempt: &'a AttemptTrace, start: Timestamp) -> Self {
        let offset = Duration::try_from(attempt.started.duration_since(start)).unwrap_or_default();
        Self { attempt, offset }
    }

    fn events(&self) -> Vec<TraceEvent> {
        let attempt = self.attempt;
        let mut events = vec![self.metadata("process_name", 0, &format!("attempt {}", attempt.attempt))];
        for (thread, name) in [(ATTEMPT, "attempt"), (HOST_CALLS, "host calls"), (LOG, "log")] {
            events.push(self.metadata("thread_name", thread, name));
        }
        let ended = |at: Duration, took: Duration| at.saturating_add(took);
        let last = attempt.host_calls.iter().map(|call| ended(call.at, call.took));
        let last = last.chain(attempt.requests.iter().map(|request| ended(request.at, request.took))).max();
        let took = attempt.usage.as_ref().map(|usage| usage.wall_time).or(last).unwrap_or_default();
        let args = json!({
            "failure": attempt.failure,
            "frames": attempt.frames,
            "stdout": attempt.stdout,
            "stderr": attempt.stderr,
            "usage": attempt.usage,
            "omitted_host_calls": attempt.omitted_host_calls,
        });
        let name = format!("attempt {}", attempt.attempt);
        events.push(self.span(name, EventCategory::Attempt, ATTEMPT, (Duration::ZERO, took), args));
        let loading = (Duration::ZERO, attempt.instantiated_after);
        events.push(self.span("instantiate".to_owned(), EventCategory::Attempt, ATTEMPT, loading, json!({})));
        for call in &attempt.host_calls {
            let (times, args) = ((call.at, call.took), json!({"fuel": call.fuel}));
            events.push(self.span(call.function.clone(), EventCategory::HostCall, HOST_CALLS, times, args));
            let (name, args) = ("fuel".to_owned(), json!({"used": call.fuel}));
            events.push(self.event(name, EventCategory::Viewer, EventPhase::Counter, ATTEMPT, call.at, args));
        }
        for (request, thread) in attempt.requests.iter().zip(REQUESTS..) {
            events.push(self.request(request, thread));
        }
        for line in &attempt.log {
            let args = json!({"level": line.level});
            events.push(self.event(
                line.text.clone(),
                EventCategory::Log,
                EventPhase::Instant,
                LOG,
                line.at,
                args,
            ));
        }
        events
    }

    fn request(&self, traced: &TracedRequest, thread: u32) -> TraceEvent {
        let TracedRequest { request, content, .. } = traced;
        let query = if content.query.is_empty() { String::new() } else { format!("?{}", content.query) };
        let name = format!("{} {}{}{query}", request.method, request.host, request.path);
        let mut args = json!({
            "status": request.status,
            "failure": request.code,
            "phase": request.phase,
            "aborted": request.aborted,
            "with_key": request.keyed,
            "credentials": request.bindings,
            "bytes_sent": request.bytes_sent,
            "bytes_received": request.bytes_received,
            "request_headers": content.request_headers,
            "request_body": content.request_body,
            "response_headers": content.response_headers,
            "response_body": content.response_body,
        });
        if let Value::Object(fields) = &mut args {
            fields.retain(|_, value| !value.is_null() && *value != json!([]) && *value != json!(""));
        }
        self.span(name, EventCategory::Request, thread, (traced.at, traced.took), args)
    }

    fn metadata(&self, what: &str, thread: u32, name: &str) -> TraceEvent {
        let args = json!({ "name": name });
        self.event(what.to_owned(), EventCategory::Viewer, EventPhase::Metadata, thread, Duration::ZERO, args)
    }

    fn span(
        &self,
        name: String,
        category: EventCategory,
        thread: u32,
        (at, took): (Duration, Duration),
        args: Value,
    ) -> TraceEvent {
        let event = self.event(name, category, EventPhase::Complete, thread, at, args);
        TraceEvent { dur: Some(micros(took)), ..event }
    }

    fn event(
        &self,
        name: String,
        cat: EventCategory,
        ph: EventPhase,
        tid: u32,
        at: Duration,
        args: Value,
    ) -> TraceEvent {
        let args = if let Value::Object(args) = args { args } else { Map::new() };
        let ts = micros(self.offset.saturating_add(at));
        TraceEvent { name, cat, ph, ts, dur: None, pid: self.attempt.attempt, tid, args }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
