//! Answers: a value with the metadata of its call, or one of the two envelopes.

use axum::body::Body;
use axum::response::Response;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, FailureClass};
use cofferdam_runtime::agent;
use cofferdam_runtime::call::Report;
use cofferdam_runtime::flow::{ActionReport, ActionValue, RepeatAdvice};
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The header with the audit id of an action, whose body has no room for it.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The header with the completed steps of an action that failed.
pub(super) const STEPS_DONE: HeaderName = HeaderName::from_static("steps-done");

/// The header with the steps of an action whose values are partial, and the numbers of what they lack.
pub(super) const STEPS_PARTIAL: HeaderName = HeaderName::from_static("steps-partial");

/// The header with the audit id of the call or action whose recorded outcome is returned: nothing was run.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("replayed");

/// The shortest time until a client may retry if the host is busy, in seconds.
const BUSY_SECONDS: u64 = 1;

/// The metadata of a value.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallMetadata {
    /// The call's id in the audit log.
    pub(super) audit_id: String,
    /// The number of attempts; 0 if the outcome was recorded before.
    pub(super) attempts: usize,
    /// The call whose recorded outcome is returned for the idempotency key: nothing was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replayed: Option<String>,
    /// The number of failed items and aborted requests, if the value is partial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partial: Option<u64>,
}

/// A call that has a value.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "CallValue")]
pub(super) struct CallValue {
    /// The value that the operation returned.
    pub(super) value: Value,
    #[serde(flatten)]
    pub(super) about: CallMetadata,
}

/// An action that has a value.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename = "ActionValue")]
pub(super) struct ActionAnswer {
    /// The action's name.
    action: String,
    /// The value that its last step returned.
    output: Value,
    /// The value that each step returned.
    steps: Map<String, Value>,
}

impl CallMetadata {
    pub(super) fn from_report(report: &Report) -> Self {
        Self {
            audit_id: report.audit_id.to_string(),
            attempts: report.attempts.len(),
            replayed: report.replayed.as_ref().map(ToString::to_string),
            partial: report.partial,
        }
    }
}

/// Returns the answer to a call whose value is this JSON text, which is passed on unchanged.
pub(super) fn value(text: &str, about: &CallMetadata) -> Response {
    // Texts and numbers: the serialization cannot fail, and is never empty.
    let about = serde_json::to_string(about).unwrap_or_default();
    let about = about.strip_prefix('{').unwrap_or("}");
    json(StatusCode::OK, format!("{{\"value\":{text},{about}"))
}

/// Returns the answer to an action: `{"action", "output", "steps"}` and nothing else. Its audit id is in a
/// header, and so are its partial and replayed steps.
pub(super) fn action(value: &ActionValue, report: &ActionReport) -> Response {
    // It is JSON already: the serialization cannot fail.
    let answer = json(StatusCode::OK, serde_json::to_string(value).unwrap_or_default());
    let partial: Vec<_> = report.partial.iter().map(|(step, failed)| format!("{step}={failed}")).collect();
    let answer =
        with_header(answer, STEPS_PARTIAL, (!partial.is_empty()).then(|| partial.join(", ")).as_deref());
    with_action_headers(answer, report, report.replayed.as_ref())
}

/// Returns the answer to an action that ended without a value: the error's envelope, and the steps that were
/// completed. The list of steps is present if any step was started, and empty if none was completed.
///
/// Completed steps also change the head of the answer, for clients that read nothing else: it has no status
/// that means that nothing was done, and no `Retry-After` if a retry would repeat effects.
pub(super) fn action_error(error: &Error, told: &Value, report: &ActionReport) -> Response {
    let mut answer = error_with_body(error, told);
    let done: Vec<_> = report.done().map(|step| &*step.id).collect();
    answer = with_header(answer, STEPS_DONE, report.has_begun().then(|| done.join(", ")).as_deref());
    if report.may_have_effect() {
        *answer.status_mut() = after_steps_done(answer.status());
    }
    if report.repeat_advice() == RepeatAdvice::AskFirst {
        answer.headers_mut().remove(header::RETRY_AFTER);
    }
    let replayed = report.ended_in().and_then(|step| step.report.as_ref()?.replayed.as_ref());
    with_action_headers(answer, report, replayed.or(report.replayed.as_ref()))
}

/// Adds the audit id of the action, if it was accepted: a missing action has no audit entry.
fn with_action_headers(answer: Response, report: &ActionReport, replayed: Option<&AuditId>) -> Response {
    let id = report.steps.first().map(|_| report.audit_id.as_str());
    with_header(with_header(answer, AUDIT_ID, id), REPLAYED, replayed.map(AuditId::as_str))
}

/// Adds this header to the answer.
fn with_header(mut answer: Response, name: HeaderName, value: Option<&str>) -> Response {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// The answer for an unknown path, or one that is not text.
pub(super) fn no_such_path() -> Response {
    rejection(
        StatusCode::NOT_FOUND,
        "no_such_path",
        "There is nothing at this path.",
        "GET /openapi.json says what there is.",
    )
}

/// The answer for an action that cannot be run by any caller. The errors in its file, and the file's lines,
/// are for the operator.
pub(super) fn not_runnable(error: HostError) -> Response {
    use HostErrorKind as Kind;
    if !matches!(error.kind(), Kind::Validation | Kind::ConnectorNotFound | Kind::OpNotFound | Kind::Conflict)
    {
        return host_error(error);
    }
    tracing::warn!(
        target: "cofferdam::server", request_id = error.request_id().as_str(), %error, hint = error.hint(),
        "an action cannot be run"
    );
    rejection_with_id(
        error.request_id(),
        StatusCode::UNPROCESSABLE_ENTITY,
        "action_unusable",
        "The action cannot be run as it is: its file does not fit what is installed. Nothing was run.",
        "The operator's log says more; `cofferdam action check` does, too.",
    )
}

/// The answer for a body whose content type is not JSON.
pub(super) fn not_json() -> Response {
    rejection(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "The body is not said to be JSON.",
        "Send it with the header Content-Type: application/json.",
    )
}

/// Returns the answer for an error. The host's own messages are for its operator: callers get the code, and
/// more only if their own request is at fault.
pub(super) fn error(error: &Error) -> Response {
    error_with_body(error, agent::error("", error).structured())
}

/// Returns the answer for the error of a call, which may be its recorded outcome.
pub(super) fn call_error(failed: &Error, report: &Report) -> Response {
    with_header(error(failed), REPLAYED, report.replayed.as_ref().map(AuditId::as_str))
}

/// Returns the answer of [`error`] with this text for callers.
fn error_with_body(error: &Error, told: &Value) -> Response {
    if let Error::Host(error) = error {
        log_host_error(error);
    }
    let status = for_error(error);
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

/// An error as its caller may read it.
#[derive(Debug, Clone)]
pub struct ErrorMessage {
    /// The status of the response.
    pub status: StatusCode,
    /// The code of the error, or the class of the failure.
    pub code: String,
    /// The message.
    pub message: String,
    /// The fix, if the caller can do something.
    pub hint: Option<String>,
    /// The id under which the operator finds it in the log.
    pub request_id: String,
}

/// Returns an error as callers of the API get it, for another form of answer than JSON.
#[must_use]
pub fn error_message(error: &Error) -> ErrorMessage {
    let told = agent::error("", error);
    let text = |pointer: &str| told.structured().pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if let Error::Host(error) = error {
        log_host_error(error);
    }
    ErrorMessage {
        status: for_error(error),
        code: text("/error/code").or_else(|| text("/error/class")).unwrap_or_default(),
        message: text("/error/message").unwrap_or_default(),
        hint: text("/error/details/suggestion"),
        request_id: text("/error/request_id").or_else(|| text("/error/audit_id")).unwrap_or_default(),
    }
}

/// Logs an error that is not about the request: its caller does not get the message.
fn log_host_error(error: &HostError) {
    if !error.kind().is_about_the_request() {
        tracing::warn!(
            target: "cofferdam::server", request_id = error.request_id().as_str(), %error, hint = error.hint(),
            "a request failed"
        );
    }
}

/// Returns the answer for the host's own error.
pub(super) fn host_error(host_error: HostError) -> Response {
    error(&Error::Host(host_error))
}

/// Returns the answer for a request that is rejected before it reaches the host, in the envelope of errors
/// that are no outcome.
pub(super) fn rejection(status: StatusCode, code: &str, message: &str, suggestion: &str) -> Response {
    rejection_with_id(&AuditId::mint(), status, code, message, suggestion)
}

fn rejection_with_id(
    id: &AuditId,
    status: StatusCode,
    code: &str,
    message: &str,
    suggestion: &str,
) -> Response {
    let details = Map::from_iter([("suggestion".to_owned(), Value::from(suggestion))]);
    let envelope = json!({"error": {"code": code, "message": message, "details": details, "request_id": id}});
    json(status, envelope.to_string())
}

/// Returns the answer with this view.
pub(super) fn view(view: &impl Serialize) -> Response {
    // Texts and numbers: the serialization cannot fail.
    json(StatusCode::OK, serde_json::to_string(view).unwrap_or_default())
}

/// Returns an answer of JSON text.
pub(super) fn json(status: StatusCode, text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Outcomes must not be cached.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Returns the status of an error.
pub(super) fn for_error(error: &Error) -> StatusCode {
    match error {
        Error::Failure(failure) => for_class(failure.class()),
        Error::Host(error) => for_kind(error.kind()),
    }
}

/// Returns the status of a failure of this class.
pub(super) const fn for_class(class: FailureClass) -> StatusCode {
    match class {
        FailureClass::CapabilityDenied => StatusCode::FORBIDDEN,
        FailureClass::BindingRequired | FailureClass::BindingFailed => StatusCode::PRECONDITION_FAILED,
        FailureClass::ResourceLimitExceeded => StatusCode::INSUFFICIENT_STORAGE,
        FailureClass::ConnectorRuntimeError => StatusCode::INTERNAL_SERVER_ERROR,
        FailureClass::NetworkError | FailureClass::ExternalApiError => StatusCode::BAD_GATEWAY,
        FailureClass::HashMismatch | FailureClass::SignatureFailure => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Returns the status of the host's own error of this kind.
pub(super) const fn for_kind(kind: HostErrorKind) -> StatusCode {
    use HostErrorKind as Kind;
    match kind {
        Kind::Validation => StatusCode::BAD_REQUEST,
        Kind::ConnectorNotFound
        | Kind::ActionNotFound
        | Kind::OpNotFound
        | Kind::InputUnreadable
        | Kind::BindingNotFound
        | Kind::JobNotFound
        | Kind::AuditNotFound => StatusCode::NOT_FOUND,
        Kind::Conflict
        | Kind::Downgrade
        | Kind::IdempotencyConflict
        | Kind::InProgress
        // The same request passes later, once a person has approved it.
        | Kind::ApprovalRequired
        | Kind::NotReplayable => StatusCode::CONFLICT,
        Kind::ApprovalDenied => StatusCode::FORBIDDEN,
        // The package exists, but is not usable.
        Kind::ContractVersion | Kind::CompileRefused => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Busy => StatusCode::TOO_MANY_REQUESTS,
        Kind::SourceUnavailable | Kind::SourceRefused => StatusCode::BAD_GATEWAY,
        // Nothing ran, and the operator has to fix it; or the server ends.
        Kind::AuditUnavailable
        | Kind::KeyringInvalid
        | Kind::ConsentRequired
        | Kind::VaultLocked
        | Kind::VaultUnusable
        | Kind::RegistryUnavailable
        | Kind::CircuitsUnavailable
        | Kind::QueueUnavailable
        | Kind::AuditTampered
        | Kind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        // Something may have run: the status must not invite a retry.
        Kind::OutcomeUnknown | Kind::OutputUnwritable | Kind::Tool | Kind::Configuration | Kind::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// Returns the status that replaces this one if steps of an action were completed, or may have been: a status
/// that says that nothing was done (a fault of the request, or 503) becomes 500. The envelope has the actual
/// error.
pub(super) fn after_steps_done(status: StatusCode) -> StatusCode {
    match status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE {
        true => StatusCode::INTERNAL_SERVER_ERROR,
        false => status,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn each_class_has_its_http_status() {
        let statuses = FailureClass::ALL.iter().map(|class| (class.name(), for_class(*class).as_u16()));
        let statuses: Vec<_> = statuses.collect();
        let expected = [
            ("capability_denied", 403),
            ("binding_required", 412),
            ("binding_failed", 412),
            ("resource_limit_exceeded", 507),
            ("connector_runtime_error", 500),
            ("network_error", 502),
            ("external_api_error", 502),
            ("hash_mismatch", 422),
            ("signature_failure", 422),
        ];
        for one in expected {
            assert!(statuses.contains(&one), "{one:?}: {statuses:?}");
        }
        assert_eq!(statuses.len(), expected.len());
    }

    #[test]
    fn an_unknown_outcome_is_not_reported_as_retriable() {
        for kind in HostErrorKind::ALL {
            let status = for_kind(*kind).as_u16();
            assert!(status >= 400, "{kind:?}");
            assert!(*kind != HostErrorKind::OutcomeUnknown || status == 500);
        }
    }
}
