//! Cancelling jobs.

use serde_json::json;

use super::fixture::{Stage, tools};

#[test]
fn a_waiting_job_that_is_cancelled_never_runs() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let id = stage.submit_post("/text/cancelled", "cancelled-1");
    let job = stage.json(&["jobs", "cancel", &id]);
    assert_eq!(job["state"], "cancelled");
    let _worker = stage.worker();
    let other = stage.submit_post("/text/other", "other-1");
    stage.becomes(&other, "done");
    assert_eq!((&stage.job(&id)["state"], stage.asked("/text/cancelled")), (&"cancelled".into(), 0));
    stage.cli().run(&["jobs", "cancel", &id]).fails(67).said("it is cancelled");
    stage.cli().run(&["jobs", "cancel", &other]).fails(67).said("it is done");
    let states: Vec<_> = stage
        .json(&["jobs", "list"])
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["done", "cancelled"], "the newest first");
}

#[test]
fn the_worker_cancels_a_running_job() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let _worker = stage.worker();
    let id = stage.submit_post("/hang/cancel", "hangs-1");
    stage.reaches("/hang/cancel");
    let job = stage.json(&["jobs", "cancel", &id]);
    assert_eq!(job["state"], "running", "the worker cancels it");
    let job = stage.becomes(&id, "cancelled");
    let logged = stage.json(&["audit", "show", job["audit_id"].as_str().unwrap()]);
    assert_eq!(logged["status"], "cancelled", "{logged}");
    assert_eq!(stage.asked("/hang/cancel"), 1);
    // Its effect is unknown, and listed for the operator.
    let listed = stage.json(&["recover", "list"]);
    assert_eq!(listed[0]["audit_id"], job["audit_id"], "{listed}");
}

#[test]
fn a_cancelled_job_of_a_dead_worker_is_not_rerun() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let dying = stage.worker();
    let id = stage.submit_post("/hang/dead", "dead-1");
    stage.reaches("/hang/dead");
    dying.kill();
    assert_eq!(stage.json(&["jobs", "cancel", &id])["state"], "running");
    let _worker = stage.worker();
    stage.becomes(&id, "cancelled");
    assert_eq!(stage.asked("/hang/dead"), 1);
}

#[test]
fn unknown_jobs_are_not_found() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    stage.submit("sleep", &json!({"ms": 1}), "sleep-1");
    for id in ["job-00112233445566778899aabbccddeeff", "nonsense", "job-"] {
        for command in ["show", "cancel", "retry"] {
            let error = stage.cli().run(&["jobs", command, id, "--format", "json"]).fails(66).envelope();
            assert_eq!(error["error"]["code"], "job_not_found", "{command} {id}");
        }
    }
}
