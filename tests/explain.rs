//! The tables of words against the requirements and the sources: no word of a document and none of ours is missing.

use std::collections::BTreeSet;
use std::fs;

use cofferdam::{FailureClass, HostErrorKind};
use cofferdam_cli::explain;
use cofferdam_cli::explain::{TermKind, TermMapping};
use cofferdam_test_support::package::repository;

use crate::cli::desk;

/// Every code of the five documents and of their implementations that the mapping has to know (requirements 3.3).
const NAMED: &str = "\
    000 approval_denied approval_timeout unknown_scheme parse_error validation_error malformed_tarball fetch_failed \
        store_unwritable fqn_mismatch \
    001 ShapeInvalid ConfigSchemaViolation ContractVersionMismatch InputInvalid OutputMalformed Forbidden NotFound \
        MissingStreaming MissingToolCalling ContextWindowTooSmall NetworkTimeout Provider5xx RateLimited \
        ExecutionTimeout ResourceBusy LifecycleFailure DependencyMissing DependencyCycle IntegrityFailed \
        IntegrityTokenMissing StoreUnavailable TrustStoreUnavailable ManifestDrift ResumeMismatch SessionCancelled \
        TurnCancelled ToolCancelled SecretLeak MalformedSecretReference AuditWithoutCorrelation UnknownAuditClass \
        PolicyInvalid Auth.DeviceCode \
    002 auth payment rate_limited timeout unavailable model_not_found unknown AllProvidersFailedError OPEN \
        SafetyLimitError LoopDetectedError RateLimiter \
    003 validation provider_auth provider_rate_limit provider_unavailable content_filter budget_exceeded \
        run_timeout turn_limit tool_denied tool_failed tool_unavailable sandbox_error cancelled internal \
        invalid_args result_type non_serializable unknown_tool transport overloaded rate_limit bad_request \
        not_granted provider_executed command_not_allowed domain_not_allowed insecure_url gate_required \
        media_scope_denied user_rejected no_approval_hook approval_error memory stack syntax runtime scope \
        EngineStateError RunLoopInvariantError \
    004 VALIDATION_ERROR ROUTING_ERROR PROTOCOL_ERROR CAPABILITY_NOT_FOUND TRANSPORT_ERROR AGENT_UNAVAILABLE \
        RATE_LIMIT UNAUTHORIZED PAYLOAD_TOO_LARGE AGENT_TIMEOUT INTERNAL_AGENT_ERROR AGENT_ERROR EMCL_FAILURE \
        WORKFLOW_ABORTED fallback_exhausted REPLAY_HASH_MISMATCH";

#[test]
fn every_code_of_every_document_is_mapped() {
    let mut document = "";
    let mut count = 0;
    for word in NAMED.split_whitespace() {
        let mut documents = explain::documents().iter();
        if let Some(next) = documents.find(|next| next.name.contains(&format!("({word})"))) {
            document = &next.name;
            continue;
        }
        let known = explain::external_terms().any(|row| row.document == document && row.word == word);
        assert!(known, "{word} of the {document} is not in the table");
        assert!(explain::explain(word).is_some(), "{word}");
        count += 1;
    }
    let rows = explain::external_terms().map(|row| (&row.document, &row.word)).collect::<BTreeSet<_>>();
    assert!(count >= 95 && rows.len() >= count, "{count} of {}", rows.len());
}

/// The words that the sources can put into `details.code`: the arms of the tables of names, and single ones.
fn produced() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_word =
        |text: &str| text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    for file in ["denial", "fault", "context", "external", "limit", "envelope"] {
        let text = fs::read_to_string(repository().join(format!("host/core/src/failure/{file}.rs"))).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for before in ["=> \"", "details(\"", "{ \"", "&str = \""] {
            for rest in code.split(before).skip(1) {
                let word = rest.split('"').next().unwrap();
                if is_word(word) {
                    found.insert(word.to_owned());
                }
            }
        }
    }
    let text = fs::read_to_string(repository().join("host/egress/src/egress/fault.rs")).unwrap();
    let words = text.split("pub mod code {").nth(1).unwrap().split("\n}\n").next().unwrap();
    found.extend(words.split("&str = \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
    // The names of phases, limit units, requests, deadline scopes and details are not codes.
    let phases = ["dns", "connect", "tls", "send", "response"];
    let others = [
        "request",
        "response",
        "result",
        "failure",
        "nothing",
        "call",
        "attempt",
        "action",
        "repeat_with_key",
        "step",
    ];
    found.retain(|word| !phases.contains(&word.as_str()) && !others.contains(&word.as_str()));
    found
}

#[test]
fn every_error_code_is_explained() {
    let ours = |word: &str| explain::explain(word).is_some_and(|found| !found.ours.is_empty());
    let produced = produced();
    for word in
        ["trap", "load_failed", "internal", "hash", "circuit_open", "unobserved", "tls_no_roots", "unbound"]
    {
        assert!(produced.contains(word), "the scan of the sources does not see {word}: {produced:?}");
    }
    let missing: Vec<_> = produced.iter().filter(|word| !ours(word)).collect();
    assert!(missing.is_empty(), "explain/codes.toml has no row for {missing:?}");
    for class in FailureClass::ALL {
        assert!(ours(class.name()), "{}", class.name());
    }
    for kind in HostErrorKind::ALL {
        assert!(ours(kind.code()), "{}", kind.code());
    }
    for limit in cofferdam_core::failure::LimitKind::ALL {
        assert!(ours(limit.name()) || limit.name() == "rate", "{}", limit.name());
    }
}

#[test]
fn every_reason_of_replay_and_recovery_is_explained() {
    let read = |file: &str| {
        fs::read_to_string(repository().join(format!("host/runtime/src/flow/{file}.rs"))).unwrap()
    };
    let words = |text: &str, before: &str| -> BTreeSet<String> {
        text.split(before).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let mut said = words(&read("replay"), "refused(\"");
    let recover = read("recover");
    said.extend(words(&recover, "=> Some(\""));
    said.extend(words(&recover, "=> \"").into_iter().filter(|word| !word.contains(' ')));
    said.extend(words(&recover, ".detail(\"reason\", \""));
    for word in ["execution_incomplete", "not_kept", "not_installed"] {
        assert!(said.contains(word), "the scan of the sources does not see {word}: {said:?}");
    }
    for word in &said {
        let found = explain::explain(word).unwrap_or_else(|| panic!("{word} is not explained"));
        assert!(found.ours.iter().any(|ours| ours.kind == TermKind::Recovery), "{word}");
    }
    for ours in explain::code_infos().iter().filter(|ours| ours.kind == TermKind::Recovery) {
        assert!(said.contains(&ours.word), "{} is explained and never said", ours.word);
    }
    desk().run("explain execution_incomplete").ok();
}

#[test]
fn codes_that_nothing_produces_are_not_explained() {
    let produced = produced();
    for ours in explain::code_infos().iter().filter(|ours| ours.kind == TermKind::Code) {
        let limit = cofferdam_core::failure::LimitKind::ALL.iter().any(|limit| limit.name() == ours.word);
        assert!(limit || produced.contains(&ours.word), "{} is explained and never said", ours.word);
    }
    for row in explain::external_terms() {
        let reserved =
            explain::explain(&row.word).unwrap().ours.iter().any(|ours| ours.kind == TermKind::Reserved);
        assert!(!reserved || row.becomes == TermMapping::Reserved, "{}", row.word);
    }
}

#[test]
fn explain_shows_terms_and_suggests_the_nearest() {
    let desk = desk();
    let text = desk.run("explain network_error").ok();
    for said in
        ["external", "exponential backoff", "standard", "TRANSPORT_ERROR", "exit code    69", "refused"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    let text = desk.run("explain AGENT_TIMEOUT").ok();
    assert!(text.contains("failure model (004)") && text.contains("wall_time"), "{text}");
    let text = desk.run("explain patient").ok();
    assert!(text.contains("4 to 6 s, 8 to 12 s, 16 to 24 s, 32 to 48 s, 64 to 96 s"), "{text}");
    let json = desk.run("explain wall_time --format json").json();
    assert_eq!(json["repeated_by"], serde_json::json!(["deterministic"]), "{json}");
    assert_eq!(json["ours"][0]["again"], "opt_in");
    assert_eq!(
        json["elsewhere"].as_array().unwrap().iter().filter(|row| row["word"] == "AGENT_TIMEOUT").count(),
        1
    );
    desk.run("explain netwrok_error").fails(65).said("network_error");
    desk.run("explain blue_parrot --format json").fails(65).said("--list");
    let list = desk.run("explain --list").ok();
    for word in
        ["capability_denied", "tls_wrong_host", "WORKFLOW_ABORTED", "failover-windowed", "approval_denied"]
    {
        assert!(list.contains(word), "{word}");
    }
    assert!(!list.contains("/work") && list.lines().count() > 200);
    let script = desk.run("completions bash").ok();
    assert!(
        script.contains("rate_limited") && script.contains("AGENT_TIMEOUT") && script.contains("patient")
    );
}
