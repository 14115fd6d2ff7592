//! The envelope's schema, checked against every failure in the tests.

use cofferdam::{Failure, FailureBoundary, FailureClass, HostError};
use serde_json::Value;

const KEYS: [&str; 6] = ["class", "message", "retriable", "boundary", "audit_id", "details"];

/// The required properties of a failure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) class: FailureClass,
    pub(crate) boundary: FailureBoundary,
    pub(crate) retriable: bool,
    pub(crate) code: &'static str,
}

/// Checks the whole envelope, and the four fields that callers branch on.
#[track_caller]
pub(crate) fn check(failure: &Failure, expected: Expected) {
    let envelope = serde_json::to_value(failure).unwrap();
    let shown = serde_json::to_string_pretty(&envelope).unwrap();
    let got = (failure.class(), failure.boundary(), failure.retriable(), failure.code());
    let wanted = (expected.class, expected.boundary, expected.retriable, expected.code);
    assert_eq!(got, wanted, "{shown}\nnotes: {:#?}", failure.operator_notes());
    check_json(&envelope);
}

/// Checks an envelope in its serial form: exactly the keys of the contract, of the right types, in
/// combinations that the table allows, and nothing that a terminal would act on.
#[track_caller]
pub(crate) fn check_json(envelope: &Value) {
    let id = envelope["error"]["audit_id"].as_str().unwrap_or_default();
    assert!(id.strip_prefix("audit-").is_some_and(|id| id.len() == 36), "{envelope:#}");
    check_shape(envelope);
}

/// Checks the envelope of a failure that is of no call, so that the audit log has no id for it.
#[track_caller]
pub(crate) fn check_unlogged_json(envelope: &Value) {
    assert!(envelope["error"]["audit_id"].is_null(), "{envelope:#}");
    check_shape(envelope);
}

#[track_caller]
fn check_shape(envelope: &Value) {
    let shown = serde_json::to_string_pretty(envelope).unwrap();
    let outer = envelope.as_object().unwrap();
    assert_eq!(outer.keys().collect::<Vec<_>>(), ["error"], "{shown}");
    let error = outer["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), KEYS, "{shown}");
    let class = FailureClass::ALL.iter().find(|class| error["class"] == class.name());
    let class = class.unwrap_or_else(|| panic!("not a class: {shown}"));
    let from = class.boundaries().iter().any(|boundary| error["boundary"] == boundary.name());
    assert!(from, "not a boundary of that class: {shown}");
    assert!(error["retriable"].is_boolean(), "{shown}");
    assert!(!error["message"].as_str().unwrap().is_empty(), "{shown}");
    let details = error["details"].as_object().unwrap();
    assert!(details["code"].is_string(), "{shown}");
    for key in required(*class, &error["boundary"]) {
        assert!(details.contains_key(*key), "details.{key} is missing: {shown}");
    }
    printable(envelope);
}

/// The keys of `details` that each class promises.
fn required(class: FailureClass, boundary: &Value) -> &'static [&'static str] {
    match class {
        FailureClass::CapabilityDenied => &["requested", "granted", "suggestion"],
        FailureClass::ResourceLimitExceeded => &["limit", "configured", "used", "unit"],
        FailureClass::NetworkError => &["request_sent"],
        FailureClass::ExternalApiError => &["status"],
        FailureClass::HashMismatch => &["connector", "expected", "got", "suggestion"],
        FailureClass::SignatureFailure => &["connector", "suggestion"],
        FailureClass::ConnectorRuntimeError if boundary == "sandbox" => &["connector", "op"],
        _ => &[],
    }
}

/// Checks the host's own error: the second envelope, with a message and a way on.
#[track_caller]
pub(crate) fn check_host_error(error: &HostError) {
    let envelope = serde_json::to_value(error).unwrap();
    let shown = serde_json::to_string_pretty(&envelope).unwrap();
    check_host_json(&envelope);
    assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "no way on: {shown}");
}

/// Checks the host's own error in its serial form.
#[track_caller]
pub(crate) fn check_host_json(envelope: &Value) {
    let shown = serde_json::to_string_pretty(envelope).unwrap();
    let error = envelope["error"].as_object().unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message", "details", "request_id"], "{shown}");
    assert!(error["message"].as_str().unwrap().len() > 10, "{shown}");
    printable(envelope);
}

/// No control or direction-changing character anywhere in it.
#[track_caller]
pub(crate) fn printable(value: &Value) {
    let hostile = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match value {
        Value::String(text) => assert!(!text.chars().any(hostile), "{text:?}"),
        Value::Array(items) => items.iter().for_each(printable),
        Value::Object(fields) => fields.values().for_each(printable),
        _ => {}
    }
}

/// A limit that was hit.
pub(crate) const fn limit(code: &'static str) -> Expected {
    Expected {
        class: FailureClass::ResourceLimitExceeded,
        boundary: FailureBoundary::Sandbox,
        retriable: false,
        code,
    }
}

/// A fault of the connector's own.
pub(crate) const fn fault(code: &'static str) -> Expected {
    Expected {
        class: FailureClass::ConnectorRuntimeError,
        boundary: FailureBoundary::Sandbox,
        retriable: false,
        code,
    }
}

/// A denial by the gate.
pub(crate) const fn denied(code: &'static str) -> Expected {
    Expected {
        class: FailureClass::CapabilityDenied,
        boundary: FailureBoundary::Sandbox,
        retriable: false,
        code,
    }
}

/// A signature that does not hold.
pub(crate) const fn signature(code: &'static str) -> Expected {
    Expected {
        class: FailureClass::SignatureFailure,
        boundary: FailureBoundary::Runtime,
        retriable: false,
        code,
    }
}

/// An answer that is an error.
pub(crate) const fn upstream(code: &'static str, retriable: bool) -> Expected {
    Expected { class: FailureClass::ExternalApiError, boundary: FailureBoundary::External, retriable, code }
}

/// A request without an answer.
pub(crate) const fn network(code: &'static str, retriable: bool) -> Expected {
    Expected { class: FailureClass::NetworkError, boundary: FailureBoundary::External, retriable, code }
}
