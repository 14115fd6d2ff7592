//! Workers that die: their jobs are delivered again, and go on where the audit log stands.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{PROBE, Stage, tools};

/// The places at which a worker is killed while it runs an action of three steps, and how often they are passed before.
const POINTS: [(&str, u32); 11] = [
    ("job.begins", 1),
    ("open.durable", 1),
    ("step.ended", 1),
    ("attempt.begins", 2),
    ("request.answered", 2),
    ("close.durable", 2),
    ("step.ended", 2),
    ("attempt.begins", 3),
    ("step.ended", 3),
    ("job.ended", 1),
    ("job.acknowledges", 1),
];

#[test]
fn a_killed_worker_repeats_no_step() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let mut unknown = 0;
    for (point, count) in POINTS {
        let name = format!("kill-{}-{count}", point.replace('.', "-"));
        stage.three_steps(&name);
        let failpoint = format!("{point}:{count}=kill");
        let mut dying = stage.worker_with(&["--concurrency", "1"], &[("COFFERDAM_FAILPOINTS", &failpoint)]);
        let job = stage.json(&["submit", "run", &name, "--key", &name]);
        let id = job["id"].as_str().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&dying.ended()), Some(9), "{point}:{count}");
        let _worker = stage.worker();
        let asked = |step: &str| stage.asked(&format!("/text/{name}-{step}"));
        let job = ends(&stage, id);
        assert!(asked("pay") <= 1, "{point}:{count}: paid {} times", asked("pay"));
        match job["state"].as_str() {
            Some("done") => {
                assert_eq!(asked("pay"), 1, "{point}:{count}: {job}");
                for step in ["first", "last"] {
                    // An operation that may be repeated is, where it was interrupted, under the same key: one effect.
                    let mut keys: Vec<_> = stage
                        .upstream
                        .seen(&format!("/text/{name}-{step}"))
                        .iter()
                        .map(|seen| seen.header("idempotency-key").unwrap().to_owned())
                        .collect();
                    keys.dedup();
                    assert_eq!(keys.len(), 1, "{point}:{count}: {keys:?}");
                }
            }
            // Only the service knows whether it was paid.
            Some("dead") => {
                assert_eq!(job["code"], "outcome_unknown", "{point}:{count}: {job}");
                assert_eq!(asked("last"), 0, "{point}:{count}");
                unknown += 1;
            }
            _ => panic!("{point}:{count}: {job}"),
        }
    }
    assert!((1..=3).contains(&unknown), "{unknown} of {} are unknown", POINTS.len());
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_job_stored_by_a_killed_command_runs_once() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    for key in ["stored-1", "stored-2"] {
        let args = json!({"url": stage.upstream.url(&format!("/text/{key}")), "body": "x"}).to_string();
        let mut command = stage.cli().command(&["submit", "call", PROBE, "post", &args, "--key", key]);
        let killed = command.env("COFFERDAM_FAILPOINTS", "job.stored=kill").output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9), "{killed:?}");
    }
    // The messages are in the queue, without records. One is submitted again before a worker has it, one after.
    let first = stage.submit_post("/text/stored-1", "stored-1");
    let _worker = stage.worker();
    stage.reaches("/text/stored-2");
    let second = stage.submit_post("/text/stored-2", "stored-2");
    for (id, path) in [(first, "/text/stored-1"), (second, "/text/stored-2")] {
        stage.becomes(&id, "done");
        assert_eq!(stage.asked(path), 1, "{path}");
    }
}

/// Waits until the job is over.
fn ends(stage: &Stage, id: &str) -> Value {
    let job = stage.json(&["jobs", "show", id, "--wait", "60s"]);
    assert!(!["queued", "running"].contains(&job["state"].as_str().unwrap()), "{job}");
    job
}

#[test]
fn an_unknown_effect_waits_for_the_operator() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let dying = stage.worker();
    let id = stage.submit_post("/hang/pay", "pay-1");
    stage.reaches("/hang/pay");
    dying.kill();
    let _worker = stage.worker();
    let job = ends(&stage, &id);
    assert_eq!((&job["state"], &job["code"]), (&"dead".into(), &"outcome_unknown".into()), "{job}");
    assert_eq!(stage.asked("/hang/pay"), 1, "there is no second effect");
    // An operator who finds that nothing was paid frees the key, and the job runs.
    let listed = stage.json(&["recover", "list"]);
    let call = listed[0]["audit_id"].as_str().unwrap();
    stage.cli().run(&["recover", "skip", call, "--free-key", "--reason", "not paid, I looked"]).ok();
    assert_eq!(stage.json(&["jobs", "retry", &id])["state"], "queued");
    stage.reaches("/hang/pay");
    stage.cli().run(&["jobs", "cancel", &id]).ok();
}

#[test]
fn a_job_that_kills_its_workers_is_dead() {
    let Some(tools) = tools() else { return };
    let stage = Stage::with(&tools, "");
    let id = stage.submit("sleep", &json!({"ms": 1}), "deadly-1");
    for n in 0..5 {
        let env = [("COFFERDAM_FAILPOINTS", "attempt.begins=kill")];
        let mut dying = stage.worker_with(&[], &env);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&dying.ended()), Some(9), "worker {n}");
    }
    let _worker = stage.worker();
    let job = ends(&stage, &id);
    assert_eq!((&job["state"], &job["code"]), (&"dead".into(), &"too_many_deliveries".into()), "{job}");
    assert!(job["audit_id"].as_str().unwrap().starts_with("audit-"));
    // What killed them is mended: the job runs.
    stage.cli().run(&["jobs", "retry", &id]).ok();
    stage.becomes(&id, "done");
    stage.cli().run(&["jobs", "retry", &id]).fails(67).said("not dead, but done");
}

#[test]
fn sigterm_drains_a_worker() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let mut worker = stage.worker_with(&["--concurrency", "1"], &[]);
    let running = stage.submit_post("/slow/1500", "slow-1");
    stage.reaches("/slow/1500");
    let waiting = stage.submit_post("/text/waits", "waits-1");
    worker.terminate();
    assert!(worker.ended().success());
    assert_eq!(stage.job(&running)["state"], "done", "what ran came to its end");
    assert_eq!((&stage.job(&waiting)["state"], stage.asked("/text/waits")), (&"queued".into(), 0));
    // Beyond the grace the job goes back at once: another worker gets it before its acknowledgement is overdue.
    let mut hasty = stage.worker_with(&["--concurrency", "1", "--grace", "200ms"], &[]);
    stage.becomes(&waiting, "done");
    let id = stage.submit("sleep", &json!({"ms": 2_500}), "sleeps-1");
    stage.becomes(&id, "running");
    hasty.terminate();
    assert!(hasty.ended().success());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(stage.job(&id)["state"], "queued");
    let _worker = stage.worker();
    stage.becomes(&id, "done");
}

#[test]
fn a_long_job_is_not_delivered_twice() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let _workers = [stage.worker(), stage.worker()];
    // Twice the time after which it would be delivered again.
    let id = stage.submit_post("/slow/4500", "long-1");
    let job = stage.becomes(&id, "done");
    assert_eq!((&job["attempts"], stage.asked("/slow/4500")), (&0.into(), 1), "{job}");
}
