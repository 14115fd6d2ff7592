//! Resolution of calls that a kill interrupted: the operator decides, once; and finished calls are replayed.

use serde_json::{Value, json};

use super::checker::KillChecker;
use super::fixture::{Job, Left, Op, PROBE, Stage};

fn job(op: Op, name: &str, keyed: bool) -> Vec<Job> {
    vec![Job { name: name.to_owned(), op, keyed }]
}

/// One job, killed at `point`.
fn killed(stage: &Stage, jobs: Vec<Job>, point: &str) {
    let left = stage.start(jobs, 1, &format!("{point}=kill")).end();
    assert!(left.was_killed() && left.lines.is_empty(), "{point}: {:?}", left.lines);
}

fn effects(stage: &Stage, job: &str) -> usize {
    stage.upstream.seen(&format!("/text/{job}")).len()
}

fn listed(stage: &Stage) -> Vec<Value> {
    let list = stage.cli().run(&["recover", "list", "--format", "json"]).json();
    list.as_array().unwrap().clone()
}

/// The one call that is listed.
fn only(stage: &Stage) -> Value {
    let mut listed = listed(stage);
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed.remove(0)
}

fn told(left: &Left) -> Value {
    assert_eq!(left.lines.len(), 1, "{:?}", left.lines);
    serde_json::from_str(&left.lines[0]).unwrap()
}

#[test]
fn a_killed_unsafe_call_waits_for_a_resolution() {
    let stage = Stage::new();
    killed(&stage, job(Op::OrderOnce, "once", true), "request.answered");
    assert_eq!(effects(&stage, "once"), 1, "the service has it, and the record has no end");
    let call = only(&stage);
    let id = call["audit_id"].as_str().unwrap();
    for (field, value) in [
        ("idempotent", json!(false)),
        ("resumable", json!(false)),
        ("replayable", json!(false)),
        ("reason", json!("execution_incomplete")),
        ("may_have_sent", json!(true)),
        ("attempts", json!(1)),
        ("op", json!("order_once")),
    ] {
        assert_eq!(call[field], value, "{field}: {call}");
    }
    // It is neither replayed nor repeated: not by its id, not with all, not by its key.
    let cli = stage.cli();
    let replay = cli.run(&["replay", id, "--format", "json"]).fails(87).envelope();
    assert_eq!(replay["error"]["details"]["reason"], "execution_incomplete");
    let resumed: Value = serde_json::from_str(&cli.run(&["recover", "resume", id]).fails(85).stdout).unwrap();
    assert_eq!(resumed["error"]["code"], "outcome_unknown", "{resumed}");
    assert_eq!(cli.run(&["recover", "resume", "--all"]).ok(), "");
    let again = told(&stage.start(job(Op::OrderOnce, "once", true), 1, "").end());
    assert_eq!(
        (&again["error"]["code"], &again["error"]["details"]["call"]),
        (&json!("outcome_unknown"), &json!(id))
    );
    assert_eq!(effects(&stage, "once"), 1);
    // The operator checks the service and decides; without a reason nothing is resolved.
    let _ = cli.run(&["recover", "skip", id, "--reason", " "]).fails(65);
    assert_eq!(only(&stage)["audit_id"], id);
    cli.run(&["recover", "skip", id, "--reason", "it is there"]).ok();
    assert_eq!(listed(&stage), Vec::<Value>::new());
    cli.run(&["recover", "skip", id, "--reason", "it is there"]).fails(67).said("it was skipped");
    let again = told(&stage.start(job(Op::OrderOnce, "once", true), 1, "").end());
    assert_eq!(again["error"]["code"], "outcome_unknown", "its key stays taken: {again}");
    assert_eq!(effects(&stage, "once"), 1);
    let mut checker = KillChecker::new();
    assert_eq!(checker.finds(&stage), Vec::<String>::new());
}

#[test]
fn a_cancelled_unsafe_call_waits_for_a_resolution() {
    let stage = Stage::new();
    let jobs = || job(Op::OrderOnce, "hang-cancelled", true);
    let load = stage.start(jobs(), 1, "");
    while stage.upstream.seen("/hang/").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let left = load.interrupt();
    assert_eq!((left.status.code(), &told(&left)["error"]["code"]), (Some(130), &json!("cancelled")));
    let call = only(&stage);
    assert_eq!((&call["reason"], &call["resumable"]), (&json!("cancelled"), &json!(false)), "{call}");
    let id = call["audit_id"].as_str().unwrap();
    assert_eq!(told(&left)["audit_id"], id);
    let again = told(&stage.start(jobs(), 1, "").end());
    assert_eq!(again["error"]["code"], "outcome_unknown", "{again}");
    let _ = stage.cli().run(&["recover", "resume", id]).fails(85);
    stage.cli().run(&["recover", "skip", id, "--reason", "it is there"]).ok();
    assert_eq!(listed(&stage), Vec::<Value>::new());
    let _ = stage.cli().run(&["recover", "skip", id, "--reason", "it is there"]).fails(67);
    let again = told(&stage.start(jobs(), 1, "").end());
    assert_eq!(again["error"]["code"], "outcome_unknown", "its key stays taken: {again}");
    assert_eq!(stage.upstream.seen("/hang/").len(), 1);
    stage.cli().run(&["audit", "verify"]).ok();
}

#[test]
fn a_killed_resumption_leaves_the_key_to_the_next_call() {
    let stage = Stage::new();
    killed(&stage, job(Op::Order, "third", true), "request.answered");
    let first = only(&stage);
    // It has taken the key of the first call, and has no entry.
    killed(&stage, job(Op::Order, "third", true), "before.commit");
    assert_eq!(only(&stage), first);
    let third = told(&stage.start(job(Op::Order, "third", true), 1, "").end());
    assert_eq!(third["value"]["body"], "third", "{third}");
    assert_eq!(listed(&stage), Vec::<Value>::new());
    let mut checker = KillChecker::new();
    assert_eq!(checker.finds(&stage), Vec::<String>::new());
    assert_eq!(checker.without_end(), Vec::<&str>::new());
}

#[test]
fn a_skip_blocks_a_key_that_an_unwritten_call_took() {
    let stage = Stage::new();
    killed(&stage, job(Op::Order, "taken", true), "request.answered");
    let id = only(&stage)["audit_id"].as_str().unwrap().to_owned();
    killed(&stage, job(Op::Order, "taken", true), "before.commit");
    stage.cli().run(&["recover", "skip", &id, "--reason", "it is there"]).ok();
    let again = told(&stage.start(job(Op::Order, "taken", true), 1, "").end());
    assert_eq!(again["error"]["code"], "outcome_unknown", "its key stays taken: {again}");
    assert_eq!(effects(&stage, "taken"), 1);
}

#[test]
fn a_freed_key_runs_once_more() {
    let stage = Stage::new();
    killed(&stage, job(Op::OrderOnce, "freed", true), "attempt.begins");
    let id = only(&stage)["audit_id"].as_str().unwrap().to_owned();
    assert_eq!(effects(&stage, "freed"), 0);
    stage.cli().run(&["recover", "skip", &id, "--reason", "nothing there", "--free-key"]).ok();
    let again = told(&stage.start(job(Op::OrderOnce, "freed", true), 1, "").end());
    assert_eq!(again["value"]["body"], "freed", "{again}");
    assert_eq!(effects(&stage, "freed"), 1);
}

#[test]
fn a_finished_call_is_replayed_without_effects() {
    let stage = Stage::new();
    killed(&stage, job(Op::OrderOnce, "ended", true), "close.durable");
    assert_eq!(listed(&stage), Vec::<Value>::new(), "nothing is left to decide");
    // No outcome was reported: the key returns it, and so does the call's id, also if the connector is gone.
    let again = told(&stage.start(job(Op::OrderOnce, "ended", true), 1, "").end());
    assert_eq!(again["value"]["body"], "ended");
    let id = again["replayed"].as_str().unwrap();
    let failed = |args: &[&str]| {
        let ran = stage.cli().run(args);
        (ran.code, ran.stdout)
    };
    let url = json!({"url": stage.upstream.url("/status/404")}).to_string();
    let failure = failed(&["call", PROBE, "fetch", &url, "--format", "json"]);
    let envelope: Value = serde_json::from_str(&failure.1).unwrap();
    stage.cli().run(&["remove", "github://cofferdam/probe@0.1.0"]).ok();
    let replay = stage.cli().run(&["replay", id, "--format", "json"]).ok();
    assert_eq!(replay, again["value"].to_string() + "\n");
    let by_number = stage.cli().run(&["replay", id.trim_start_matches("audit-"), "--format", "json"]).ok();
    assert_eq!(by_number, replay);
    let audit_id = envelope["error"]["audit_id"].as_str().unwrap();
    assert_eq!(
        failed(&["replay", audit_id, "--format", "json"]),
        failure,
        "byte for byte, with its exit code"
    );
    assert_eq!((effects(&stage, "ended"), stage.upstream.seen("/status/404").len()), (1, 1));
    // Under another key of the host nothing opens, and nothing is guessed.
    std::fs::write(stage.home.path().join("host.key"), [7; 32]).unwrap();
    let refused = stage.cli().run(&["replay", id, "--format", "json"]).fails(87).envelope();
    assert_eq!(refused["error"]["details"]["reason"], "sealed_under_another_key", "{refused}");
    let unknown = "audit-01890000-0000-7000-8000-000000000001";
    assert_eq!(
        stage.cli().run(&["replay", unknown, "--format", "json"]).fails(66).envelope()["error"]["code"],
        "audit_not_found"
    );
    let _ = stage.cli().run(&["replay", "no-id"]).fails(66);
}

#[test]
fn only_one_of_resume_and_retry_runs() {
    for round in 0..6 {
        let stage = Stage::new();
        let name = format!("both-{round}");
        killed(&stage, job(Op::Order, &name, round % 2 == 0), "request.answered");
        let call = only(&stage);
        assert_eq!((&call["resumable"], &call["idempotent"]), (&json!(true), &json!(true)), "{call}");
        let id = call["audit_id"].as_str().unwrap();
        let mut loads = Vec::new();
        for _ in 0..3 {
            loads.push(super::fixture::Load::of(stage.cli().command(&["recover", "resume", id]), Vec::new()));
            if round % 2 == 0 {
                loads.push(stage.start(job(Op::Order, &name, true), 1, ""));
            }
        }
        let told: Vec<_> = loads.into_iter().map(|load| told(&load.end())).collect();
        assert_eq!(effects(&stage, &name), 2, "once before the kill, once after: {told:#?}");
        assert!(told.iter().any(|told| told["value"]["body"] == *name), "{told:#?}");
        for told in &told {
            let decided = ["conflict", "in_progress"].iter().any(|code| told["error"]["code"] == *code);
            assert!(told["value"]["body"] == *name || decided, "{told}");
        }
        assert_eq!(listed(&stage), Vec::<Value>::new());
        let keys: Vec<_> = stage
            .upstream
            .seen("/text/")
            .into_iter()
            .filter_map(|seen| seen.header("idempotency-key").map(str::to_owned))
            .collect();
        assert_eq!(keys[0], keys[1], "the service knows it again");
        let mut checker = KillChecker::new();
        assert_eq!(checker.finds(&stage), Vec::<String>::new());
    }
}

#[test]
fn a_resume_killed_again_is_one_pending_call() {
    let stage = Stage::new();
    killed(&stage, job(Op::Order, "twice", false), "request.answered");
    let first = only(&stage)["audit_id"].as_str().unwrap().to_owned();
    let mut command = stage.cli().command(&["recover", "resume", &first]);
    command.env("COFFERDAM_FAILPOINTS", "attempt.ended=kill");
    assert!(super::fixture::Load::of(command, Vec::new()).end().was_killed());
    let second = only(&stage)["audit_id"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    // Without its package it stays as it is; with it, it has an outcome.
    let refused = stage.cli().run(&["recover", "resume", &first, "--format", "json"]).fails(67);
    assert!(refused.stdout.contains(&second), "{refused:?}");
    stage.cli().run(&["remove", "github://cofferdam/probe@0.1.0"]).ok();
    let _ = stage.cli().run(&["recover", "resume", &second]).fails(66);
    assert_eq!(only(&stage)["audit_id"], *second);
    stage.installs();
    let done: Value = serde_json::from_str(&stage.cli().run(&["recover", "resume", "--all"]).ok()).unwrap();
    assert_eq!(done["value"]["body"], "twice");
    assert_eq!(effects(&stage, "twice"), 3, "one an attempt on record");
    let replayed = stage.cli().run(&["replay", &first, "--format", "json"]).fails(87).envelope();
    assert!(replayed["error"]["message"].as_str().unwrap().contains(&second), "{replayed}");
    let mut checker = KillChecker::new();
    assert_eq!(checker.finds(&stage), Vec::<String>::new());
}

#[test]
fn pending_calls_show_why_they_cannot_resume() {
    let stage = Stage::new();
    killed(&stage, job(Op::Order, "asked", true), "request.answered");
    let call = only(&stage);
    assert_eq!((&call["resumable"], &call["idempotency_key"]), (&json!(true), &json!("asked")), "{call}");
    assert!(call["arguments"].as_str().unwrap().contains("/text/asked"), "{call}");
    let cli = stage.cli();
    let page = cli.run(&["recover", "list"]).ok();
    assert!(page.contains("/text/asked") && page.contains("key          asked"), "{page}");

    // Its connector is removed: that is reported, and an attempt to resume resolves nothing.
    cli.run(&["remove", &format!("{PROBE}@0.1.0")]).ok();
    let gone = only(&stage);
    assert_eq!((&gone["resumable"], &gone["not_resumable"]), (&json!(false), &json!("not_installed")));
    assert!(cli.run(&["recover", "list"]).ok().contains("once its package is installed again"));
    cli.run(&["recover", "resume", "--all"]).ok();
    let id = call["audit_id"].as_str().unwrap();
    let short = &id["audit-".len().."audit-0193b5c8-7d3e".len()];
    let _ = cli.run(&["recover", "resume", short]).fails(66);
    assert_eq!(only(&stage)["audit_id"], call["audit_id"], "it waits still");
    assert_eq!(effects(&stage, "asked"), 1);

    // Once it is there again, the question is answered.
    stage.installs();
    assert_eq!(only(&stage)["resumable"], true);
    cli.run(&["recover", "resume", short]).ok();
    assert!(listed(&stage).is_empty());
    assert_eq!(effects(&stage, "asked"), 2);
}
