//! How a call came to its outcome: every attempt, what it used, who answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::event::shown_wait;
use cofferdam_core::failure::{AuditId, Cause, FailureClass, UnkeyedRequest};
use cofferdam_core::limits::Usage;
use cofferdam_sandbox::AbortedRequest;
use serde::Serialize;
use serde_json::{Map, Value};

use super::redact::Known;

/// The report of one call, beside its outcome.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The call's record.
    pub audit_id: AuditId,
    /// The key that every attempt carried, those of the n-th alternate with `~n` after it; none where the call was
    /// not admitted.
    #[serde(serialize_with = "maybe_text")]
    pub idempotency_key: Option<Arc<str>>,
    /// Every attempt that was begun, in order.
    pub attempts: Vec<AttemptReport>,
    /// How much of the value is missing: its items that failed, where it says so in a list `errors` that is not empty,
    /// and the requests that its connector left under way when it returned. Such a value is partial; none where it is
    /// whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<u64>,
    /// The call whose recorded outcome this is: one before it, with the same idempotency key. Nothing was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<AuditId>,
    /// See [`operator_view`](Report::operator_view). Not for callers.
    #[serde(skip)]
    pub(super) operator: Option<Map<String, Value>>,
    /// What takes the secrets of the call out of what else is recorded with it.
    #[serde(skip)]
    pub(super) secrets: Known,
}

/// One attempt.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct AttemptReport {
    /// The connector, as `name@version`.
    #[serde(serialize_with = "text")]
    pub connector: Arc<str>,
    /// The operation.
    #[serde(serialize_with = "text")]
    pub op: Arc<str>,
    /// Which candidate of the chain it is, from 0.
    pub candidate: u32,
    /// The retry policy's name.
    #[serde(serialize_with = "text")]
    pub profile: Arc<str>,
    /// What came of it; none where it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// What it used; none where it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Requests that had neither an answer nor an error when its connector returned. They were aborted then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aborted_on_return: Vec<AbortedRequest>,
    /// How long the call waited after it, in milliseconds: until the next attempt, or until it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// The first request that it may have sent with a method that HTTP does not call idempotent, and without the call's
    /// idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unkeyed: Option<UnkeyedRequest>,
}

/// What came of one attempt.
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
        /// What the host observed.
        #[serde(serialize_with = "cause_name")]
        cause: Cause,
        /// Whether any byte of any request may have left.
        request_sent: bool,
    },
    /// The host's own error.
    Refused {
        /// Its code.
        code: &'static str,
    },
}

fn text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn maybe_text<S: serde::Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

fn cause_name<S: serde::Serializer>(cause: &Cause, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cause.name())
}

impl fmt::Display for AttemptReport {
    /// One line for people: who was asked, what came of it, what it used, how long the call waited then.
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
            attempts: Vec::with_capacity(1),
            partial: None,
            replayed: None,
            operator: None,
            secrets: Known::default(),
        }
    }

    /// How often the call was attempted again, over all candidates.
    #[must_use]
    pub fn retried(&self) -> u32 {
        let again =
            self.attempts.windows(2).filter(|pair| matches!(pair, [a, b] if a.candidate == b.candidate));
        u32::try_from(again.count()).unwrap_or(u32::MAX)
    }

    /// The failure or the error as the record has it: with the chain of causes, what the guest wrote before it ended,
    /// what the host noted; without secrets. For operators, and never for callers or agents; it is no part of the
    /// report's serial form. None where there is a value.
    #[must_use]
    pub fn operator_view(&self) -> Option<&Map<String, Value>> {
        self.operator.as_ref()
    }

    /// Whether any request of the call's own attempts may have left. Of an attempt that has no end that is not known.
    #[must_use]
    pub fn may_have_sent(&self) -> bool {
        let sent = |attempt: &AttemptReport| attempt.usage.is_none_or(|usage| usage.requests > 0);
        self.replayed.is_none() && self.attempts.iter().any(sent)
    }

    /// Whether an attempt may have sent an unkeyed request, or nobody knows: the outcome is another call's.
    #[must_use]
    pub fn may_have_sent_unkeyed(&self) -> bool {
        self.replayed.is_some() || self.attempts.iter().any(|attempt| attempt.unkeyed.is_some())
    }

    /// The requests that the connector left under way when it returned what the call gives back.
    #[must_use]
    pub fn aborted_on_return(&self) -> &[AbortedRequest] {
        self.attempts.last().map_or(&[], |attempt| &attempt.aborted_on_return)
    }

    /// What the last attempt used; none where none has ended.
    #[must_use]
    pub fn last_usage(&self) -> Option<Usage> {
        self.attempts.last().and_then(|attempt| attempt.usage)
    }

    /// Who gave the value, where it was not who was asked first.
    #[must_use]
    pub fn answered_instead(&self) -> Option<&AttemptReport> {
        self.attempts.last().filter(|last| last.candidate > 0 && last.outcome == Some(AttemptOutcome::Value))
    }
}
