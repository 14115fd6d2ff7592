//! The operator's view of a failure, with everything that the audit log has of it. Never for callers or agents.

use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::Failure;
use serde_json::{Map, Value, json};

use super::redact::FieldRedactor;

/// The prefixes of the host's notes, and for each the field that the rest of such a note goes to.
const KINDS: [(&str, &str); 4] =
    [("cause: ", "chain"), ("panic: ", "panic"), ("stderr: ", "stderr"), ("connector: ", "connector_detail")];

/// Returns all of an error, without secrets.
pub(super) fn of(error: &Error, redactor: &FieldRedactor) -> Map<String, Value> {
    match error {
        Error::Failure(failure) => of_failure(failure, redactor),
        Error::Host(error) => of_host_error(error, redactor),
    }
}

/// Returns all of a failure: the fields of its envelope, the observed `cause`, the chain of causes from the
/// outermost inwards, the guest's stderr or panic message, and the host's other notes.
pub(super) fn of_failure(failure: &Failure, redactor: &FieldRedactor) -> Map<String, Value> {
    let detail = |key: &str| failure.details().get(key).cloned();
    let mut view = Map::from_iter([
        ("class".into(), failure.class().name().into()),
        ("code".into(), failure.code().into()),
        ("boundary".into(), failure.boundary().name().into()),
        ("retriable".into(), failure.retriable().into()),
        ("message".into(), redactor.text(failure.message()).into()),
        ("retried".into(), detail("retried").unwrap_or_else(|| 0.into())),
        ("audit_id".into(), failure.audit_id().as_str().into()),
        ("details".into(), redactor.fields(failure.details()).into()),
        ("cause".into(), failure.cause().name().into()),
    ]);
    if let Some(wait) = failure.retry_after() {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        view.insert("asked_to_wait_ms".into(), ms.into());
    }
    for key in ["trap", "status", "upstream_code"] {
        if let Some(value) = detail(key) {
            view.insert(key.into(), redactor.value(&value));
        }
    }
    let (mut chain, mut notes) = (vec![json!(redactor.text(failure.message()))], Vec::new());
    for note in failure.operator_notes() {
        let kind = KINDS.iter().find_map(|(mark, field)| Some((*field, note.strip_prefix(mark)?)));
        match kind {
            Some(("chain", cause)) => chain.push(redactor.text(cause).into()),
            Some((field, text)) => {
                view.insert(field.into(), redactor.text(text).into());
            }
            None => notes.push(Value::from(redactor.text(note))),
        }
    }
    view.insert("chain".into(), chain.into());
    if !notes.is_empty() {
        view.insert("notes".into(), notes.into());
    }
    view
}

fn of_host_error(error: &HostError, redactor: &FieldRedactor) -> Map<String, Value> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let chain: Vec<Value> = std::iter::once(redactor.text(error.message()))
        .chain(causes.map(|cause| redactor.text(&cause.to_string())))
        .map(Value::from)
        .collect();
    let mut view = Map::from_iter([
        ("code".into(), error.kind().code().into()),
        ("message".into(), redactor.text(error.message()).into()),
        ("details".into(), redactor.fields(error.details()).into()),
        ("audit_id".into(), error.request_id().as_str().into()),
        ("chain".into(), chain.into()),
    ]);
    if let Some(hint) = error.hint() {
        view.insert("suggestion".into(), redactor.text(hint).into());
    }
    view
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;
    use cofferdam_core::error::HostErrorKind;
    use cofferdam_core::failure::{AuditId, FailureContext, RuntimeFault};
    use cofferdam_core::privileged::MakeFailure as _;

    #[test]
    fn notes_stand_where_they_belong_and_hold_no_tokens() {
        let token = format!("ghp_{}", "a1".repeat(20));
        let failure = Failure::connector_runtime_error(
            &FailureContext::new(AuditId::mint()),
            RuntimeFault::Trap("unreachable"),
        )
        .with_operator_note("cause: error while executing")
        .with_operator_note("cause: wasm trap: unreachable")
        .with_operator_note(format!("stderr: my key is {token}"))
        .with_operator_note("something else");
        let view = Value::from(of_failure(&failure, &FieldRedactor::new(65_536)));
        let chain = view["chain"].as_array().unwrap();
        assert_eq!((chain.len(), &chain[2]), (3, &json!("wasm trap: unreachable")));
        assert_eq!((&view["trap"], &view["stderr"]), (&json!("unreachable"), &json!("my key is [REDACTED]")));
        assert_eq!(view["notes"], json!(["something else"]));
        let error = HostError::new(HostErrorKind::Internal, "It broke.").with_source("a cause");
        let view = of(&error.into(), &FieldRedactor::new(0));
        assert_eq!(view["chain"], json!(["It broke.", "a cause"]));
    }
}
