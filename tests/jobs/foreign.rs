//! Messages on the queue that are not the cluster's own, or that no host can run.

use std::time::{Duration, Instant};

use cofferdam_test_support::services::ask;
use serde_json::json;

use super::fixture::{PROBE, Stage, tools};

#[test]
fn foreign_messages_are_removed_and_never_run() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let id = stage.submit_post("/text/own", "own-1");
    let cluster = stage.cluster();
    let body = json!({
        "v": 1, "key": "forged-1", "actor": "host", "submitted_at": "2026-01-01T00:00:00Z",
        "work": {"call": {"connector": PROBE, "op": "post",
                          "args": {"url": stage.upstream.url("/text/forged"), "body": "x"}}}
    })
    .to_string();
    let subject = |id: &str| format!("cofferdam.{cluster}.jobs.{id}");
    let forged_id = "job-00112233445566778899aabbccddeeff";
    let headers = |cluster: &str| {
        vec![
            format!("Cofferdam-Job: {forged_id}"),
            format!("Cofferdam-Cluster: {cluster}"),
            format!("Cofferdam-Mac: v1={}", "0".repeat(64)),
        ]
    };
    let publish =
        |name: &str, headers: &[String], body: &[u8]| stage.nats.publish(&subject(name), headers, body);
    publish("unsigned", &[], body.as_bytes());
    publish("forged", &headers(&cluster), body.as_bytes());
    publish("foreign", &headers("0123456789ab"), body.as_bytes());
    publish("large", &headers(&cluster), &vec![b' '; 923_000]);
    let worker = stage.worker_with(&["--listen", "127.0.0.1:0"], &[]);
    stage.becomes(&id, "done");
    let counted = || ask(worker.address(), "GET", "/metrics", &[], "").body;
    let begun = Instant::now();
    for reason in ["unsigned", "forged", "other_cluster", "too_large"] {
        let line = format!("cofferdam_job_messages_rejected_total{{host=\"stage\",reason=\"{reason}\"}} 1");
        while !counted().contains(&line) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{line} is not in\n{}", counted());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert_eq!(stage.asked("/text/forged"), 0);
    stage.cli().run(&["jobs", "show", forged_id]).fails(66).said("There is no job");
    assert_eq!(stage.json(&["jobs", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_forged_record_changes_nothing() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let id = stage.submit_post("/text/still", "still-1");
    let subject = format!("cofferdam.{}.state.{id}", stage.cluster());
    let record = stage.job(&id).to_string().replace("queued", "cancelled");
    stage.nats.publish(&subject, &[format!("Cofferdam-Mac: v1={}", "0".repeat(64))], record.as_bytes());
    let _worker = stage.worker();
    let other = stage.submit_post("/text/other", "other-1");
    stage.becomes(&other, "done");
    for command in ["show", "cancel", "retry"] {
        stage.cli().run(&["jobs", command, &id]).fails(94).said("is not the cluster's own");
    }
    let args = json!({"url": stage.upstream.url("/text/still"), "body": "x"});
    stage.try_submit("post", &args, "still-1").fails(94).said("is not the cluster's own");
    assert_eq!(stage.asked("/text/still"), 0);
}

#[test]
fn a_connector_that_no_host_has_is_a_dead_letter() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let unknown =
        stage.cli().run(&["submit", "call", "github://cofferdam/none@1.0.0", "x", "--format", "json"]);
    assert_eq!(unknown.fails(66).envelope()["error"]["code"], "connector_not_found");
    let id = stage.submit_post("/text/removed", "removed-1");
    stage.cli().run(&["remove", PROBE]).ok();
    let _worker = stage.worker();
    let job = stage.becomes(&id, "dead");
    assert_eq!(job["code"], "connector_not_found", "{job}");
    assert!(job["reason"].as_str().unwrap().contains("no worker has it"), "{job}");
    assert!(job["audit_id"].as_str().unwrap().starts_with("audit-"), "{job}");
    assert_eq!(stage.asked("/text/removed"), 0);
    let listed = stage.json(&["jobs", "list", "--state", "dead"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &job["id"]));
}

#[test]
fn a_job_too_large_for_the_queue_is_refused() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let file = stage.home.path().join("large.json");
    let body = "x".repeat(1_000_000);
    std::fs::write(&file, json!({"url": stage.upstream.url("/text/large"), "body": body}).to_string())
        .unwrap();
    let args = format!("@{}", file.display());
    let refused = stage.cli().run(&["submit", "call", PROBE, "post", &args, "--format", "json"]).fails(65);
    let error = refused.envelope();
    assert!(error["error"]["message"].as_str().unwrap().contains("bytes"), "{error}");
}
