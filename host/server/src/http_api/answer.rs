//! Answers: a value with what is known of its call, or one of the two envelopes.

use axum::body::Body;
use axum::response::Response;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_runtime::agent;
use cofferdam_runtime::call::Report;
use cofferdam_runtime::flow::{ActionReport, ActionValue, Again};
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::status;

/// The header with the record of an action, whose body has no room for it.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The header with the steps of an action that are done although it failed.
pub(super) const STEPS_DONE: HeaderName = HeaderName::from_static("steps-done");

/// The header with the steps of an action whose values are partial, and how many of their items failed.
pub(super) const STEPS_PARTIAL: HeaderName = HeaderName::from_static("steps-partial");

/// The header with the record that an answer is given again from: nothing was run.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("replayed");

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

/// The answer to an action: `{"action", "output", "steps"}` and nothing else; its record is in a header, and so is what
/// of it is partial or was run before.
pub(super) fn action(value: &ActionValue, report: &ActionReport) -> Response {
    // JSON already: nothing in it can fail.
    let answer = json(StatusCode::OK, serde_json::to_string(value).unwrap_or_default());
    let partial: Vec<_> = report.partial.iter().map(|(step, failed)| format!("{step}={failed}")).collect();
    let answer = with(answer, STEPS_PARTIAL, (!partial.is_empty()).then(|| partial.join(", ")).as_deref());
    of_action(answer, report, report.replayed.as_ref())
}

/// The answer to an action that ended without a value: beside the envelope of what ended it, the steps that are
/// done all the same. They stand there wherever a step was begun, and are empty where none of them is done.
///
/// What is done changes what the answer says to those who read no more than its head: no status of those that mean that
/// nothing was done, and no word on when to ask again where asking again would do twice what must not be.
pub(super) fn action_error(error: &Error, told: &Value, report: &ActionReport) -> Response {
    let mut answer = ended(error, told);
    let done: Vec<_> = report.done().map(|step| &*step.id).collect();
    answer = with(answer, STEPS_DONE, report.has_begun().then(|| done.join(", ")).as_deref());
    if report.did_something() {
        *answer.status_mut() = status::of_begun(answer.status());
    }
    if report.again() == Again::AskFirst {
        answer.headers_mut().remove(header::RETRY_AFTER);
    }
    let replayed = report.ended_in().and_then(|step| step.report.as_ref()?.replayed.as_ref());
    of_action(answer, report, replayed.or(report.replayed.as_ref()))
}

/// The answer with the record of the action, where it was taken up: of what was not there is none.
fn of_action(answer: Response, report: &ActionReport, replayed: Option<&AuditId>) -> Response {
    let id = report.steps.first().map(|_| report.audit_id.as_str());
    with(with(answer, AUDIT_ID, id), REPLAYED, replayed.map(AuditId::as_str))
}

/// The answer with this header.
fn with(mut answer: Response, name: HeaderName, value: Option<&str>) -> Response {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Nothing is there, or the path is no text.
pub(super) fn no_such_path() -> Response {
    refused(
        StatusCode::NOT_FOUND,
        "no_such_path",
        "There is nothing at this path.",
        "GET /openapi.json says what there is.",
    )
}

/// The action cannot be run, whoever asks for it. What is wrong with its file, and the file's lines, are for the operator.
pub(super) fn not_runnable(error: HostError) -> Response {
    use HostErrorKind as Kind;
    if !matches!(error.kind(), Kind::Validation | Kind::ConnectorNotFound | Kind::OpNotFound | Kind::Conflict)
    {
        return host_error(error);
    }
    tracing::warn!(
        target: "cofferdam::server", request_id = error.request_id().as_str(), %error, hint = error.hint_text(),
        "an action cannot be run"
    );
    refused_as(
        error.request_id(),
        StatusCode::UNPROCESSABLE_ENTITY,
        "action_unusable",
        "The action cannot be run as it is: its file does not fit what is installed. Nothing was run.",
        "The operator's log says more; `cofferdam action check` does, too.",
    )
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
    ended(error, agent::error("", error).structured())
}

/// The same of a call, of which it may be the recorded outcome.
pub(super) fn call_error(failed: &Error, report: &Report) -> Response {
    with(error(failed), REPLAYED, report.replayed.as_ref().map(AuditId::as_str))
}

/// As [`error`], with what callers are told.
fn ended(error: &Error, told: &Value) -> Response {
    if let Error::Host(error) = error
        && !error.kind().is_about_the_request()
    {
        tracing::warn!(
            target: "cofferdam::server", request_id = error.request_id().as_str(), %error, hint = error.hint_text(),
            "a request failed"
        );
    }
    let status = status::of(error);
    let mut answer = json(status, told.to_string());
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
    refused_as(&AuditId::mint(), status, code, message, suggestion)
}

fn refused_as(id: &AuditId, status: StatusCode, code: &str, message: &str, suggestion: &str) -> Response {
    let details = Map::from_iter([("suggestion".to_owned(), Value::from(suggestion))]);
    let envelope = json!({"error": {"code": code, "message": message, "details": details, "request_id": id}});
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
