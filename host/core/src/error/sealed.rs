//! Restores the host's own error from the complete content that the host itself sealed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HostError, HostErrorKind};
use crate::failure::AuditId;

/// The complete content of an error, to be sealed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostErrorSnapshot<'e> {
    code: Cow<'e, str>,
    message: Cow<'e, str>,
    hint: Option<Cow<'e, str>>,
    details: Cow<'e, Map<String, Value>>,
    request_id: Cow<'e, str>,
    because: Option<String>,
}

impl HostErrorSnapshot<'_> {
    /// Returns the same content without borrowing from the error.
    pub fn into_owned(self) -> HostErrorSnapshot<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        HostErrorSnapshot {
            code: owned(self.code),
            message: owned(self.message),
            hint: self.hint.map(owned),
            details: Cow::Owned(self.details.into_owned()),
            request_id: owned(self.request_id),
            because: self.because,
        }
    }
}

impl HostError {
    /// Returns the complete content, with the cause as text.
    pub fn snapshot(&self) -> HostErrorSnapshot<'_> {
        HostErrorSnapshot {
            code: self.kind().code().into(),
            message: self.message().into(),
            hint: self.hint().map(Cow::Borrowed),
            details: Cow::Borrowed(self.details()),
            request_id: self.request_id().as_str().into(),
            because: std::error::Error::source(self).map(ToString::to_string),
        }
    }

    /// Restores a sealed error; returns `None` if its code is unknown to this host.
    pub fn from_snapshot(whole: HostErrorSnapshot<'_>) -> Option<Self> {
        let kind = *HostErrorKind::ALL.iter().find(|kind| kind.code() == whole.code)?;
        let mut error = Self::new(kind, whole.message).with_request_id(&AuditId::parse(&whole.request_id)?);
        error.inner.hint = whole.hint.map(Cow::into_owned);
        error.inner.details = whole.details.into_owned();
        Some(match whole.because {
            Some(cause) => error.with_source(cause),
            None => error,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn sealed_host_errors_round_trip() {
        let error = HostError::new(HostErrorKind::Validation, "It does not fit.")
            .with_hint("Give another.")
            .detail("candidate", 1)
            .with_source("what lay under it");
        let text = serde_json::to_string(&error.snapshot()).unwrap();
        let back = HostError::from_snapshot(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&error).unwrap());
        assert_eq!(std::error::Error::source(&back).unwrap().to_string(), "what lay under it");
        let other = text.replacen("validation", "invalidation", 1);
        assert!(HostError::from_snapshot(serde_json::from_str(&other).unwrap()).is_none());
    }
}
