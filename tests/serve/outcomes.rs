//! Outcomes of calls: values, each class of failure from its real cause with its status, keys, and the log.

use cofferdam_test_support::{InstallAccepted as _, Signer, package};
use serde_json::{Value, json};

use super::fixture::{PROBE, Stage, probe};
use crate::envelope::{check_host_json, check_json};
use crate::shared_host::run;

#[test]
fn a_value_has_its_audit_entry() {
    let stage = Stage::new();
    let url = stage.upstream.url("/text/hello");
    let answer = stage.post(&probe("fetch", &json!({"url": url})));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    let told = answer.json();
    assert_eq!((&told["value"]["status"], &told["attempts"]), (&json!(200), &json!(1)), "{told}");
    // A bare name is enough where one version is there.
    let mut bare = probe("fetch", &json!({"url": url}));
    bare["connector"] = "github://cofferdam/probe".into();
    assert_eq!(stage.post(&bare).status, 200);

    let id = told["audit_id"].as_str().unwrap();
    let shown = stage.get(&format!("/v1/audit/{id}"));
    assert_eq!(shown.status, 200, "{shown:?}");
    let shown = shown.json();
    assert_eq!(
        (&shown["status"], &shown["actor"], &shown["op"]),
        (&json!("value"), &json!("http"), &json!("fetch"))
    );
    let types: Vec<_> =
        shown["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["received", "admitted", "attempt_started", "attempt_ended", "final"]);
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_minted_key_is_named_and_accepted() {
    let stage = Stage::new();
    let path = "/flaky/1/named-key";
    let mut call = probe("order", &json!({"url": stage.upstream.url(path), "body": "b", "labels": ["only"]}));
    call["retry"] = "none".into();
    let failed = stage.post(&call);
    let error = &failed.json()["error"];
    assert_eq!(
        (failed.status, &error["retriable"], failed.header("retry-after")),
        (502, &json!(false), None)
    );
    let key = error["details"]["repeat_with_key"].as_str().unwrap();
    let shown = stage.get(&format!("/v1/audit/{key}")).json();
    assert_eq!(shown["error"]["retriable"], false, "{shown}");
    let header = format!("idempotency-key: {key}");
    let other = probe("order", &json!({"url": stage.upstream.url(path), "body": "c", "labels": ["only"]}));
    assert_eq!(stage.post_with(&[&header], &other).word(), "idempotency_conflict");
    assert_eq!(stage.post_with(&[&header], &call).status, 200);
    assert_eq!(stage.upstream.seen(path).len(), 2);
}

#[test]
fn calls_that_wait_or_are_denied_have_their_status() {
    let rules = "[[approvals.rules]]\nactor = \"http*\"\noperations = [\"post\"]\nask = true\n";
    let stage = Stage::configured(&["--token-file", "token"], rules);
    let path = "/text/approvals";
    let call = probe("post", &json!({"url": stage.upstream.url(path), "body": "b"}));
    let keyed = || stage.post_with(&["idempotency-key: approve-1"], &call);
    let waits = keyed();
    assert_eq!((waits.status, waits.word().as_str()), (409, "approval_required"), "{waits:?}");
    check_host_json(&waits.json());
    let details = waits.json()["error"]["details"].clone();
    assert!(!waits.body.contains("cofferdam approvals"), "{waits:?}");
    stage.cli().run(&["approvals", "approve", details["approval"].as_str().unwrap()]).ok();
    assert_eq!((keyed().status, stage.upstream.seen(path).len()), (200, 1));
    assert_eq!((keyed().status, stage.upstream.seen(path).len()), (200, 1), "it is replayed");
    let other = stage.post(&call).json()["error"]["details"]["approval"].clone();
    stage.cli().run(&["approvals", "deny", other.as_str().unwrap()]).ok();
    let denied = stage.post(&call);
    assert_eq!((denied.status, denied.word().as_str()), (403, "approval_denied"), "{denied:?}");
    assert_eq!(stage.upstream.seen(path).len(), 1);
}

#[test]
fn each_failure_class_has_its_status() {
    let stage = Stage::new();
    let signer = Signer::new();
    let unsigned = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    let options = cofferdam::InstallOptions::default().allow_unsigned();
    run(stage.home.host().install_accepted(unsigned, None, options)).unwrap();
    drop(signer);
    let fetch = |url: String| probe("fetch", &json!({"url": url}));
    let closed = stage.closed;
    let mut pinned = fetch(stage.upstream.url("/text/a"));
    pinned["connector"] = format!("{PROBE}#sha256:{}", "0".repeat(64)).into();
    let mut little = probe("spin", &json!({}));
    little["limits"] = json!({"fuel": 1_000_000});
    let slack = json!({"connector": "github://cofferdam/slack", "op": "post_message", "args": {"channel": "C1", "text": "a"}});
    for (call, status, class) in [
        (fetch("https://example.com/".into()), 403, "capability_denied"),
        (slack, 412, "binding_required"),
        (little, 507, "resource_limit_exceeded"),
        (probe("panic", &json!({"message": "inner words"})), 500, "connector_runtime_error"),
        (fetch(format!("http://localhost:{closed}/")), 502, "network_error"),
        (fetch(stage.upstream.url("/status/503/a")), 502, "external_api_error"),
        (pinned, 422, "hash_mismatch"),
        (json!({"connector": "github://acme/quiet@1.0.0", "op": "run"}), 422, "signature_failure"),
    ] {
        let answer = stage.post(&call);
        assert_eq!((answer.status, answer.word().as_str()), (status, class), "{call}: {answer:?}");
        check_json(&answer.json());
        assert!(!answer.body.contains("inner words"), "{answer:?}");
        // The log has it, and shows programs no more than the envelope did.
        let id = answer.json()["error"]["audit_id"].as_str().unwrap().to_owned();
        let shown = stage.get(&format!("/v1/audit/{id}"));
        assert_eq!((shown.status, &shown.json()["class"]), (200, &json!(class)), "{shown:?}");
        assert_eq!(shown.json()["error"]["class"], class);
        assert!(!shown.body.contains("inner words") && !shown.body.contains("chain"), "{shown:?}");
        assert!(!shown.body.contains("/text/a") && !shown.body.contains("arguments"), "{shown:?}");
    }
}

#[test]
fn rejected_calls_have_the_host_error_envelope() {
    let stage = Stage::new();
    let mut of_none = probe("fetch", &json!({"url": "a"}));
    of_none["retry"] = "patent".into();
    for (call, status, code, said) in [
        (json!({"connector": "github://acme/none@1.0.0", "op": "run"}), 404, "connector_not_found", ""),
        (json!({"connector": "github://acme/none", "op": "run"}), 404, "connector_not_found", ""),
        (probe("fetsch", &json!({})), 404, "op_not_found", "fetch"),
        (probe("fetch", &json!({})), 400, "validation", "url"),
        (probe("fetch", &json!({"url": 1})), 400, "validation", "expected a string"),
        (json!({"connector": "nonsense", "op": "run"}), 404, "connector_not_found", ""),
        (json!({"connector": "github://acme/none@latest", "op": "run"}), 400, "validation", "version"),
        (of_none, 400, "validation", "patient"),
    ] {
        let answer = stage.post(&call);
        assert_eq!((answer.status, answer.word().as_str()), (status, code), "{call}: {answer:?}");
        check_host_json(&answer.json());
        assert!(answer.body.contains(said), "{call}: {answer:?}");
    }
    for id in ["audit-01890000-0000-7000-8000-000000000001", "nonsense", "..%2f..%2fhost.key", "%00"] {
        let answer = stage.get(&format!("/v1/audit/{id}"));
        assert_eq!((answer.status, answer.word().as_str()), (404, "audit_not_found"), "{id}: {answer:?}");
    }
    // An error that only the operator can fix reveals nothing about the machine.
    std::fs::write(stage.home.path().join("packages/index.json"), "{ broken").unwrap();
    let answer = stage.post(&json!({"connector": "github://cofferdam/probe", "op": "fetch"}));
    assert_eq!((answer.status, answer.word().as_str()), (503, "registry_unavailable"), "{answer:?}");
    assert!(!answer.body.contains(&*stage.home.path().to_string_lossy()), "{answer:?}");
}

#[test]
fn a_call_with_a_key_runs_once() {
    let stage = Stage::new();
    let url = stage.upstream.url("/text/keyed");
    let call = probe("post", &json!({"url": url, "body": "b"}));
    let first = stage.post_with(&["idempotency-key: order-17"], &call);
    let again = stage.post_with(&["Idempotency-Key: \"order-17\""], &call);
    assert_eq!((first.status, again.status), (200, 200), "{again:?}");
    let (first, again) = (first.json(), again.json());
    assert_eq!((&again["replayed"], &again["value"]), (&first["audit_id"], &first["value"]), "{again}");
    assert_eq!(stage.upstream.seen("/text/keyed").len(), 1);
    let other = probe("post", &json!({"url": url, "body": "c"}));
    let conflict = stage.post_with(&["idempotency-key: order-17"], &other);
    assert_eq!((conflict.status, conflict.word().as_str()), (409, "idempotency_conflict"), "{conflict:?}");
    for bad in ["a:b", "audit-1", "", "\"\"", "a\"b"] {
        let answer = stage.post_with(&[&format!("idempotency-key: {bad}")], &call);
        assert_eq!((answer.status, answer.word().as_str()), (400, "validation"), "{bad}: {answer:?}");
    }
    let twice = stage.post_with(&["idempotency-key: a", "idempotency-key: b"], &call);
    assert_eq!(twice.status, 400, "{twice:?}");
    assert_eq!(stage.upstream.seen("/text/keyed").len(), 1);

    // One that is running is waited for, or not.
    let hanging = probe("post", &json!({"url": stage.upstream.url("/hang/keyed"), "body": "b"}));
    let running = stage.begin_post(&["idempotency-key: slow"], &hanging);
    stage.reaches("/hang/keyed");
    let mut hurried = hanging.clone();
    hurried["if_running"] = "refuse".into();
    let refused = stage.post_with(&["idempotency-key: slow"], &hurried);
    assert_eq!((refused.status, refused.word().as_str()), (409, "in_progress"), "{refused:?}");
    drop(running);
}

#[test]
fn values_of_any_size_are_unchanged() {
    let stage = Stage::new();
    let url = stage.upstream.url("/text/large");
    let body = "é\"\\".repeat(300_000);
    let answer = stage.post(&probe("post", &json!({"url": url, "body": body})));
    assert_eq!(answer.status, 200, "{}", &answer.body[..300.min(answer.body.len())]);
    let _: Value = answer.json();
    assert_eq!(stage.upstream.seen("/text/large").len(), 1);
}
