//! Actions over HTTP: their values, their ends, their completed steps, and their log entries.

use cofferdam_test_support::package;
use serde_json::json;

use super::fixture::{Stage, probe};
use crate::envelope::check_json;

/// A server with an action of two steps: a text is posted, and then fetched from the caller's URL.
pub(super) fn stage() -> Stage {
    let stage = Stage::new();
    let grants = [stage.upstream.grant(), format!("http://localhost:{}", stage.closed)];
    let bytes = package::guest_package("probe", &grants);
    let file = format!(
        r#"+++
name = "post-and-get"
version = "1.0.0"

[[requires.connectors]]
name = "github://cofferdam/probe"
version = "0.1.0"
hash = "sha256:{hash}"
capabilities = {{ operations = ["post", "fetch"], hosts = ["{host}"] }}

[[inputs]]
name = "text"
type = "string"
description = "What is posted."

[[inputs]]
name = "url"
type = "string"
description = "What is got after that."

[[execute]]
id = "posted"
connector = "github://cofferdam/probe"
op = "post"
inputs = {{ url = "{url}", body = "${{args.text}}" }}

[[execute]]
id = "got"
connector = "github://cofferdam/probe"
op = "fetch"
inputs = {{ url = "${{args.url}}" }}
+++
Posts a text, and gets a page.
"#,
        hash = cofferdam_core::digest::Digest::sha256(&bytes),
        host = stage.upstream.grant(),
        url = stage.upstream.url("/text/posted"),
    );
    std::fs::write(stage.home.path().join("post-and-get.md"), file).unwrap();
    stage.cli().run(&["action", "add", "post-and-get.md"]).ok();
    stage
}

const RUN: &str = "/v1/actions/post-and-get/run";

pub(super) fn run(stage: &Stage, headers: &[&str], body: &serde_json::Value) -> super::fixture::Answer {
    let headers = [&["content-type: application/json"], headers].concat();
    stage.ask("POST", RUN, &headers, body.to_string().as_bytes())
}

#[test]
fn an_action_returns_step_values_and_logs_its_calls() {
    let stage = stage();
    let args = json!({"args": {"text": "a", "url": stage.upstream.url("/text/got")}});
    let answer = run(&stage, &[], &args);
    assert_eq!(answer.status, 200, "{answer:?}");
    let told = answer.json();
    assert_eq!(told.as_object().unwrap().keys().collect::<Vec<_>>(), ["action", "output", "steps"], "{told}");
    assert_eq!((&told["action"], &told["output"]), (&json!("post-and-get"), &told["steps"]["got"]));
    let id = answer.header("audit-id").unwrap_or_else(|| panic!("{answer:?}")).to_owned();
    let shown = stage.get(&format!("/v1/audit/{id}"));
    assert_eq!((shown.status, &shown.json()["status"]), (200, &json!("value")), "{shown:?}");
    let steps: Vec<_> = shown.json()["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["facts"]["step"].as_str().map(str::to_owned))
        .collect();
    assert!(steps.iter().any(|step| step == "posted") && steps.iter().any(|step| step == "got"), "{shown:?}");
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn the_same_key_does_not_repeat_completed_steps() {
    let stage = stage();
    let args = json!({"args": {"text": "a", "url": stage.upstream.url("/status/503/a")}});
    let failed = run(&stage, &["idempotency-key: ship-1"], &args);
    assert_eq!((failed.status, failed.word().as_str()), (502, "external_api_error"), "{failed:?}");
    check_json(&failed.json());
    assert!(
        failed.header("audit-id").is_some_and(|id| failed.json()["error"]["audit_id"] != id),
        "{failed:?}"
    );
    assert_eq!(stage.upstream.seen("/text/posted").len(), 1);
    let again = run(&stage, &["idempotency-key: ship-1"], &args);
    assert_eq!(again.status, 502, "{again:?}");
    assert_eq!(stage.upstream.seen("/text/posted").len(), 1, "what is done is not done again");
}

#[test]
fn invalid_action_requests_are_refused() {
    let stage = stage();
    let url = stage.upstream.url("/text/got");
    for (body, said) in [
        (json!({"args": {"text": "a"}}), "url"),
        (json!({"args": {"text": "a", "url": url, "more": 1}}), "more"),
        (json!({"args": {"text": 1, "url": url}}), "text"),
        (json!({"arg": {}}), "`arg`"),
        (json!({"wall_time": "soon"}), "wall_time"),
    ] {
        let answer = run(&stage, &[], &body);
        assert_eq!((answer.status, answer.word().as_str()), (400, "validation"), "{body}: {answer:?}");
        assert!(answer.body.contains(said), "{body}: {answer:?}");
    }
    for name in ["none", "..%2f..%2fkeyring", "%00"] {
        let path = format!("/v1/actions/{name}/run");
        let answer = stage.ask("POST", &path, &["content-type: application/json"], b"{}");
        assert_eq!((answer.status, answer.word().as_str()), (404, "action_not_found"), "{name}: {answer:?}");
    }
    assert!(stage.upstream.seen("/text/posted").is_empty());
    assert_eq!(stage.post(&probe("fetch", &json!({"url": url}))).status, 200);
}

#[test]
fn completed_steps_are_reported_on_any_failure() {
    let stage = stage();
    let run = |url: &str| run(&stage, &[], &json!({"args": {"text": "a", "url": url}}));
    // A failure is its step's, and the completed steps are listed with it.
    let failed = run(&stage.upstream.url("/status/503/a"));
    assert_eq!((failed.status, failed.header("steps-done")), (502, Some("posted")), "{failed:?}");
    let keys: Vec<_> = failed.json()["error"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["class", "message", "retriable", "boundary", "audit_id", "details"], "{failed:?}");
    // The same for an error that only the operator can fix, whose details are hidden: the keyring breaks while
    // the first step runs.
    let text = std::fs::read_to_string(stage.home.path().join("post-and-get.md")).unwrap();
    let text = text
        .replace("name = \"post-and-get\"", "name = \"slowly\"")
        .replace("/text/posted", "/slow/1500/posted");
    std::fs::write(stage.home.path().join("slowly.md"), text).unwrap();
    stage.cli().run(&["action", "add", "slowly.md"]).ok();
    let body = json!({"args": {"text": "a", "url": stage.upstream.url("/text/after")}}).to_string();
    let json = "content-type: application/json";
    let running = stage.begin("POST", "/v1/actions/slowly/run", &[json], body.as_bytes());
    stage.reaches("/slow/1500/posted");
    std::fs::write(stage.home.path().join("keyring.toml"), "version = \"broken\"").unwrap();
    let refused = super::fixture::read(running);
    assert_eq!((refused.status, refused.word().as_str()), (500, "keyring_invalid"), "{refused:?}");
    assert_eq!(refused.header("steps-done"), Some("posted"));
    let details = &refused.json()["error"]["details"];
    assert_eq!((&details["done"], &details["step"]), (&json!(["posted"]), &json!("got")), "{refused:?}");
    assert_eq!(details["action_audit_id"], refused.header("audit-id").unwrap());
    assert!(!refused.body.contains(&*stage.home.path().to_string_lossy()), "{refused:?}");
    assert!(stage.upstream.seen("/text/after").is_empty());
}
