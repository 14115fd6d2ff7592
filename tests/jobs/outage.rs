//! NATS away for a while, and a queue that is full.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::fixture::{Stage, tools};

#[test]
fn nats_restarted_loses_nothing_accepted() {
    let Some(tools) = tools() else { return };
    let mut stage = Stage::new(&tools);
    let worker = stage.worker();
    let before: Vec<_> =
        (0..5).map(|n| stage.submit_post(&format!("/text/before-{n}"), &format!("before-{n}"))).collect();
    let running = stage.submit_post("/slow/3000", "running-1");
    stage.reaches("/slow/3000");
    stage.nats.kill();
    // What is not accepted is refused, and not left to a connection that may come back.
    let refused =
        stage.try_submit("post", &json!({"url": stage.upstream.url("/text/away"), "body": "x"}), "away-1");
    let error = refused.fails(94).envelope();
    assert_eq!(error["error"]["code"], "queue_unavailable", "{error}");
    assert_eq!(error["error"]["details"]["idempotency_key"], "away-1", "{error}");
    assert!(error.to_string().to_lowercase().contains("connection refused"), "{error}");
    std::thread::sleep(Duration::from_secs(5));
    stage.nats.restart();
    for (n, id) in before.iter().enumerate() {
        stage.becomes(id, "done");
        assert_eq!(stage.asked(&format!("/text/before-{n}")), 1);
    }
    // It came to its end while NATS was away: its outcome is in the log, and it is not done again.
    stage.becomes(&running, "done");
    assert_eq!(stage.asked("/slow/3000"), 1);
    // The worker goes on by itself.
    let after = stage.submit_post("/text/after", "after-1");
    stage.becomes(&after, "done");
    assert_eq!(stage.asked("/text/away"), 0);
    drop(worker);
}

#[test]
fn jobs_that_wait_survive_a_restart() {
    let Some(tools) = tools() else { return };
    let mut stage = Stage::new(&tools);
    let ids: Vec<_> =
        (0..3).map(|n| stage.submit_post(&format!("/text/kept-{n}"), &format!("kept-{n}"))).collect();
    stage.nats.kill();
    stage.nats.restart();
    let _worker = stage.worker();
    for (n, id) in ids.iter().enumerate() {
        stage.becomes(id, "done");
        assert_eq!(stage.asked(&format!("/text/kept-{n}")), 1);
    }
}

#[test]
fn a_full_queue_refuses_as_busy() {
    let Some(tools) = tools() else { return };
    let stage = Stage::with(&tools, "max_jobs = 3");
    let ids: Vec<_> =
        (0..3).map(|n| stage.submit_post(&format!("/text/fits-{n}"), &format!("fits-{n}"))).collect();
    let args = json!({"url": stage.upstream.url("/text/beyond"), "body": "x"});
    let error = stage.try_submit("post", &args, "beyond-1").fails(75).envelope();
    assert_eq!(error["error"]["code"], "busy", "{error}");
    // A known job is no new one.
    assert_eq!(stage.submit_post("/text/fits-0", "fits-0"), ids[0]);
    let _worker = stage.worker();
    for id in &ids {
        stage.becomes(id, "done");
    }
    let id = stage.submit("post", &args, "beyond-1");
    stage.becomes(&id, "done");
    assert_eq!(stage.asked("/text/beyond"), 1);
}

#[test]
fn a_restored_queue_runs_no_done_job_again() {
    let Some(tools) = tools() else { return };
    let mut stage = Stage::new(&tools);
    let id = stage.submit_post("/text/restored", "restored-1");
    stage.nats.stop();
    let (store, backup) = (stage.nats.store().join("store"), stage.nats.store().join("backup"));
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&store, &backup);
    stage.nats.restart();
    let worker = stage.worker();
    stage.becomes(&id, "done");
    worker.kill();
    stage.nats.stop();
    std::fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    stage.nats.restart();
    assert_eq!(stage.job(&id)["state"], "queued");
    // The time for which its outcome stands is over.
    let config = stage.home.path().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[audit]\nkey_ttl = \"1s\"\n")).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let _worker = stage.worker();
    let job = stage.becomes(&id, "dead");
    assert_eq!((&job["code"], stage.asked("/text/restored")), (&"too_old".into(), 1), "{job}");
}
