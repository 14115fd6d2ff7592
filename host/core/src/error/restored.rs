//! The way back of the host's own error: from what the host itself sealed of it, whole.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{HostError, HostErrorKind};
use crate::failure::AuditId;

/// All that an error is, to be sealed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WholeHostError<'e> {
    code: Cow<'e, str>,
    message: Cow<'e, str>,
    hint: Option<Cow<'e, str>>,
    details: Cow<'e, Map<String, Value>>,
    request_id: Cow<'e, str>,
    because: Option<String>,
}

impl WholeHostError<'_> {
    /// The same, apart from the error it was made from.
    pub fn into_owned(self) -> WholeHostError<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        WholeHostError {
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
    /// All of it; of its cause what that says.
    pub fn whole(&self) -> WholeHostError<'_> {
        WholeHostError {
            code: self.kind().code().into(),
            message: self.message().into(),
            hint: self.hint_text().map(Cow::Borrowed),
            details: Cow::Borrowed(self.details()),
            request_id: self.request_id().as_str().into(),
            because: std::error::Error::source(self).map(ToString::to_string),
        }
    }

    /// The error that was sealed, as it was; none where its code is not one of this host's.
    pub fn restored(whole: WholeHostError<'_>) -> Option<Self> {
        let kind = *HostErrorKind::ALL.iter().find(|kind| kind.code() == whole.code)?;
        let mut error = Self::new(kind, whole.message).of_request(&AuditId::parse(&whole.request_id)?);
        error.inner.hint = whole.hint.map(Cow::into_owned);
        error.inner.details = whole.details.into_owned();
        Some(match whole.because {
            Some(cause) => error.because(cause),
            None => error,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn what_is_sealed_comes_back_in_the_same_bytes() {
        let error = HostError::new(HostErrorKind::Validation, "It does not fit.")
            .hint("Give another.")
            .detail("candidate", 1)
            .because("what lay under it");
        let text = serde_json::to_string(&error.whole()).unwrap();
        let back = HostError::restored(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&error).unwrap());
        assert_eq!(std::error::Error::source(&back).unwrap().to_string(), "what lay under it");
        let other = text.replacen("validation", "invalidation", 1);
        assert!(HostError::restored(serde_json::from_str(&other).unwrap()).is_none());
    }
}
