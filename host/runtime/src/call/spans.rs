//! Spans: one for each step of a call's pipeline, for whoever traces. They have what identifies the step, what came
//! of it and what it used; no arguments, no results, no secrets, and nothing that a guest wrote.
//!
//! Names and targets are constants. Where nobody traces, a span is a look at a flag: nothing is formatted and nothing
//! allocated. They end with the future that they are put around, whether it is awaited or dropped.

use cofferdam_audit::Verdict;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, safe_line};
use cofferdam_sandbox::Ended;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};

use super::chain::Candidate;

/// The target of every span, and of nothing else.
pub const TARGET: &str = "cofferdam::span";

/// The longest name of an operation in a span, in characters: before it is looked up, it may be anything.
const NAME_CHARS: usize = 100;

/// The whole call.
pub(super) fn call(audit_id: &AuditId, connector: &str, op: &str) -> Span {
    info_span!(
        target: TARGET,
        "call",
        audit_id = audit_id.as_str(),
        connector,
        op = safe_line(op, NAME_CHARS),
        replayed = Empty,
        attempts = Empty,
        outcome = Empty,
        class = Empty,
        code = Empty,
        otel.status_code = Empty,
    )
}

/// A whole action: around the spans of its calls.
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

/// The turn, the verified load and the checks before an attempt.
pub(super) fn admit(candidate: &Candidate<'_>) -> Span {
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

/// One attempt, from the sandbox's making to its end.
pub(super) fn attempt(candidate: &Candidate<'_>, op: &str, attempt: usize) -> Span {
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

/// The wait before the next attempt.
pub(super) fn sleep(retry: u32, of: u32, delay_ms: u128) -> Span {
    info_span!(
        target: TARGET,
        "sleep",
        retry,
        of,
        delay_ms = u64::try_from(delay_ms).unwrap_or(u64::MAX),
    )
}

/// A write of the record that is waited for, as a span of its own.
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

/// The call has the outcome of this one.
pub(super) fn replayed(span: &Span, of: &AuditId) {
    span.record("replayed", of.as_str());
}

/// What came of the call: `value`, `failure`, `refused` or `cancelled`; or that the end could not be recorded.
pub(super) fn called(span: &Span, attempts: u32, verdict: &Verdict, unwritten: Option<&HostError>) {
    if span.is_disabled() {
        return;
    }
    span.record("attempts", attempts);
    match unwritten {
        None => ended(span, verdict.status.name(), verdict.class, verdict.code.as_deref()),
        Some(error) => ended(span, "refused", None, Some(error.kind().code())),
    }
}

fn ended(span: &Span, outcome: &'static str, class: Option<&str>, code: Option<&str>) {
    span.record("outcome", outcome).record("class", class).record("code", code);
    if matches!(outcome, "failure" | "refused") {
        span.record("otel.status_code", "ERROR");
    }
}

/// What came of a step that ends as this.
fn ended_as<T>(span: &Span, outcome: &Result<T, Error>, good: &'static str) {
    if span.is_disabled() {
        return;
    }
    match outcome {
        Ok(_) => ended(span, good, None, None),
        Err(Error::Failure(failure)) => {
            ended(span, "failure", Some(failure.class().name()), Some(failure.code()));
        }
        Err(Error::Host(error)) if error.kind() == HostErrorKind::Cancelled => {
            ended(span, "cancelled", None, Some(error.kind().code()));
        }
        Err(Error::Host(error)) => ended(span, "refused", None, Some(error.kind().code())),
    }
}

/// What came of an admission, which is over.
#[allow(clippy::needless_pass_by_value, reason = "a span ends when it is dropped")]
pub(super) fn admitted<T>(span: Span, outcome: &Result<T, Error>) {
    ended_as(&span, outcome, "admitted");
}

/// What came of an attempt, and what it used.
pub(super) fn attempted<A>(span: &Span, ended: &Ended<A>) {
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
    use cofferdam_audit::{CallStatus, Verdict};
    use cofferdam_core::failure::AuditId;

    #[test]
    fn where_nobody_traces_a_span_allocates_nothing() {
        let audit_id = AuditId::mint();
        let verdict = Verdict { status: CallStatus::Failure, class: Some("network_error"), code: None };
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
