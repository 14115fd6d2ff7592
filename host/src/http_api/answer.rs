//! Answers: a value with what is known of its call, or one of the two envelopes.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::status;
use crate::agent;
use crate::call::Report;
use crate::error::{Error, HostError};
use crate::failure::AuditId;

/// How long who finds the host busy waits at least, in seconds.
const BUSY_SECONDS: u64 = 1;

/// What is told beside a value.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct About {
    /// The call's id in the record.
    pub(super) audit_id: String,
    /// How many attempts were made; 0 where the outcome was recorded before.
    pub(super) attempts: usize,
    /// The call whose recorded outcome this is, for the idempotency key: nothing was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replayed: Option<String>,
    /// How many of its items failed, where the value says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial: Option<u64>,
}

/// A call that has a value.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "CallValue")]
pub(super) struct CallValue {
    /// What the operation returned.
    pub(super) value: Value,
    #[serde(flatten)]
    pub(super) about: About,
}

impl About {
    pub(super) fn of(report: &Report) -> Self {
        Self {
            audit_id: report.audit_id.to_string(),
            attempts: report.attempts.len(),
            replayed: report.replayed.as_ref().map(ToString::to_string),
            partial: report.partial,
        }
    }
}

/// The answer to a call whose value is this JSON text, which is passed on as it is.
pub(super) fn value(text: &str, about: &About) -> Response {
    // Texts and numbers: nothing in it can fail, and it is never empty.
    let about = serde_json::to_string(about).unwrap_or_default();
    let about = about.strip_prefix('{').unwrap_or("}");
    json(StatusCode::OK, format!("{{\"value\":{text},{about}"))
}

/// What came in the place of a value. What the host says of itself is for its operator: callers are told what it is,
/// and more only where their own request is what is wrong.
pub(super) fn error(error: &Error) -> Response {
    if let Error::Host(error) = error
        && !error.kind().is_about_the_request()
    {
        tracing::warn!(
            target: "cofferdam::server", request_id = error.request_id().as_str(), %error, hint = error.hint_text(),
            "a request failed"
        );
    }
    let status = status::of(error);
    let mut answer = json(status, agent::error("", error).structured().to_string());
    let after = match error {
        Error::Failure(failure) if failure.retriable() => {
            failure.details().get("retry_after_ms").and_then(Value::as_u64).map(|ms| ms.div_ceil(1000))
        }
        Error::Host(_) if status == StatusCode::TOO_MANY_REQUESTS => Some(BUSY_SECONDS),
        _ => None,
    };
    if let Some(seconds) = after {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// The host's own error.
pub(super) fn host_error(host_error: HostError) -> Response {
    error(&Error::Host(host_error))
}

/// What is wrong with a request before it is one of the host's: the envelope of all that is no outcome.
pub(super) fn refused(status: StatusCode, code: &str, message: &str, suggestion: &str) -> Response {
    let details = Map::from_iter([("suggestion".to_owned(), Value::from(suggestion))]);
    let envelope = json!({"error": {"code": code, "message": message, "details": details, "request_id": AuditId::mint()}});
    json(status, envelope.to_string())
}

/// An answer of JSON text.
pub(super) fn json(status: StatusCode, text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Outcomes are not for caches.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
