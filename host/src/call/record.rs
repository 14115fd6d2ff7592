//! What is known of a call while it runs: an event for each step, for the record, the log and whoever listens, and its
//! report.
//!
//! The log's targets are `cofferdam::event` (each step) and `cofferdam::record` (the end). What they say has what the
//! envelope must not have (operator notes), and neither arguments nor results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Level;

use super::on_record::{OnRecord, verdict};
use super::report::{AttemptOutcome, AttemptReport, Report};
use crate::audit::{CallStatus, Opened, Verdict};
use crate::error::{Error, HostError, HostErrorKind};
use crate::event::{Event, Listener, Step, shown_wait};
use crate::failure::{AuditId, Failure};
use crate::sandbox::{Ended, Suppressed};

/// What is known of a call while it runs; dropped without an outcome it records a cancellation.
pub(super) struct Record {
    connector: Arc<str>,
    op: Arc<str>,
    on_record: OnRecord,
    hash: Option<Arc<str>>,
    signer: Option<Arc<str>>,
    listener: Option<Arc<dyn Listener>>,
    seq: u32,
    /// Since when the call waits, and how long it means to.
    wait: Option<(Instant, Duration)>,
    report: Option<Report>,
    /// Whether any request of any attempt may have left.
    sent: bool,
}

impl Record {
    pub(super) fn open(
        audit_id: AuditId,
        connector: Arc<str>,
        op: Arc<str>,
        on_record: OnRecord,
        listener: Option<Arc<dyn Listener>>,
    ) -> Self {
        let (own, report) = ((Arc::clone(&connector), Arc::clone(&op)), Report::new(audit_id));
        let mut record = Self {
            connector,
            op,
            on_record,
            hash: None,
            signer: None,
            listener,
            seq: 0,
            wait: None,
            report: Some(report),
            sent: false,
        };
        record.step(Step::Received { connector: &own.0, op: &own.1 });
        record
    }

    pub(super) fn identified(&mut self, hash: Arc<str>, signer: Option<Arc<str>>) {
        self.hash = Some(hash);
        self.signer = signer;
    }

    pub(super) fn keyed(&mut self, key: &Arc<str>) {
        if let Some(report) = &mut self.report {
            report.idempotency_key = Some(Arc::clone(key));
        }
    }

    /// The attempts that were begun.
    pub(super) fn attempts(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.attempts.len())
    }

    /// How many attempts of this candidate were begun, and whether any byte of theirs may have left.
    pub(super) fn attempts_of(&self, candidate: u32) -> (usize, bool) {
        let all = self.report.iter().flat_map(|report| &report.attempts);
        let own = all.filter(|attempt| attempt.candidate == candidate);
        // Of an attempt without a failure's own word it is not known.
        own.fold((0, false), |(attempts, sent), attempt| match &attempt.outcome {
            Some(AttemptOutcome::Failure { request_sent, .. }) => (attempts + 1, sent || *request_sent),
            _ => (attempts + 1, true),
        })
    }

    /// Puts on record that an attempt begins; it may, once this comes back.
    ///
    /// # Errors
    /// It could not be written: the attempt must not be made.
    pub(super) async fn attempt_starts(
        &mut self,
        connector: &Arc<str>,
        op: &Arc<str>,
        candidate: u32,
        profile: &Arc<str>,
        idempotent: bool,
    ) -> Result<(), HostError> {
        let attempt = self.number().saturating_add(1);
        let step = Step::AttemptStarted { connector, op, candidate, attempt };
        self.on_record.idempotent(idempotent);
        self.write_down(step);
        match self.on_record.durable().await? {
            Opened::Begun => {}
            Opened::Taken(_) | Opened::Decided => {
                return Err(HostError::new(HostErrorKind::Internal, "A call without a key met another."));
            }
        }
        self.tell(step);
        if let Some(report) = &mut self.report {
            report.attempts.push(AttemptReport {
                connector: Arc::clone(connector),
                op: Arc::clone(op),
                candidate,
                profile: Arc::clone(profile),
                outcome: None,
                usage: None,
                waited_ms: None,
            });
        }
        Ok(())
    }

    pub(super) fn attempt_ended<A>(&mut self, connector: &str, ended: &Ended<A>) {
        let failure = match &ended.outcome {
            Err(Error::Failure(failure)) => Some(failure),
            _ => None,
        };
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.usage = Some(ended.usage);
            attempt.outcome = Some(match &ended.outcome {
                Ok(_) => AttemptOutcome::Value,
                Err(Error::Failure(failure)) => AttemptOutcome::Failure {
                    class: failure.class(),
                    code: failure.code().to_owned(),
                    cause: failure.cause(),
                    request_sent: ended.request_sent,
                },
                Err(Error::Host(error)) => AttemptOutcome::Refused { code: error.kind().code() },
            });
        }
        for Suppressed { at, by, reason, cause } in &ended.suppressed {
            self.step(Step::Suppressed { at: *at, by: *by, reason, cause });
        }
        if let Some(report) = &mut self.report {
            report.partial = ended.failed_items.filter(|items| *items > 0);
        }
        self.sent |= ended.request_sent;
        let attempt = self.number();
        self.step(Step::AttemptEnded { connector, attempt, failure, usage: &ended.usage });
    }

    /// The call waits after its last attempt, from now on and so long, unless it is cancelled. Whatever happens
    /// meanwhile, what came before is on record.
    pub(super) fn waits(&mut self, now: Instant, delay: Duration, step: Step<'_>) {
        self.wait = Some((now, delay));
        self.step(step);
        self.on_record.soon();
    }

    /// The wait is over, if there is one.
    pub(super) fn waited(&mut self, now: Instant) {
        let Some((since, delay)) = self.wait.take() else { return };
        let waited = now.saturating_duration_since(since).min(delay);
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.waited_ms = Some(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// One more step.
    pub(super) fn step(&mut self, step: Step<'_>) {
        self.write_down(step);
        self.tell(step);
    }

    fn write_down(&mut self, step: Step<'_>) {
        self.seq = self.seq.saturating_add(1);
        self.on_record.event(self.seq, step.name(), step.facts());
    }

    fn tell(&self, step: Step<'_>) {
        if let Some(report) = &self.report {
            tell(&report.audit_id, self.seq, self.listener.as_deref(), step);
        }
    }

    /// Writes the end, and gives the outcome back with the report beside it once that is durable.
    pub(super) async fn close<T>(mut self, outcome: Result<T, Error>) -> (Result<T, Error>, Report) {
        // An envelope speaks of the call: what the last attempt did not send, one before it may have.
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(failure) if self.attempts() > 0 => failure.with_request_sent(self.sent).into(),
            error => error,
        });
        let verdict = match &outcome {
            Ok(_) => self.write(CallStatus::Value, None, None, &[]),
            Err(Error::Failure(failure)) => {
                let notes = failure.operator_notes();
                self.write(CallStatus::Failure, Some(failure), Some(failure.code()), notes)
            }
            Err(Error::Host(error)) => {
                let cause = std::error::Error::source(error).map(|source| format!("cause: {source}"));
                let status = match error.kind() {
                    HostErrorKind::Cancelled => CallStatus::Cancelled,
                    _ => CallStatus::Refused,
                };
                self.write(status, None, Some(error.kind().code()), cause.as_slice())
            }
        };
        let attempts = self.number();
        let closed = self.on_record.close(attempts, verdict).await;
        let report = self.report.take().unwrap_or_else(|| Report::new(AuditId::mint()));
        // What is not on record nobody is told.
        (closed.map_err(Error::from).and(outcome), report)
    }

    fn number(&self) -> u32 {
        u32::try_from(self.attempts()).unwrap_or(u32::MAX)
    }

    fn write(
        &mut self,
        status: CallStatus,
        failure: Option<&Failure>,
        code: Option<&str>,
        notes: &[String],
    ) -> Verdict {
        let (outcome, class) = (status.name(), failure.map(|failure| failure.class().name()));
        self.step(Step::Final { outcome, class, code });
        let verdict = Verdict { class, code: code.map(Arc::from), ..verdict(status) };
        let Some(report) = &self.report else { return verdict };
        let usage = report.last_usage();
        let detail = |key: &str| failure.and_then(|failure| failure.details().get(key));
        tracing::info!(
            target: "cofferdam::record",
            audit_id = report.audit_id.as_str(),
            connector = &*self.connector,
            hash = self.hash.as_deref(),
            signer = self.signer.as_deref(),
            unsigned = self.hash.is_some() && self.signer.is_none(),
            op = &*self.op,
            profile = report.attempts.last().map(|attempt| &*attempt.profile),
            attempts = report.attempts.len(),
            retried = report.retried(),
            answered_by = report.answered_instead().map(|attempt| &*attempt.connector),
            outcome,
            class,
            code,
            partial = report.partial,
            retry_stopped = detail("retry_stopped").and_then(|word| word.as_str()),
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
        verdict
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.report.is_some() {
            let verdict = self.write(CallStatus::Cancelled, None, None, &[]);
            let attempts = self.number();
            self.on_record.abandon(attempts, verdict);
        }
    }
}

/// Tells the log and the listener; neither can fail the call.
fn tell(audit_id: &AuditId, seq: u32, listener: Option<&dyn Listener>, step: Step<'_>) {
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
