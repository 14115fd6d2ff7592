//! The name of a binding, `<kind>/<service>/<identity>`.

use std::fmt;
use std::str::FromStr;

use cofferdam_core::document::quoted;
use cofferdam_model::manifest::CredentialKind;

/// The identity that is used if none is named.
pub const DEFAULT_IDENTITY: &str = "default";

/// The name `<kind>/<service>/<identity>`, as in `api_key/slack/work`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BindingName {
    kind: CredentialKind,
    service: String,
    identity: String,
}

/// The error for a text that is not the name of a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} names no binding: {reason}; write it as <kind>/<service>/<identity>, like api_key/slack/work"
)]
pub struct BindingNameError {
    text: String,
    reason: String,
}

impl BindingName {
    /// Creates the name for this kind, service and identity.
    ///
    /// # Errors
    /// A service or an identity outside the grammar.
    pub fn new(kind: CredentialKind, service: &str, identity: &str) -> Result<Self, BindingNameError> {
        Self::parse(&format!("{}/{service}/{identity}", kind.name()))
    }

    /// Parses `<kind>/<service>/<identity>`; `<kind>/<service>` has the identity `default`.
    ///
    /// # Errors
    /// A part that is missing, unknown or outside the grammar.
    pub fn parse(text: &str) -> Result<Self, BindingNameError> {
        let wrong = |reason: String| BindingNameError { text: quoted(text), reason };
        let mut parts = text.split('/');
        let kind = parts.next().unwrap_or_default();
        let kind =
            CredentialKind::ALL.iter().copied().find(|known| known.name() == kind).ok_or_else(|| {
                let names: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
                wrong(format!("the kind is one of {}", names.join(", ")))
            })?;
        let service = parts.next().unwrap_or_default();
        let identity = parts.next().unwrap_or(DEFAULT_IDENTITY);
        for (what, word) in [("service", service), ("identity", identity)] {
            if !is_word(word) {
                let grammar = "lower-case letters, digits, `.`, `_` and `-`, up to 64, beginning with one of the first two";
                return Err(wrong(format!("the {what} is {grammar}")));
            }
        }
        match parts.next() {
            None => Ok(Self { kind, service: service.to_owned(), identity: identity.to_owned() }),
            Some(_) => Err(wrong("it has more than three parts".to_owned())),
        }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// Returns the service.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns the identity.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }
}

fn is_word(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest = |b: u8| first(b) || matches!(b, b'.' | b'_' | b'-');
    text.len() <= 64 && text.bytes().next().is_some_and(first) && text.bytes().all(rest)
}

impl fmt::Display for BindingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind.name(), self.service, self.identity)
    }
}

impl FromStr for BindingName {
    type Err = BindingNameError;

    fn from_str(text: &str) -> Result<Self, BindingNameError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::BindingName;

    #[test]
    fn a_binding_name_has_three_parts() {
        for (text, shown) in [
            ("api_key/slack/work", "api_key/slack/work"),
            ("aws_sigv4/s3/me.eu-1_x", "aws_sigv4/s3/me.eu-1_x"),
            ("oauth2/google", "oauth2/google/default"),
        ] {
            assert_eq!(BindingName::parse(text).unwrap().to_string(), shown);
        }
        let long = format!("bearer/{}/x", "s".repeat(65));
        for text in [
            "",
            "api_key",
            "api_key/",
            "key/slack/a",
            "api_key/Slack/a",
            "api_key/slack/",
            "api_key/-s/a",
            "api_key/slack/a/b",
            "api_key/../a",
            "api_key/sl\u{430}ck/a",
            "api_key/slack/a\n",
            &long,
        ] {
            let error = BindingName::parse(text).unwrap_err().to_string();
            assert!(error.contains("like api_key/slack/work"), "{error}");
        }
    }
}
