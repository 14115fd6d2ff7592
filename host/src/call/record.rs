//! The record of a call: one structured event when it ends, whichever way, also when it is cancelled.
//!
//! Until the audit store exists this event, on the target `cofferdam::record`, is the record. It has
//! what the envelope must not have (operator notes), and neither arguments nor results.

use std::sync::Arc;

use crate::error::Error;
use crate::failure::{AuditId, Failure};
use crate::sandbox::Usage;

/// What is known of a call while it runs; dropped without an outcome it records a cancellation.
pub(super) struct Record {
    audit_id: AuditId,
    connector: Arc<str>,
    op: Arc<str>,
    hash: Option<Arc<str>>,
    signer: Option<Arc<str>>,
    attempts: u32,
    usage: Option<Usage>,
    closed: bool,
}

impl Record {
    pub(super) fn open(audit_id: AuditId, connector: Arc<str>, op: Arc<str>) -> Self {
        Self { audit_id, connector, op, hash: None, signer: None, attempts: 0, usage: None, closed: false }
    }

    pub(super) fn identified(&mut self, hash: Arc<str>, signer: Option<Arc<str>>) {
        self.hash = Some(hash);
        self.signer = signer;
    }

    pub(super) fn attempt_started(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    pub(super) fn attempt_ended(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// What the last attempt used; none before it has ended.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    pub(super) fn close<T>(mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        self.closed = true;
        match &outcome {
            Ok(_) => self.write("value", None, None, &[]),
            Err(Error::Failure(failure)) => {
                self.write("failure", Some(failure), Some(failure.code()), failure.operator_notes());
            }
            Err(Error::Host(error)) => {
                let cause = std::error::Error::source(error).map(|source| format!("cause: {source}"));
                self.write("refused", None, Some(error.kind().code()), cause.as_slice());
            }
        }
        outcome
    }

    fn write(&self, outcome: &str, failure: Option<&Failure>, code: Option<&str>, notes: &[String]) {
        let usage = self.usage;
        let class = failure.map(|failure| failure.class().name());
        let detail = |key: &str| failure.and_then(|failure| failure.details().get(key));
        tracing::info!(
            target: "cofferdam::record",
            audit_id = self.audit_id.as_str(),
            connector = &*self.connector,
            hash = self.hash.as_deref(),
            signer = self.signer.as_deref(),
            unsigned = self.hash.is_some() && self.signer.is_none(),
            op = &*self.op,
            attempts = self.attempts,
            outcome,
            class,
            code,
            limit = detail("limit").and_then(|limit| limit.as_str()),
            configured = detail("configured").and_then(|amount| amount.as_u64()),
            used = detail("used").and_then(|amount| amount.as_u64()),
            fuel = usage.map(|usage| usage.fuel),
            fuel_limit = usage.map(|usage| usage.limits.fuel()),
            memory_bytes = usage.map(|usage| usage.memory),
            memory_limit_bytes = usage.map(|usage| usage.limits.memory()),
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
            notes = (!notes.is_empty()).then(|| notes.join("; ")),
            "call"
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.closed {
            self.write("cancelled", None, None, &[]);
        }
    }
}
