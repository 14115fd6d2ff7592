//! A kill at each named step, and faults on purpose, which the judge must find.

use super::judge::Judge;
use super::stage::{Job, Load, Op, Stage};

/// The steps of each call, every one between two things that a crash must not tear apart.
const OF_CALLS: [&str; 12] = [
    "received",
    "admitted",
    "submitted",
    "open.durable",
    "attempt.begins",
    "request.answered",
    "attempt.ended",
    "close.durable",
    "outcome.told",
    "before.commit",
    "open.committed",
    "close.committed",
];

/// The steps that a load passes once, at its end.
const OF_THE_END: [&str; 7] = [
    "settle",
    "checkpoint.before",
    "checkpoint.written",
    "checkpoint.committed",
    "state.before",
    "state.written",
    "checkpoint.after",
];

fn jobs(op: Op, name: &str, n: usize) -> Vec<Job> {
    (0..n).map(|n| Job { name: format!("{}-{name}-{n}", op.name()), op, keyed: n % 2 == 0 }).collect()
}

#[test]
fn row_150_killed_at_each_step_nothing_told_is_lost_and_nothing_is_done_twice() {
    let (stage, mut judge) = (Stage::new(), Judge::new());
    for step in OF_CALLS.into_iter().chain(OF_THE_END) {
        for op in Op::BOTH {
            let counts: &[u32] = if OF_THE_END.contains(&step) { &[1] } else { &[1, 7] };
            for count in counts {
                let jobs = jobs(op, &format!("{step}-{count}"), 12);
                let left = stage.start(jobs.clone(), 4, &format!("{step}:{count}=kill")).end();
                assert!(left.was_killed(), "{step} was not passed: {:?}", left.status);
                judge.hears(&left);
                let findings = judge.finds(&stage);
                assert!(findings.is_empty(), "{step}:{count} {op:?}: {findings:#?}");
                again(&stage, &mut judge, op, &jobs);
            }
        }
    }
    assert!(!judge.without_end().is_empty());
    judge.replays(&stage, judge.told.keys());
    stage.is_recovered(&mut judge);
}

#[test]
fn killed_between_two_attempts_each_attempt_is_on_record() {
    let (stage, mut judge) = (Stage::new(), Judge::new());
    for step in ["append.durable", "attempt.begins", "request.answered", "attempt.ended", "before.commit"] {
        for count in [2, 3, 5] {
            let name = |n| format!("flaky-{step}-{count}-{n}");
            let jobs: Vec<_> =
                (0..4).map(|n| Job { name: name(n), op: Op::Order, keyed: n % 2 == 0 }).collect();
            let left = stage.start(jobs.clone(), 2, &format!("{step}:{count}=kill")).end();
            assert!(left.was_killed(), "{step} was not passed: {:?}", left.status);
            judge.hears(&left);
            let findings = judge.finds(&stage);
            assert!(findings.is_empty(), "{step}:{count}: {findings:#?}");
            again(&stage, &mut judge, Op::Order, &jobs);
        }
    }
    assert!(judge.has_retried(), "no call was attempted twice");
    judge.replays(&stage, judge.told.keys());
    stage.is_recovered(&mut judge);
}

#[test]
fn killed_while_it_prunes_the_record_can_be_proved_and_pruned_on() {
    let stage = Stage::new();
    let jobs = (0..12).map(|n| Job { name: format!("pruned-{n}"), op: Op::Order, keyed: false }).collect();
    // One after the other: a chain is cut between two calls, and never before its last entry.
    assert!(stage.start(jobs, 1, "").end().status.success());
    let prune = ["audit", "prune", "--older-than", "2100-01-01"];
    for point in ["prune.step", "before.commit", "after.commit"] {
        let mut command = stage.cli().command(&prune);
        command.env("COFFERDAM_FAILPOINTS", format!("{point}=kill"));
        let killed = Load::of(command, Vec::new()).end().was_killed();
        assert!(killed || point != "prune.step", "{point} was not passed");
        stage.cli().run(&["audit", "verify"]).ok();
    }
    stage.cli().run(&prune).ok();
    stage.cli().run(&["audit", "verify"]).ok();
    let listed = stage.cli().run(&["audit", "list", "--format", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

/// The jobs with keys, once more: now each has an outcome, or somebody has to decide about it.
fn again(stage: &Stage, judge: &mut Judge, op: Op, jobs: &[Job]) {
    let keyed: Vec<_> = jobs.iter().filter(|job| job.keyed).cloned().collect();
    let left = stage.start(keyed.clone(), 4, "").end();
    judge.hears(&left);
    let findings = judge.finds(stage);
    assert!(findings.is_empty(), "{op:?}: {findings:#?}");
    for job in keyed {
        let decided = judge.done.contains(&job.name);
        let undecided = op == Op::OrderOnce && judge.undecided.contains(&job.name);
        assert!(decided || undecided, "{} was given again, and has no outcome: {:#?}", job.name, left.lines);
    }
}

/// What a broken host leaves behind: the judge is worth nothing if it finds nothing.
#[track_caller]
fn is_found(points: &str, op: Op, what: &str) {
    let (stage, mut judge) = (Stage::new(), Judge::new());
    judge.hears(&stage.start(jobs(op, "broken", 8), 2, points).end());
    let findings = judge.finds(&stage);
    assert!(findings.iter().any(|finding| finding.contains(what)), "{points}: {findings:#?}");
}

#[test]
fn a_host_that_runs_what_is_not_on_record_is_found() {
    is_found("skip.open=skip,request.answered=kill", Op::Order, "which is not on record");
}

#[test]
fn a_host_that_tells_what_is_not_on_record_is_found() {
    is_found("skip.close=skip", Op::Order, "was told, and is not on record");
}
