//! Notifies the log and the listener of the events of a call, and of its end. Neither can fail the call.

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cofferdam_audit::CallOutcome;
use cofferdam_core::error::Error;
use cofferdam_core::event::{Event, EventKind, Listener, shown_wait};
use cofferdam_core::failure::{AuditId, sanitize_line};
use tracing::Level;

use super::report::Report;

/// Notifies the log and the listener of an event.
pub(super) fn event(audit_id: &AuditId, seq: u32, listener: Option<&dyn Listener>, step: EventKind<'_>) {
    if tracing::enabled!(target: "cofferdam::event", Level::INFO) {
        let facts = || serde_json::Value::Object(step.payload()).to_string();
        match step {
            EventKind::RetryScheduled { failure, retry, of, delay, .. } => {
                let wait = shown_wait(delay);
                tracing::info!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "{failure} Retry {retry}/{of} in {wait}");
            }
            EventKind::FallbackTriggered { .. }
            | EventKind::CircuitChanged { .. }
            | EventKind::Suppressed { .. } => {
                tracing::info!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "step");
            }
            _ if tracing::enabled!(target: "cofferdam::event", Level::DEBUG) => {
                tracing::debug!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "step");
            }
            _ => {}
        }
    }
    if let Some(listener) = listener
        && catch_unwind(AssertUnwindSafe(|| listener.event(&Event::new(audit_id, seq, step)))).is_err()
    {
        tracing::warn!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, "a listener panicked");
    }
}

/// The operation of a call, and its package as far as that is known.
pub(super) struct PackageIdentity<'a> {
    pub(super) connector: &'a str,
    pub(super) op: &'a str,
    pub(super) hash: Option<&'a str>,
    pub(super) signer: Option<&'a str>,
}

/// Logs the end of a call, in one line.
pub(super) fn call_ended(
    report: &Report,
    package: PackageIdentity<'_>,
    outcome: &CallOutcome,
    error: Option<&Error>,
) {
    let failure = error.and_then(Error::failure);
    let notes = match error {
        Some(Error::Failure(failure)) => failure.operator_notes().to_vec(),
        Some(Error::Host(error)) => {
            error.source().map(|source| format!("cause: {source}")).into_iter().collect()
        }
        None => Vec::new(),
    };
    let usage = report.last_usage();
    let detail = |key: &str| failure.and_then(|failure| failure.details().get(key));
    tracing::info!(
        target: "cofferdam::record",
        audit_id = report.audit_id.as_str(),
        connector = package.connector,
        hash = package.hash,
        signer = package.signer,
        unsigned = package.hash.is_some() && package.signer.is_none(),
        op = package.op,
        profile = report.attempts.last().map(|attempt| &*attempt.profile),
        attempts = report.attempts.len(),
        retried = report.retried(),
        answered_by = report.answered_instead().map(|attempt| &*attempt.connector),
        outcome = outcome.status.name(),
        class = outcome.class,
        code = outcome.code.as_deref(),
        partial = report.partial,
        retry_stopped = detail("retry_stopped").and_then(|word| word.as_str()),
        limit = detail("limit").and_then(|limit| limit.as_str()),
        configured = detail("configured").and_then(|amount| amount.as_u64()),
        used = detail("used").and_then(|amount| amount.as_u64()),
        fuel = usage.map(|usage| usage.fuel),
        fuel_limit = usage.map(|usage| usage.limits.fuel()),
        memory_bytes = usage.map(|usage| usage.memory),
        memory_limit_bytes = usage.map(|usage| usage.limits.memory()),
        host_memory_bytes = usage.map(|usage| usage.host_memory),
        memory_grows = usage.map(|usage| usage.memory_grows),
        wall_us = usage.map(|usage| usage.wall_us()),
        wall_limit_ms = usage.map(|usage| usage.wall_limit_ms()),
        requests = usage.map(|usage| usage.requests),
        bytes_out = usage.map(|usage| usage.bytes_out),
        bytes_in = usage.map(|usage| usage.bytes_in),
        log_lines = usage.map(|usage| usage.log_lines),
        log_lines_dropped = usage.map(|usage| usage.log_lines_dropped),
        stdio_bytes = usage.map(|usage| usage.stdio_bytes),
        stdio_bytes_dropped = usage.map(|usage| usage.stdio_bytes_dropped),
        // One call is one line, whatever a guest wrote.
        notes = (!notes.is_empty()).then(|| sanitize_line(&notes.join("; "), usize::MAX)),
        "call"
    );
}
