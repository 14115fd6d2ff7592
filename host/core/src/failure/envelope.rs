//! The failure value itself: private fields, read access, and the envelope as its only serial form.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::{Map, Value};

use super::cause::Cause;
use super::class::{Boundary, FailureClass};
use super::context::{AuditId, Context};
use super::repeat::Unrepeatable;

/// Why a call failed. Made by the crate alone; serialises to
/// `{"error": {class, message, retriable, boundary, audit_id, details}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    // Boxed, so that a Result that carries it stays small on the way that succeeds.
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq)]
struct Inner {
    class: FailureClass,
    boundary: Boundary,
    message: String,
    retriable: bool,
    audit_id: AuditId,
    details: Map<String, Value>,
    operator: Vec<String>,
    cause: Cause,
    retry_after: Option<Duration>,
    unrepeatable: Option<Unrepeatable>,
}

impl Failure {
    /// The only way into the type; each class has one file that calls it. What the operation has sent outranks a
    /// `retriable` that rests on an operation whose manifest declares nothing.
    pub(super) fn new(
        context: &Context,
        class: FailureClass,
        boundary: Boundary,
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
            inner: Box::new(Inner {
                class,
                boundary,
                message,
                retriable: retriable && unrepeatable.is_none(),
                audit_id,
                details,
                operator: Vec::new(),
                cause: Cause::Other,
                retry_after: None,
                unrepeatable,
            }),
        }
    }

    /// Says what was observed, and how long the other side asked to wait.
    #[must_use]
    pub(super) fn caused_by(mut self, cause: Cause, retry_after: Option<Duration>) -> Self {
        (self.inner.cause, self.inner.retry_after) = (cause, retry_after);
        self
    }

    pub(super) fn details_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.inner.details
    }

    /// Adds what only the operator's record may say. It is never serialised.
    #[must_use]
    pub(crate) fn with_operator_note(mut self, note: impl Into<String>) -> Self {
        self.inner.operator.push(note.into());
        self
    }

    /// Rewrites what only the operator's record may say: to take out what not even that may.
    #[must_use]
    pub(crate) fn with_notes_rewritten(mut self, rewrite: impl Fn(&str) -> String) -> Self {
        self.inner.operator.iter_mut().for_each(|note| *note = rewrite(note));
        self
    }

    /// The class: what callers branch on.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        self.inner.class
    }

    /// The layer that produced it.
    #[must_use]
    pub fn boundary(&self) -> Boundary {
        self.inner.boundary
    }

    /// A sentence that is safe to show to a user or an agent.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Whether the same call may be made again.
    #[must_use]
    pub fn retriable(&self) -> bool {
        self.inner.retriable
    }

    /// The key of the full record.
    #[must_use]
    pub fn audit_id(&self) -> &AuditId {
        &self.inner.audit_id
    }

    /// The class-specific fields; `code` is always there.
    #[must_use]
    pub fn details(&self) -> &Map<String, Value> {
        &self.inner.details
    }

    /// `details.code`: the finer, stable word within the class.
    #[must_use]
    pub fn code(&self) -> &str {
        self.inner.details.get("code").and_then(Value::as_str).unwrap_or_default()
    }

    /// The request for which the call is neither repeated nor handed to a fallback, whatever else this failure says.
    pub(crate) fn unrepeatable(&self) -> Option<&Unrepeatable> {
        self.inner.unrepeatable.as_ref()
    }

    /// What the host observed: what decides whether an attempt is repeated.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.inner.cause
    }

    /// How long the upstream service asked to be left alone, from when its answer came.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// What the operator's record adds: panic messages, cause chains. Never for callers or agents.
    #[must_use]
    pub fn operator_notes(&self) -> &[String] {
        &self.inner.operator
    }
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Body<'a>(&'a Inner);
        impl Serialize for Body<'_> {
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
        envelope.serialize_field("error", &Body(&self.inner))?;
        envelope.end()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.inner.class.name(), self.inner.message)
    }
}

impl std::error::Error for Failure {}
