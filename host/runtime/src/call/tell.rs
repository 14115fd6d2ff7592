//! Who hears of a step as it happens, and of the end: the log and the listener, neither of which can fail the call.

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cofferdam_audit::Verdict;
use cofferdam_core::error::Error;
use cofferdam_core::event::{Event, Listener, Step, shown_wait};
use cofferdam_core::failure::{AuditId, safe_line};
use tracing::Level;

use super::report::Report;

/// Tells the log and the listener; neither can fail the call.
pub(super) fn tell(audit_id: &AuditId, seq: u32, listener: Option<&dyn Listener>, step: Step<'_>) {
    if tracing::enabled!(target: "cofferdam::event", Level::INFO) {
        let facts = || serde_json::Value::Object(step.facts()).to_string();
        match step {
            Step::RetryScheduled { failure, retry, of, delay, .. } => {
                let wait = shown_wait(delay);
                tracing::info!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "{failure} Retry {retry}/{of} in {wait}");
            }
            Step::FallbackTriggered { .. } | Step::CircuitChanged { .. } | Step::Suppressed { .. } => {
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

/// Who was called, as far as that is known.
pub(super) struct Who<'a> {
    pub(super) connector: &'a str,
    pub(super) op: &'a str,
    pub(super) hash: Option<&'a str>,
    pub(super) signer: Option<&'a str>,
}

/// Tells the log how the call ended, in one line.
pub(super) fn end(report: &Report, who: Who<'_>, verdict: &Verdict, error: Option<&Error>) {
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
        connector = who.connector,
        hash = who.hash,
        signer = who.signer,
        unsigned = who.hash.is_some() && who.signer.is_none(),
        op = who.op,
        profile = report.attempts.last().map(|attempt| &*attempt.profile),
        attempts = report.attempts.len(),
        retried = report.retried(),
        answered_by = report.answered_instead().map(|attempt| &*attempt.connector),
        outcome = verdict.status.name(),
        class = verdict.class,
        code = verdict.code.as_deref(),
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
        notes = (!notes.is_empty()).then(|| safe_line(&notes.join("; "), usize::MAX)),
        "call"
    );
}
