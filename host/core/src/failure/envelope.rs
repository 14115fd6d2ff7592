//! The failure value: private fields, read access, and the envelope as its only serial form.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::{Map, Value};

use super::class::{FailureBoundary, FailureCause, FailureClass, UnrepeatableRequest};
use super::context::{AuditId, FailureContext};

/// The reason why a call failed. Created only by the host; serializes to `{"error": {class, message,
/// retriable, boundary, audit_id, details}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    // Boxed, so that a Result with it stays small on the success path.
    inner: Box<FailureInner>,
}

#[derive(Debug, Clone, PartialEq)]
struct FailureInner {
    class: FailureClass,
    boundary: FailureBoundary,
    message: String,
    retriable: bool,
    audit_id: AuditId,
    details: Map<String, Value>,
    operator: Vec<String>,
    cause: FailureCause,
    retry_after: Option<Duration>,
    unrepeatable: Option<UnrepeatableRequest>,
}

impl Failure {
    /// Creates a failure. Each class has one file that calls this. A request that the operation has sent
    /// overrides a `retriable` of an operation whose manifest declares nothing.
    pub(super) fn new(
        context: &FailureContext,
        class: FailureClass,
        boundary: FailureBoundary,
        retriable: bool,
        mut message: String,
        mut details: Map<String, Value>,
    ) -> Self {
        debug_assert!(class.boundaries().contains(&boundary), "{class:?} never comes from {boundary:?}");
        let audit_id = context.audit_id().clone();
        let unrepeatable = context.unrepeatable();
        if let Some(unrepeatable) = unrepeatable.as_ref().filter(|_| retriable) {
            message.push_str(&unrepeatable.sentences());
            unrepeatable.describe(&mut details);
        }
        Self {
            inner: Box::new(FailureInner {
                class,
                boundary,
                message,
                retriable: retriable && unrepeatable.is_none(),
                audit_id,
                details,
                operator: Vec::new(),
                cause: FailureCause::Other,
                retry_after: None,
                unrepeatable,
            }),
        }
    }

    /// Sets the observed cause, and the wait that the other side asked for.
    #[must_use]
    pub(super) fn with_cause(mut self, cause: FailureCause, retry_after: Option<Duration>) -> Self {
        (self.inner.cause, self.inner.retry_after) = (cause, retry_after);
        self
    }

    pub(super) fn details_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.inner.details
    }

    /// Adds a note that only the operator's audit log may contain. It is never serialized.
    #[must_use]
    pub(crate) fn with_operator_note(mut self, note: impl Into<String>) -> Self {
        self.inner.operator.push(note.into());
        self
    }

    /// Rewrites the operator notes, to remove text that not even the audit log may contain.
    #[must_use]
    pub(crate) fn with_notes_rewritten(mut self, rewrite: impl Fn(&str) -> String) -> Self {
        self.inner.operator.iter_mut().for_each(|note| *note = rewrite(note));
        self
    }

    /// Returns the class, on which callers branch.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        self.inner.class
    }

    /// Returns the layer that produced it.
    #[must_use]
    pub fn boundary(&self) -> FailureBoundary {
        self.inner.boundary
    }

    /// Returns a sentence that is safe to show to a user or an agent.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns whether the same call may be made again.
    #[must_use]
    pub fn retriable(&self) -> bool {
        self.inner.retriable
    }

    /// Returns the id of the call in the audit log.
    #[must_use]
    pub fn audit_id(&self) -> &AuditId {
        &self.inner.audit_id
    }

    /// Returns the class-specific fields; `code` is always there.
    #[must_use]
    pub fn details(&self) -> &Map<String, Value> {
        &self.inner.details
    }

    /// Returns `details.code`: the detailed, stable code within the class.
    #[must_use]
    pub fn code(&self) -> &str {
        self.inner.details.get("code").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the request because of which the call is neither retried nor handed to a fallback, whatever
    /// else this failure states.
    pub(crate) fn unrepeatable(&self) -> Option<&UnrepeatableRequest> {
        self.inner.unrepeatable.as_ref()
    }

    /// Returns the cause that the host observed, which decides about retries.
    #[must_use]
    pub fn cause(&self) -> FailureCause {
        self.inner.cause
    }

    /// Returns the wait that the upstream service asked for, counted from the arrival of its response.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// Returns the additions for the audit log: panic messages, cause chains. Never for callers or agents.
    #[must_use]
    pub fn operator_notes(&self) -> &[String] {
        &self.inner.operator
    }
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct EnvelopeBody<'a>(&'a FailureInner);
        impl Serialize for EnvelopeBody<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut body = serializer.serialize_struct("Failure", 6)?;
                body.serialize_field("class", &self.0.class)?;
                body.serialize_field("message", &self.0.message)?;
                body.serialize_field("retriable", &self.0.retriable)?;
                body.serialize_field("boundary", &self.0.boundary)?;
                body.serialize_field("audit_id", &self.0.audit_id)?;
                body.serialize_field("details", &self.0.details)?;
                body.end()
            }
        }
        let mut envelope = serializer.serialize_struct("Envelope", 1)?;
        envelope.serialize_field("error", &EnvelopeBody(&self.inner))?;
        envelope.end()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.inner.class.name(), self.inner.message)
    }
}

impl std::error::Error for Failure {}

/// The reason why a failure that could have been retried was not, or not again (`details.retry_stopped`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryStopped {
    /// Every attempt that the policy allows was made.
    MaxAttempts,
    /// The next wait could not have ended within the call's wall time.
    WallTime,
    /// The circuit to the host opened, or this was its probe.
    CircuitOpen,
    /// The candidate is no longer admitted: the connector was removed, or its key revoked.
    NotAdmitted,
    /// The maximum number of calls already waits between attempts, or for a rate limit.
    Busy,
    /// It sent a request that may take effect each time it arrives, and its manifest does not declare the
    /// operation idempotent. The same reason prevents a fallback.
    NotDeclaredIdempotent,
}

impl RetryStopped {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::MaxAttempts,
        Self::WallTime,
        Self::CircuitOpen,
        Self::NotAdmitted,
        Self::Busy,
        Self::NotDeclaredIdempotent,
    ];

    /// Returns the stable name in `details.retry_stopped`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxAttempts => "max_attempts",
            Self::WallTime => "wall_time",
            Self::CircuitOpen => "circuit_open",
            Self::NotAdmitted => "not_admitted",
            Self::Busy => "busy",
            Self::NotDeclaredIdempotent => "not_declared_idempotent",
        }
    }
}

/// The detail with the key under which the same call may be made again.
pub const REPEAT_WITH_KEY: &str = "repeat_with_key";

impl Failure {
    /// Adds the number of retries, the reason why there was no further one, and the length of the next wait.
    /// Class, message and `retriable` do not change.
    #[must_use]
    pub(crate) fn with_retries(
        mut self,
        retried: u32,
        stopped: Option<RetryStopped>,
        retry_after: Option<Duration>,
    ) -> Self {
        let unrepeatable =
            self.unrepeatable().filter(|_| stopped == Some(RetryStopped::NotDeclaredIdempotent));
        let unrepeatable = unrepeatable.cloned();
        let details = self.details_mut();
        if let Some(unrepeatable) = unrepeatable {
            unrepeatable.describe(details);
        }
        if retried > 0 || stopped.is_some() {
            details.insert("retried".into(), retried.into());
        }
        if let Some(stopped) = stopped {
            details.insert("retry_stopped".into(), stopped.name().into());
        }
        if let Some(wait) = retry_after {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            details.insert("retry_after_ms".into(), ms.into());
        }
        self
    }

    /// Makes the failure one that is not retriable: the call may have had its effect under a key that no other call
    /// has. `key` is that key, if the same call may be made again under it. A remedy that the failure has stays.
    #[must_use]
    pub(crate) fn with_minted_key(mut self, key: Option<&str>) -> Self {
        self.inner.retriable = false;
        let other = key.map(|key| format!(" than {key}")).unwrap_or_default();
        self.inner.message.push_str(&format!(
            " The call had no idempotency key of its caller and may have had its effect; a call with another \
             key{other} may repeat it."
        ));
        let details = self.details_mut();
        details.shift_remove("retry_after_ms");
        let mut suggestion = "Look at the service before it is called again".to_owned();
        match key {
            Some(key) => {
                details.insert(REPEAT_WITH_KEY.into(), key.into());
                suggestion.push_str(&format!(
                    ", or make the same call under the idempotency key {key} alone (--idempotency-key; over HTTP the \
                     header Idempotency-Key)."
                ));
            }
            None => suggestion.push('.'),
        }
        details.entry("suggestion").or_insert_with(|| suggestion.into());
        self
    }

    /// Says that the failure stands under the caller's key: no later call under it is sent.
    #[must_use]
    pub(crate) fn with_kept_key(mut self) -> Self {
        self.inner.message.push_str(
            " It stands under its idempotency key, under which nothing is sent again: look at the service before a \
             call with another key.",
        );
        self.details_mut().shift_remove("retry_after_ms");
        self
    }

    /// Records whether any request of any attempt of the call may have left.
    #[must_use]
    pub(crate) fn with_request_sent(mut self, sent: bool) -> Self {
        self.details_mut().insert("request_sent".into(), sent.into());
        self
    }

    /// Adds the reason why it was not admitted again: class, code and message of the rejection.
    #[must_use]
    pub(crate) fn with_refusal(mut self, refusal: Map<String, Value>) -> Self {
        self.details_mut().insert(RetryStopped::NotAdmitted.name().into(), refusal.into());
        self
    }

    /// Adds the candidates of a chain that was tried to its end, each with its outcome.
    #[must_use]
    pub(crate) fn with_chain(mut self, chain: Vec<Map<String, Value>>) -> Self {
        self.details_mut().insert("chain".into(), chain.into_iter().map(Value::Object).collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::UpstreamFault;

    #[test]
    fn a_minted_key_withdraws_the_advice_to_repeat() {
        let context = FailureContext::new(AuditId::mint()).with_op("x", true);
        let fault = UpstreamFault {
            status: 503,
            upstream_code: None,
            host: None,
            retry_after_ms: Some(7),
            bindings: Vec::new(),
            observed: true,
        };
        let named = |failure: &Failure| failure.details().get(REPEAT_WITH_KEY).cloned();
        for key in [None, Some("audit-x")] {
            let failure = Failure::external_api_error(&context, fault.clone());
            assert!(failure.retriable() && named(&failure).is_none());
            let failure = failure.with_minted_key(key);
            assert_eq!((failure.retriable(), named(&failure)), (false, key.map(Value::from)));
            assert!(!failure.details().contains_key("retry_after_ms"), "{failure}");
            let suggestion = failure.details().get("suggestion").and_then(Value::as_str);
            assert_eq!(suggestion.map(|text| text.contains("audit-x")), Some(key.is_some()));
        }
        let mismatch = Failure::pin_mismatch(&context, "it", "a", "b");
        let remedy = mismatch.details().get("suggestion").cloned();
        let failure = mismatch.with_minted_key(Some("audit-x"));
        assert_eq!(
            (failure.details().get("suggestion").cloned(), named(&failure)),
            (remedy, Some("audit-x".into()))
        );
        assert!(failure.message().contains("another key than audit-x"), "{failure}");
    }
}
