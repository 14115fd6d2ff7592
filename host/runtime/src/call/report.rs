//! The report of a call: every attempt, its usage, and the candidate that returned the value.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::remove_repeated;
use cofferdam_core::error::{Error, HostError};
use cofferdam_core::event::shown_wait;
use cofferdam_core::failure::{AbortedRequest, AuditId, Failure, FailureCause, FailureClass, UnkeyedRequest};
use cofferdam_core::limits::Usage;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::redact::{FieldRedactor, ScannerSet};

/// The result of a call.
#[derive(Debug)]
#[must_use]
pub struct CallResult<T = Value> {
    /// The value that the operation returned, or the reason that there is none.
    pub outcome: Result<T, Error>,
    /// The report of the call's attempts.
    pub report: Report,
}

/// The report of one call, which is returned with its outcome.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The call's audit id.
    pub audit_id: AuditId,
    /// The key that every attempt carried; attempts of the n-th fallback have `~n` after it. None if the call was
    /// not admitted.
    pub idempotency_key: Option<Arc<str>>,
    /// Every attempt that was begun, in order.
    pub attempts: Vec<AttemptReport>,
    /// The amount of the value that is missing: its failed items, if it lists them in a non-empty list `errors`,
    /// and the requests that were still pending when the connector returned. Such a value is partial. None if it is
    /// complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<u64>,
    /// The earlier call with the same idempotency key whose recorded outcome this is. Nothing was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<AuditId>,
    /// See [`operator_view`](Report::operator_view). Not for callers.
    #[serde(skip)]
    pub(super) operator: Option<Map<String, Value>>,
    /// The secrets of the call, for redacting other texts that are recorded with it.
    #[serde(skip)]
    pub(super) secrets: ScannerSet,
}

/// One attempt.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct AttemptReport {
    /// The connector, as `name@version`.
    pub connector: Arc<str>,
    /// The operation.
    pub op: Arc<str>,
    /// The position of its candidate in the chain, from 0.
    pub candidate: u32,
    /// The retry policy's name.
    pub profile: Arc<str>,
    /// Its outcome. None if it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// Its resource usage. None if it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Requests that had neither a response nor an error when the connector returned. They were aborted then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aborted_on_return: Vec<AbortedRequest>,
    /// The time that the call waited after it, in milliseconds: until the next attempt, or until it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// The first request that it may have sent without the call's idempotency key and with a method that HTTP does
    /// not define as idempotent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unkeyed: Option<UnkeyedRequest>,
    /// True if it may have sent a request that only the call's idempotency key keeps from taking effect twice: HTTP
    /// does not define its method as idempotent, or the key is in the URL of a PUT, and the connector has asked for the
    /// key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub relies_on_key: bool,
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// A value.
    Value,
    /// A failure.
    Failure {
        /// Its class.
        class: FailureClass,
        /// Its code.
        code: String,
        /// The cause that the host observed.
        #[serde(serialize_with = "cause_name")]
        cause: FailureCause,
        /// True if any byte of any request may have left.
        request_sent: bool,
    },
    /// The host's own error.
    Refused {
        /// Its code.
        code: &'static str,
    },
}

fn cause_name<S: serde::Serializer>(cause: &FailureCause, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cause.name())
}

impl fmt::Display for AttemptReport {
    /// Writes one line for people: the candidate, its outcome, its usage, and the wait after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.connector, self.op)?;
        match &self.outcome {
            None => f.write_str("cancelled")?,
            Some(AttemptOutcome::Value) => f.write_str("a value")?,
            Some(AttemptOutcome::Failure { class, code, .. }) => write!(f, "{} ({code})", class.name())?,
            Some(AttemptOutcome::Refused { code }) => write!(f, "refused ({code})")?,
        }
        if let Some(usage) = &self.usage {
            write!(f, "; used: {usage}")?;
        }
        for request in &self.aborted_on_return {
            write!(f, "; {request}")?;
        }
        match self.waited_ms {
            Some(ms) => write!(f, "; then waited {}", shown_wait(Duration::from_millis(ms))),
            None => Ok(()),
        }
    }
}

impl Report {
    pub(crate) fn new(audit_id: AuditId) -> Self {
        Self {
            audit_id,
            idempotency_key: None,
            attempts: Vec::new(),
            partial: None,
            replayed: None,
            operator: None,
            secrets: ScannerSet::default(),
        }
    }

    /// Returns the number of retries, over all candidates.
    #[must_use]
    pub fn retried(&self) -> u32 {
        let again =
            self.attempts.windows(2).filter(|pair| matches!(pair, [a, b] if a.candidate == b.candidate));
        u32::try_from(again.count()).unwrap_or(u32::MAX)
    }

    /// Returns all of the failure or error: with the chain of causes, the guest's last output and
    /// the host's notes, but without secrets. It is for operators and never for callers or agents, and it is not
    /// serialized with the report. None if there is a value.
    #[must_use]
    pub fn operator_view(&self) -> Option<&Map<String, Value>> {
        self.operator.as_ref()
    }

    /// True if any request of the call's own attempts may have left. This counts an attempt without an end, whose
    /// requests are unknown.
    #[must_use]
    pub fn may_have_sent(&self) -> bool {
        let sent = |attempt: &AttemptReport| attempt.usage.is_none_or(|usage| usage.requests > 0);
        self.replayed.is_none() && self.attempts.iter().any(sent)
    }

    /// True if an attempt may have sent an unkeyed request, or if that is unknown because the outcome is another
    /// call's.
    #[must_use]
    pub fn may_have_sent_unkeyed(&self) -> bool {
        self.replayed.is_some() || self.attempts.iter().any(|attempt| attempt.unkeyed.is_some())
    }

    /// True if an attempt may have sent a request that only the call's idempotency key keeps from taking effect twice.
    #[must_use]
    pub fn relies_on_key(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.relies_on_key)
    }

    /// Returns the requests that were still pending when the connector returned the value of this call.
    #[must_use]
    pub fn aborted_on_return(&self) -> &[AbortedRequest] {
        self.attempts.last().map_or(&[], |attempt| &attempt.aborted_on_return)
    }

    /// Returns the resource usage of the last attempt. None if no attempt has ended.
    #[must_use]
    pub fn last_usage(&self) -> Option<Usage> {
        self.attempts.last().and_then(|attempt| attempt.usage)
    }

    /// Returns the attempt that returned the value, if it was a fallback's.
    #[must_use]
    pub fn answered_instead(&self) -> Option<&AttemptReport> {
        self.attempts.last().filter(|last| last.candidate > 0 && last.outcome == Some(AttemptOutcome::Value))
    }
}

/// The prefixes of the host's notes, and for each the field that the rest of such a note goes to.
const KINDS: [(&str, &str); 5] = [
    ("cause: ", "chain"),
    ("frame: ", "frames"),
    ("panic: ", "panic"),
    ("stderr: ", "stderr"),
    ("connector: ", "connector_detail"),
];

/// Returns a view as the audit log has it: without the facts that it, its event or the call has already, which
/// [`events_of`](cofferdam_audit::AuditReader::events_of) and
/// [`LoggedEvent::failure`](cofferdam_audit::LoggedEvent::failure) add again. `call` ended with it; none for an
/// attempt.
pub(super) fn recorded_view(mut view: Map<String, Value>, call: Option<&AuditId>) -> Map<String, Value> {
    remove_repeated(&mut view);
    view.retain(|field, value| match field.as_str() {
        "class" | "code" | "retried" => false,
        // An action may end with the failure of its step's call, and a call with that of the call that is replayed.
        "audit_id" => call.is_some_and(|call| *value != call.as_str()),
        _ => true,
    });
    view
}

/// Returns all of an error, without secrets.
pub(super) fn error_view(error: &Error, redactor: &FieldRedactor) -> Map<String, Value> {
    match error {
        Error::Failure(failure) => failure_view(failure, redactor),
        Error::Host(error) => host_error_view(error, redactor),
    }
}

/// Returns all of a failure: the fields of its envelope, the observed `cause`, the chain of causes from the
/// outermost inwards, the functions that a trap ended, the guest's stderr or panic message, and the host's other notes.
pub(super) fn failure_view(failure: &Failure, redactor: &FieldRedactor) -> Map<String, Value> {
    let detail = |key: &str| failure.details().get(key).cloned();
    let mut view = Map::from_iter([
        ("class".into(), failure.class().name().into()),
        ("code".into(), failure.code().into()),
        ("boundary".into(), failure.boundary().name().into()),
        ("retriable".into(), failure.retriable().into()),
        ("message".into(), redactor.text(failure.message()).into()),
        ("retried".into(), detail("retried").unwrap_or_else(|| 0.into())),
        ("audit_id".into(), failure.audit_id().as_str().into()),
        ("details".into(), redactor.fields(failure.details()).into()),
        ("cause".into(), failure.cause().name().into()),
    ]);
    if let Some(wait) = failure.retry_after() {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        view.insert("asked_to_wait_ms".into(), ms.into());
    }
    for key in ["trap", "status", "upstream_code"] {
        if let Some(value) = detail(key) {
            view.insert(key.into(), redactor.value(&value));
        }
    }
    let mut chain = vec![json!(redactor.text(failure.message()))];
    let (mut frames, mut notes) = (Vec::new(), Vec::new());
    for note in failure.operator_notes() {
        let kind = KINDS.iter().find_map(|(mark, field)| Some((*field, note.strip_prefix(mark)?)));
        match kind {
            Some(("chain", cause)) => chain.push(redactor.text(cause).into()),
            Some(("frames", frame)) => frames.push(Value::from(redactor.text(frame))),
            Some((field, text)) => {
                view.insert(field.into(), redactor.text(text).into());
            }
            None => notes.push(Value::from(redactor.text(note))),
        }
    }
    view.insert("chain".into(), chain.into());
    for (field, items) in [("frames", frames), ("notes", notes)] {
        if !items.is_empty() {
            view.insert(field.into(), items.into());
        }
    }
    view
}

fn host_error_view(error: &HostError, redactor: &FieldRedactor) -> Map<String, Value> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let chain: Vec<Value> = std::iter::once(redactor.text(error.message()))
        .chain(causes.map(|cause| redactor.text(&cause.to_string())))
        .map(Value::from)
        .collect();
    let mut view = Map::from_iter([
        ("code".into(), error.kind().code().into()),
        ("message".into(), redactor.text(error.message()).into()),
        ("details".into(), redactor.fields(error.details()).into()),
        ("audit_id".into(), error.request_id().as_str().into()),
        ("chain".into(), chain.into()),
    ]);
    if let Some(hint) = error.hint() {
        view.insert("suggestion".into(), redactor.text(hint).into());
    }
    view
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;
    use cofferdam_core::error::HostErrorKind;
    use cofferdam_core::failure::{AuditId, FailureContext, RuntimeFault};
    use cofferdam_core::privileged::MakeFailure as _;

    #[test]
    fn notes_are_in_place_and_contain_no_tokens() {
        let token = format!("ghp_{}", "a1".repeat(20));
        let failure = Failure::connector_runtime_error(
            &FailureContext::new(AuditId::mint()),
            RuntimeFault::Trap("unreachable"),
        )
        .with_operator_note("cause: error while executing")
        .with_operator_note("cause: wasm trap: unreachable")
        .with_operator_note(format!("stderr: my key is {token}"))
        .with_operator_note("something else");
        let view = Value::from(failure_view(&failure, &FieldRedactor::new(65_536)));
        let chain = view["chain"].as_array().unwrap();
        assert_eq!((chain.len(), &chain[2]), (3, &json!("wasm trap: unreachable")));
        assert_eq!((&view["trap"], &view["stderr"]), (&json!("unreachable"), &json!("my key is [REDACTED]")));
        assert_eq!(view["notes"], json!(["something else"]));
        let error = HostError::new(HostErrorKind::Internal, "It broke.").with_source("a cause");
        let view = error_view(&error.into(), &FieldRedactor::new(0));
        assert_eq!(view["chain"], json!(["It broke.", "a cause"]));
    }
}
