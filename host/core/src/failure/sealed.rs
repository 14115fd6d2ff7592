//! Restores a failure from the complete content that the host itself sealed, and from nothing else.
//!
//! It does not parse envelopes: the restored failure has its private parts too, and comes from an audit log
//! that was opened with the host's own key. Content with an unknown class or cause is rejected.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::class::FailureCause;
use super::class::{FailureBoundary, FailureClass};
use super::context::{AuditId, FailureContext};
use super::envelope::Failure;

/// The complete content of a failure, to be sealed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureSnapshot<'f> {
    class: Cow<'f, str>,
    boundary: Cow<'f, str>,
    message: Cow<'f, str>,
    retriable: bool,
    audit_id: Cow<'f, str>,
    details: Cow<'f, Map<String, Value>>,
    notes: Cow<'f, [String]>,
    cause: Cow<'f, str>,
    retry_after: Option<Duration>,
}

impl Failure {
    /// Returns the complete content.
    pub(crate) fn snapshot(&self) -> FailureSnapshot<'_> {
        FailureSnapshot {
            class: self.class().name().into(),
            boundary: self.boundary().name().into(),
            message: self.message().into(),
            retriable: self.retriable(),
            audit_id: self.audit_id().as_str().into(),
            details: Cow::Borrowed(self.details()),
            notes: Cow::Borrowed(self.operator_notes()),
            cause: self.cause().name().into(),
            retry_after: self.retry_after(),
        }
    }

    /// Restores a sealed failure; returns `None` if a word in it is unknown to this host.
    pub(crate) fn from_snapshot(whole: FailureSnapshot<'_>) -> Option<Self> {
        let class = *FailureClass::ALL.iter().find(|class| class.name() == whole.class)?;
        let boundary = FailureBoundary::ALL.into_iter().find(|boundary| boundary.name() == whole.boundary)?;
        let cause = FailureCause::ALL.into_iter().find(|cause| cause.name() == whole.cause)?;
        let context = FailureContext::new(AuditId::parse(&whole.audit_id)?);
        if !class.boundaries().contains(&boundary) {
            return None;
        }
        let (message, details) = (whole.message.into_owned(), whole.details.into_owned());
        let failure = Self::new(&context, class, boundary, whole.retriable, message, details)
            .with_cause(cause, whole.retry_after);
        Some(whole.notes.iter().fold(failure, |failure, note| failure.with_operator_note(note.as_str())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::failure::UpstreamFault;

    #[test]
    fn sealed_failures_round_trip() {
        let fault = UpstreamFault {
            status: 503,
            upstream_code: Some("böse\u{1}".into()),
            host: Some("a.example:443".into()),
            retry_after_ms: Some(1_500),
            bindings: vec!["api_key/a/default".into()],
            observed: true,
        };
        let context = FailureContext::new(AuditId::mint()).with_op("ask", true);
        let failure = Failure::external_api_error(&context, fault)
            .with_operator_note("cause: one")
            .with_operator_note("cause: two");
        let text = serde_json::to_string(&failure.snapshot()).unwrap();
        let back = Failure::from_snapshot(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(back, failure);
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&failure).unwrap());
        for (word, other) in [("external_api_error", "approval_denied"), ("external\"", "user\"")] {
            let text = text.replacen(word, other, 1);
            assert!(Failure::from_snapshot(serde_json::from_str(&text).unwrap()).is_none(), "{text}");
        }
    }
}
