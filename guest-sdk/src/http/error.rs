//! The error of a request without a response.

use std::fmt;

use crate::{Failure, NetworkPhase};

/// The reason that a request has no response. A response with an error status is not one of these, but a
/// [`StatusError`](super::StatusError).
///
/// `?` converts it to a [`Failure`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The request could not be built: a URL without a host, a header with a line break. The text names the
    /// problem.
    Invalid(String),
    /// The host refused the request. It has ended the call already, so the connector's reaction no longer matters.
    Denied,
    /// The exchange was interrupted.
    Network {
        /// The phase that it had reached, if that is known.
        phase: Option<NetworkPhase>,
        /// The transport's own message.
        detail: String,
    },
    /// The body is not UTF-8 text.
    NotText,
    /// There is no sandbox and therefore no network: this is a native build, without a
    /// [`testing::Call`](crate::testing::Call) in this thread.
    OutsideSandbox,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => write!(f, "the request could not be built: {what}"),
            Self::Denied => f.write_str("the host refused the request"),
            Self::Network { phase, .. } => Failure::network(*phase).fmt(f),
            Self::NotText => f.write_str("the response is not UTF-8 text"),
            Self::OutsideSandbox => {
                f.write_str("requests can be sent in the sandbox only, and in a test to a `testing::Call`")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Network { phase, detail } => Self::network(phase).with_detail(detail),
            Error::Invalid(ref what) => {
                Self::failed("invalid_request", "A request could not be built.").with_detail(what.clone())
            }
            Error::Denied => Self::failed("request_denied", "The host refused a request."),
            Error::NotText => Self::failed("invalid_text", "A response was not UTF-8 text."),
            Error::OutsideSandbox => {
                Self::failed("outside_sandbox", "Requests can be sent in the sandbox only.")
                    .with_detail("a test makes a `cofferdam_guest::testing::Call` first")
            }
        }
    }
}
