//! Answers: a value with what is known of its call, or one of the two envelopes.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::status;
use crate::agent;
use crate::call::Report;
use crate::error::{Error, HostError};
use crate::failure::AuditId;
use crate::flow::{ActionReport, ActionValue};

/// The header with the record of an action, whose body has no room for it.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The header with the steps of an action that are done although it failed.
pub(super) const STEPS_DONE: HeaderName = HeaderName::from_static("steps-done");

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

/// An action that has a value.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "ActionValue")]
pub(super) struct ActionAnswer {
    /// The action's name.
    action: String,
    /// What its last step returned.
    output: Value,
    /// What each step returned.
    steps: Map<String, Value>,
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

/// The answer to an action: `{"action", "output", "steps"}` and nothing else; its record is in a header.
pub(super) fn action(value: &ActionValue, id: Option<&AuditId>) -> Response {
    // JSON already: nothing in it can fail.
    recorded(json(StatusCode::OK, serde_json::to_string(value).unwrap_or_default()), id)
}

/// The answer to an action that ended without a value: beside the envelope, which is its step's, the steps that are
/// done all the same. It stands there wherever a step was begun, and is empty where none of them is done.
pub(super) fn half_done(mut answer: Response, report: &ActionReport) -> Response {
    let done: Vec<_> = report.done().map(|step| &*step.id).collect();
    if let Some(done) = HeaderValue::from_str(&done.join(", ")).ok().filter(|_| report.has_begun()) {
        answer.headers_mut().insert(STEPS_DONE, done);
    }
    answer
}

/// The answer, with the record of what it answers.
fn recorded(mut answer: Response, id: Option<&AuditId>) -> Response {
    if let Some(id) = id.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
        answer.headers_mut().insert(AUDIT_ID, id);
    }
    answer
}

/// The body is not said to be JSON.
pub(super) fn not_json() -> Response {
    refused(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "The body is not said to be JSON.",
        "Send it with the header Content-Type: application/json.",
    )
}

/// What came in the place of a value. What the host says of itself is for its operator: callers are told what it is,
/// and more only where their own request is what is wrong.
pub(super) fn error(error: &Error) -> Response {
    ended(error, agent::error("", error).structured(), None)
}

/// As [`error`], with what callers are told, and the record of what ended so.
pub(super) fn ended(error: &Error, told: &Value, id: Option<&AuditId>) -> Response {
    if let Error::Host(error) = error
        && !error.kind().is_about_the_request()
    {
        tracing::warn!(
            target: "cofferdam::server", request_id = error.request_id().as_str(), %error, hint = error.hint_text(),
            "a request failed"
        );
    }
    let status = status::of(error);
    let mut answer = recorded(json(status, told.to_string()), id);
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
