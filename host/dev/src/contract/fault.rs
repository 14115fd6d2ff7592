//! The faults of the matrix: what a service does, and what the caller has to see of it.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::FailureClass;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::scenario::{Answer, Fault, ScriptedResponse};
use crate::service::Reaction;

/// The text in the answers of the matrix that no failure may repeat.
pub(crate) const CANARY: &str = "payload of the service, not for callers";

/// The body's length of a response that has none of its own, where it has to end too early.
const PADDING: usize = 64;

/// A fault of a service in the place of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InjectedFault {
    Refused,
    Reset,
    ResetInBody,
    Truncated,
    Malformed,
    Timeout,
    RateLimited,
    Unavailable,
    Unreadable,
    Cancelled,
    /// After all of the response was sent.
    CancelledAfter,
    /// In the wait before the next attempt, after status 500.
    CancelledInWait,
}

impl InjectedFault {
    /// The faults of every request.
    pub(crate) const ALL: [Self; 11] = [
        Self::Refused,
        Self::Reset,
        Self::ResetInBody,
        Self::Truncated,
        Self::Malformed,
        Self::Timeout,
        Self::RateLimited,
        Self::Unavailable,
        Self::Unreadable,
        Self::Cancelled,
        Self::CancelledAfter,
    ];

    /// The faults after which an operation that may be repeated has to reach its value: nothing was done, it may have
    /// been done, and the service says that it was not.
    pub(crate) const PASSING: [Self; 3] = [Self::Refused, Self::Reset, Self::Unavailable];

    /// Returns the fault in a few words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Refused => "connection refused",
            Self::Reset => "reset before the response",
            Self::ResetInBody => "reset in the response",
            Self::Truncated => "truncated response",
            Self::Malformed => "not HTTP",
            Self::Timeout => "timeout",
            Self::RateLimited => "status 429",
            Self::Unavailable => "status 500",
            Self::Unreadable => "another body",
            Self::Cancelled => "cancelled at the request",
            Self::CancelledAfter => "cancelled after the response",
            Self::CancelledInWait => "cancelled before the next attempt",
        }
    }

    /// Returns the reaction of the service that would have given `answer`.
    pub(crate) fn reaction(self, answer: &Answer) -> Reaction {
        let own = match answer {
            Answer::Response(response) if response.body.len() > 1 => response.clone(),
            _ => ScriptedResponse {
                status: StatusCode::OK,
                headers: Vec::new(),
                body: Arc::from([b' '; PADDING].as_slice()),
            },
        };
        match self {
            Self::Refused => Reaction::HangUp,
            Self::Cancelled => Reaction::Cancel(None),
            Self::CancelledAfter => Reaction::Cancel(Some(own)),
            Self::Reset => Reaction::Fault(Fault::Reset(None)),
            Self::ResetInBody => {
                let half = own.body.len() / 2;
                Reaction::Fault(Fault::Reset(Some((own, half))))
            }
            Self::Truncated => Reaction::Truncate(own),
            Self::Malformed => Reaction::Fault(Fault::Malformed),
            Self::Timeout => Reaction::Fault(Fault::Timeout),
            Self::RateLimited => {
                let mut response = canary(StatusCode::TOO_MANY_REQUESTS);
                response.headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
                Reaction::Respond(response)
            }
            Self::Unavailable | Self::CancelledInWait => {
                Reaction::Respond(canary(StatusCode::INTERNAL_SERVER_ERROR))
            }
            Self::Unreadable => Reaction::Respond(canary(StatusCode::OK)),
        }
    }

    /// Returns the class that the caller has to see, in words.
    pub(crate) const fn expected(self) -> &'static str {
        match self {
            Self::Refused | Self::Reset | Self::ResetInBody | Self::Truncated | Self::Malformed => {
                "network_error"
            }
            Self::Timeout => "network_error, or resource_limit_exceeded (wall_time)",
            // A call that failed was not waiting.
            Self::RateLimited | Self::Unavailable | Self::CancelledInWait => "external_api_error",
            Self::Unreadable => "a value, or a failure that the connector reports itself",
            Self::Cancelled => "cancelled",
            Self::CancelledAfter => "cancelled, a value, or a failure that the connector reports itself",
        }
    }

    /// Returns whether the caller cancels the call.
    pub(crate) const fn is_cancellation(self) -> bool {
        matches!(self, Self::Cancelled | Self::CancelledAfter | Self::CancelledInWait)
    }

    /// Judges the outcome of a call in which every such request met the fault.
    pub(crate) fn judge(self, outcome: &Result<Value, Error>) -> FaultVerdict {
        let failure = match outcome {
            // The call may have been done before it was cancelled.
            Ok(_) if matches!(self, Self::Unreadable | Self::CancelledAfter) => return FaultVerdict::Kept,
            Ok(_) => return FaultVerdict::Swallowed,
            Err(Error::Host(error)) => {
                let is_kept = self.is_cancellation() && error.kind() == HostErrorKind::Cancelled;
                return if is_kept { FaultVerdict::Kept } else { FaultVerdict::WrongClass };
            }
            Err(Error::Failure(failure)) => failure,
        };
        let is_kept = match self {
            Self::Refused | Self::Reset | Self::ResetInBody | Self::Truncated | Self::Malformed => {
                failure.class() == FailureClass::NetworkError
            }
            Self::Timeout => {
                failure.class() == FailureClass::NetworkError
                    || (failure.class() == FailureClass::ResourceLimitExceeded
                        && failure.code() == "wall_time")
            }
            Self::RateLimited | Self::Unavailable | Self::CancelledInWait => {
                failure.class() == FailureClass::ExternalApiError
            }
            // The response may have had its effect before the call was cancelled.
            Self::Unreadable | Self::CancelledAfter => !is_crash(failure.class(), failure.code()),
            Self::Cancelled => false,
        };
        match is_kept {
            true => FaultVerdict::Kept,
            false if is_crash(failure.class(), failure.code()) => FaultVerdict::Crashed,
            false => FaultVerdict::WrongClass,
        }
    }
}

/// Returns whether the connector ended instead of reporting a failure.
pub(crate) fn is_crash(class: FailureClass, code: &str) -> bool {
    class == FailureClass::ConnectorRuntimeError && matches!(code, "trap" | "exit" | "output_malformed")
}

/// The judgement of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultVerdict {
    /// It is what the caller has to see.
    Kept,
    /// A value hides the fault.
    Swallowed,
    /// The failure is of another class.
    WrongClass,
    /// The connector crashed.
    Crashed,
}

/// Returns a response whose texts no failure may repeat, in the places where services put their messages.
fn canary(status: StatusCode) -> ScriptedResponse {
    let inner = json!({"message": CANARY, "detail": CANARY});
    let body = json!({
        "message": CANARY,
        "detail": CANARY,
        "title": CANARY,
        "description": CANARY,
        "error_description": CANARY,
        "error": inner,
        "errors": [inner],
    });
    let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    ScriptedResponse { status, headers, body: body.to_string().into_bytes().into() }
}
