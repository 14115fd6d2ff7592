//! Tracing spans: one for each step of a call's pipeline. They contain the step's identity, its outcome and its
//! resource usage; no arguments, results or secrets, and nothing that a guest wrote.
//!
//! Names and targets are constants. If tracing is disabled, a span costs one check of a flag: nothing is formatted
//! or allocated. A span ends with the future that it instruments, whether that is awaited or dropped.

use cofferdam_audit::CallOutcome;
use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::{AuditId, sanitize_line};
use cofferdam_sandbox::AttemptEnd;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};

use super::fallback::CallCandidate;
use super::recorder::outcome_of;

/// The target of every span, and of nothing else.
pub const TARGET: &str = "cofferdam::span";

/// The longest name of an operation in a span, in characters. Before it is looked up, it may be any text.
const NAME_CHARS: usize = 100;

/// Returns the span of the whole call.
pub(super) fn call(audit_id: &AuditId, connector: &str, op: &str) -> Span {
    info_span!(
        target: TARGET,
        "call",
        audit_id = audit_id.as_str(),
        connector,
        op = sanitize_line(op, NAME_CHARS),
        replayed = Empty,
        attempts = Empty,
        outcome = Empty,
        class = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

/// Returns the span of a whole action. The spans of its calls are within it.
pub(super) fn action(audit_id: &AuditId, action: &str, steps: u32) -> Span {
    info_span!(
        target: TARGET,
        "action",
        audit_id = audit_id.as_str(),
        action,
        steps,
        replayed = Empty,
        attempts = Empty,
        outcome = Empty,
        class = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

/// Returns the span of the admission: the permit, the verified load and the checks before an attempt.
pub(super) fn admit(candidate: &CallCandidate<'_>) -> Span {
    info_span!(
        target: TARGET,
        "admit",
        connector = &**candidate.connector.text(),
        candidate = candidate.index,
        outcome = Empty,
        class = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

/// Returns the span of one attempt, from the creation of the sandbox to its end.
pub(super) fn attempt(candidate: &CallCandidate<'_>, op: &str, attempt: u32) -> Span {
    info_span!(
        target: TARGET,
        "attempt",
        connector = &**candidate.connector.text(),
        op,
        candidate = candidate.index,
        attempt,
        outcome = Empty,
        class = Empty,
        code = Empty,
        fuel = Empty,
        memory_bytes = Empty,
        requests = Empty,
        bytes_out = Empty,
        bytes_in = Empty,
        otel.status_code = Empty,
    )
}

/// Returns the span of the delay before the next attempt.
pub(super) fn sleep(retry: u32, of: u32, delay_ms: u128) -> Span {
    info_span!(
        target: TARGET,
        "sleep",
        retry,
        of,
        delay_ms = u64::try_from(delay_ms).unwrap_or(u64::MAX),
    )
}

/// Instruments a write to the audit log that the call waits for with a span of its own.
pub(super) async fn recording<T>(
    writing: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    let span = info_span!(
        target: TARGET,
        "record",
        outcome = Empty,
        class = Empty,
        code = Empty,
        otel.status_code = Empty,
    );
    let written = writing.instrument(span.clone()).await;
    match &written {
        _ if span.is_disabled() => {}
        Ok(_) => ended(&span, "written", None, None),
        Err(error) => ended(&span, "refused", None, Some(error.kind().code())),
    }
    written
}

/// Records that the call has the outcome of the call `of`.
pub(super) fn replayed(span: &Span, of: &AuditId) {
    span.record("replayed", of.as_str());
}

/// Records the call's outcome: `value`, `failure`, `refused` or `cancelled`; or that the end could not be recorded.
pub(super) fn called(span: &Span, attempts: u32, outcome: &CallOutcome, unwritten: Option<&HostError>) {
    if span.is_disabled() {
        return;
    }
    span.record("attempts", attempts);
    match unwritten {
        None => ended(span, outcome.status.name(), outcome.class, outcome.code.as_deref()),
        Some(error) => ended(span, "refused", None, Some(error.kind().code())),
    }
}

fn ended(span: &Span, outcome: &'static str, class: Option<&str>, code: Option<&str>) {
    span.record("outcome", outcome).record("class", class).record("code", code);
    if matches!(outcome, "failure" | "refused") {
        span.record("otel.status_code", "ERROR");
    }
}

/// Records the outcome of a step.
fn ended_as<T>(span: &Span, outcome: &Result<T, Error>, good: &'static str) {
    if span.is_disabled() {
        return;
    }
    match outcome {
        Ok(_) => ended(span, good, None, None),
        Err(error) => {
            let CallOutcome { status, class, code } = outcome_of(Some(error));
            ended(span, status.name(), class, code.as_deref());
        }
    }
}

/// Records the outcome of an admission, and ends its span.
#[allow(clippy::needless_pass_by_value, reason = "a span ends when it is dropped")]
pub(super) fn admitted<T>(span: Span, outcome: &Result<T, Error>) {
    ended_as(&span, outcome, "admitted");
}

/// Records the outcome and the resource usage of an attempt.
pub(super) fn attempted<A>(span: &Span, ended: &AttemptEnd<A>) {
    if span.is_disabled() {
        return;
    }
    let usage = &ended.usage;
    span.record("fuel", usage.fuel).record("memory_bytes", usage.memory).record("requests", usage.requests);
    span.record("bytes_out", usage.bytes_out).record("bytes_in", usage.bytes_in);
    ended_as(span, &ended.outcome, "value");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use allocation_counter::measure;
    use tracing::subscriber::{NoSubscriber, with_default};

    use super::{call, called};
    use cofferdam_audit::{CallOutcome, CallStatus};
    use cofferdam_core::failure::AuditId;

    #[test]
    fn an_untraced_span_allocates_nothing() {
        let audit_id = AuditId::mint();
        let verdict = CallOutcome { status: CallStatus::Failure, class: Some("network_error"), code: None };
        let spanned = || {
            let span = call(&audit_id, "github://acme/slack@1.0.0", "post_message");
            called(&span, 1, &verdict, None);
        };
        let alone = with_default(NoSubscriber::new(), || measure(spanned).count_total);
        let traced = with_default(tracing_subscriber::registry(), || measure(spanned).count_total);
        assert_eq!(alone, 0);
        assert!(traced > 0, "a span that is traced is formatted");
    }
}
