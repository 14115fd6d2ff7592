//! The failures that a connector can return: constructors, texts, and conversions for `?`.

use std::fmt;

use crate::bindings::cofferdam::connector::types;
pub use types::{Failure, InputError, NetworkError, NetworkPhase, OperationError, UpstreamError};

impl Failure {
    /// Rejects the arguments as invalid. `field` is the argument at fault, as a path in the caller's names
    /// (`message.blocks[2]`), or empty if the combination is at fault. `message` is shown to callers and agents:
    /// one sentence that says what would be valid.
    pub fn invalid_input(field: impl Into<String>, message: impl Into<String>) -> Self {
        let field = Some(field.into()).filter(|field| !field.is_empty());
        Self::InvalidInput(InputError { field, message: message.into(), detail: None })
    }

    /// Reports that the operation failed for a reason of its own. `code` is one token for programs
    /// (`archive_is_empty`), `message` one sentence for callers and agents: no payloads, no secrets. Not transient;
    /// see [`Failure::transient`].
    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::operation(code.into(), message.into(), false)
    }

    /// As [`Failure::failed`], for a failure after which the same call may succeed later with nothing changed. This
    /// informs the caller; the host does not retry because of it.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::operation(code.into(), message.into(), true)
    }

    /// Reports that the remote service returned an error. `status` is its HTTP status; `code` is its own name for
    /// the error. An HTTP response is converted by [`error_for_status`](crate::http::Response::error_for_status).
    /// Use this constructor for services that report errors with status 200.
    pub fn upstream(status: u16, code: impl Into<String>) -> Self {
        let code = Some(code.into()).filter(|code| !code.is_empty());
        Self::Upstream(UpstreamError { status, code, retry_after_ms: None, detail: None })
    }

    /// Reports that the remote service could not be reached, or that the exchange was interrupted.
    pub fn network(phase: Option<NetworkPhase>) -> Self {
        Self::Network(NetworkError { phase, detail: None })
    }

    /// Adds text that only the operator's audit log may contain: it is never shown to callers or agents.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        let slot = match &mut self {
            Self::Upstream(error) => &mut error.detail,
            Self::Network(error) => &mut error.detail,
            Self::InvalidInput(error) => &mut error.detail,
            Self::Failed(error) => &mut error.detail,
        };
        *slot = Some(detail.into());
        self
    }

    fn operation(code: String, message: String, transient: bool) -> Self {
        let code = Some(code).filter(|code| !code.is_empty());
        Self::Failed(OperationError { code, message, transient, detail: None })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upstream(error) => {
                write!(f, "the service answered with status {}", error.status)?;
                error.code.as_ref().map_or(Ok(()), |code| write!(f, " ({code})"))
            }
            Self::Network(NetworkError { phase: None, .. }) => {
                f.write_str("the service could not be reached")
            }
            Self::Network(NetworkError { phase: Some(phase), .. }) => {
                let doing = match phase {
                    NetworkPhase::Dns => "finding its address",
                    NetworkPhase::Connect => "connecting",
                    NetworkPhase::Tls => "agreeing on encryption",
                    NetworkPhase::Send => "sending the request",
                    NetworkPhase::Response => "waiting for the response",
                };
                write!(f, "the exchange with the service broke off while {doing}")
            }
            Self::InvalidInput(InputError { field: Some(field), message, .. }) => {
                write!(f, "{field}: {message}")
            }
            Self::InvalidInput(InputError { message, .. }) | Self::Failed(OperationError { message, .. }) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for Failure {}

/// Converts a JSON error. The parser's message becomes the detail, because it may quote the document.
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::failed("invalid_json", "A JSON document did not have the expected form.")
            .with_detail(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test")]

    use super::*;

    #[test]
    fn json_error_text_is_hidden_from_callers() {
        let Err(error) = serde_json::from_str::<u32>("\"hunter2\"") else { panic!("a string is no number") };
        let failure = Failure::from(error);
        assert!(!failure.to_string().contains("hunter2"));
        let Failure::Failed(OperationError { detail: Some(detail), transient: false, .. }) = failure else {
            panic!("{failure:?}")
        };
        assert!(detail.contains("hunter2"));
    }

    #[test]
    fn an_empty_field_or_code_is_none() {
        let failure = Failure::invalid_input("", "pick one");
        assert!(matches!(failure, Failure::InvalidInput(InputError { field: None, .. })));
        assert!(matches!(Failure::upstream(502, ""), Failure::Upstream(UpstreamError { code: None, .. })));
    }

    #[test]
    fn the_message_names_the_field_not_the_detail() {
        let failure = Failure::invalid_input("channel", "is empty").with_detail("hidden");
        assert_eq!(failure.to_string(), "channel: is empty");
    }
}
