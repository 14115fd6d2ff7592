//! Jobs that run: their outcomes, their keys, their retries.

use std::time::Duration;

use cofferdam_test_support::upstream::ScriptedReply;
use serde_json::json;

use super::fixture::{PROBE, Stage, tools};

#[test]
fn a_job_runs_and_has_its_outcome() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let _worker = stage.worker();
    let id = stage.submit_post("/text/hello", "greeting-1");
    let job = stage.becomes(&id, "done");
    assert_eq!((&job["value"]["status"], &job["value"]["body"]), (&200.into(), &"hello".into()), "{job}");
    // The log has the outcome, under the id that the job names.
    let audit_id = job["audit_id"].as_str().unwrap();
    let logged = stage.json(&["audit", "show", audit_id]);
    assert_eq!(logged["status"], "value", "{logged}");
    // The same call with the key gets it, and does nothing.
    let args = json!({"url": stage.upstream.url("/text/hello"), "body": "x"}).to_string();
    let call = ["call", PROBE, "post", &args, "--key", "greeting-1", "--usage", "--format", "json"];
    let direct = stage.cli().run(&call).json();
    assert_eq!((&direct["replayed"], stage.asked("/text/hello")), (&audit_id.into(), 1), "{direct}");
    // A failure that is an outcome is one.
    let id = stage.submit_post("/status/404", "missing-1");
    let job = stage.becomes(&id, "failed");
    assert_eq!(
        (&job["class"], &job["error"]["class"]),
        (&"external_api_error".into(), &job["class"]),
        "{job}"
    );
    assert_eq!(stage.asked("/status/404"), 1);
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_job_that_needs_an_approval_is_retried_with_it() {
    let Some(tools) = tools() else { return };
    let stage = Stage::with(&tools, "[[approvals.rules]]\noperations = [\"post\"]\nask = true\n");
    let _worker = stage.worker();
    let id = stage.submit_post("/text/approved", "approved-1");
    let job = stage.becomes(&id, "dead");
    assert_eq!(job["code"], "approval_required", "{job}");
    let waiting = stage.json(&["approvals", "list"]);
    stage.cli().run(&["approvals", "approve", waiting[0]["id"].as_str().unwrap()]).ok();
    stage.cli().run(&["jobs", "retry", &id]).ok();
    stage.becomes(&id, "done");
    assert_eq!(stage.asked("/text/approved"), 1);
}

#[test]
fn a_job_waits_while_all_workers_are_down() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    stage.worker().kill();
    let id = stage.submit_post("/text/later", "later-1");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((&stage.job(&id)["state"], stage.asked("/text/later")), (&"queued".into(), 0));
    let _worker = stage.worker();
    stage.becomes(&id, "done");
    assert_eq!(stage.asked("/text/later"), 1);
}

#[test]
fn the_same_key_twice_is_one_job() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let first = stage.submit_post("/text/once", "once-1");
    assert_eq!(stage.submit_post("/text/once", "once-1"), first);
    let other =
        stage.try_submit("post", &json!({"url": stage.upstream.url("/text/other"), "body": "x"}), "once-1");
    let error = other.fails(67).envelope();
    assert_eq!(error["error"]["code"], "idempotency_conflict", "{error}");
    let _worker = stage.worker();
    stage.becomes(&first, "done");
    assert_eq!(stage.submit_post("/text/once", "once-1"), first, "also when it is over");
    assert_eq!((stage.asked("/text/once"), stage.asked("/text/other")), (1, 0));
    // Of many that submit at once, all get the same job.
    let ids: Vec<_> = std::thread::scope(|scope| {
        let submits: Vec<_> =
            (0..6).map(|_| scope.spawn(|| stage.submit_post("/text/many", "many-1"))).collect();
        submits.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    stage.becomes(&ids[0], "done");
    assert_eq!(stage.asked("/text/many"), 1);
}

#[test]
fn a_key_as_a_job_and_a_call_has_one_effect() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let _worker = stage.worker();
    for n in 0..4 {
        let (path, key) = (format!("/slow/300?n={n}"), format!("both-{n}"));
        let args = json!({"url": stage.upstream.url(&path), "body": "x"}).to_string();
        let call = ["call", PROBE, "post", &args, "--key", &key, "--format", "json"];
        let (id, direct) = std::thread::scope(|scope| {
            let direct = scope.spawn(|| stage.cli().run(&call).json());
            let id = stage.submit_post(&path, &key);
            (id, direct.join().unwrap())
        });
        let job = stage.becomes(&id, "done");
        assert_eq!(job["value"], direct, "both get the outcome");
        assert_eq!(stage.asked(&path), 1, "one effect");
    }
}

#[test]
fn a_retry_does_not_occupy_its_worker() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let url = stage.upstream.script(
        "/flaky-job",
        [ScriptedReply::status(503), ScriptedReply::status(503), ScriptedReply::status(200)],
    );
    let _worker = stage.worker_with(&["--concurrency", "1"], &[]);
    let flaky = stage.submit("fetch", &json!({"url": url}), "flaky-1");
    stage.reaches("/flaky-job");
    // The only slot is free while the other job waits for its next attempt.
    let quick = stage.submit_post("/text/between", "between-1");
    stage.becomes(&quick, "done");
    let waiting = stage.job(&flaky);
    assert!(waiting["attempts"].as_u64() < Some(3), "{waiting}");
    let job = stage.becomes(&flaky, "done");
    assert_eq!((&job["attempts"], stage.asked("/flaky-job")), (&2.into(), 3), "{job}");
    // An upstream that stays away leaves the job to the operator.
    let url = stage.upstream.script("/down", [ScriptedReply::status(503)]);
    let id = stage.submit("fetch", &json!({"url": url}), "down-1");
    let job = stage.becomes(&id, "dead");
    assert_eq!((&job["class"], stage.asked("/down")), (&"external_api_error".into(), 3), "{job}");
}

#[test]
fn an_action_runs_as_a_job() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    stage.three_steps("ship");
    let _worker = stage.worker();
    let job = stage.json(&["submit", "run", "ship", "--key", "ship-1"]);
    let job = stage.becomes(job["id"].as_str().unwrap(), "done");
    assert_eq!(job["value"]["steps"]["pay"]["status"], 200, "{job}");
    for step in ["first", "pay", "last"] {
        assert_eq!(stage.asked(&format!("/text/ship-{step}")), 1, "{step}");
    }
    let missing =
        stage.cli().run(&["submit", "run", "none", "--key", "none-1", "--format", "json"]).fails(66);
    assert_eq!(missing.envelope()["error"]["code"], "action_not_found");
}
