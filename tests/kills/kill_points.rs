//! A kill at each named step, and injected faults, which the checker must find.

use super::checker::KillChecker;
use super::fixture::{Job, Load, Op, Stage};

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
const OF_THE_END: [&str; 6] = [
    "settle",
    "checkpoint.before",
    "checkpoint.written",
    "state.before",
    "state.written",
    "checkpoint.after",
];

fn jobs(op: Op, name: &str, n: usize) -> Vec<Job> {
    (0..n).map(|n| Job { name: format!("{}-{name}-{n}", op.name()), op, keyed: n % 2 == 0 }).collect()
}

#[test]
fn a_kill_at_any_point_loses_and_repeats_nothing() {
    let (stage, mut checker) = (Stage::new(), KillChecker::new());
    for step in OF_CALLS.into_iter().chain(OF_THE_END) {
        for op in Op::BOTH {
            let counts: &[u32] = if OF_THE_END.contains(&step) { &[1] } else { &[1, 7] };
            for count in counts {
                // Four callers: each has so many jobs, one after the other, that there are enough commits.
                let jobs = jobs(op, &format!("{step}-{count}"), if *count == 1 { 12 } else { 28 });
                let left = stage.start(jobs.clone(), 4, &format!("{step}:{count}=kill")).end();
                assert!(left.was_killed(), "{step} was not passed: {:?}", left.status);
                checker.hears(&left);
                let findings = checker.finds(&stage);
                assert!(findings.is_empty(), "{step}:{count} {op:?}: {findings:#?}");
                again(&stage, &mut checker, op, &jobs);
            }
        }
    }
    assert!(!checker.without_end().is_empty());
    checker.replays(&stage, checker.told.keys());
    stage.is_recovered(&mut checker);
}

#[test]
fn attempts_before_a_kill_are_logged() {
    let (stage, mut checker) = (Stage::new(), KillChecker::new());
    for step in ["append.durable", "attempt.begins", "request.answered", "attempt.ended", "before.commit"] {
        for count in [2, 3, 5] {
            let name = |n| format!("flaky-{step}-{count}-{n}");
            let jobs: Vec<_> =
                (0..4).map(|n| Job { name: name(n), op: Op::Order, keyed: n % 2 == 0 }).collect();
            let left = stage.start(jobs.clone(), 2, &format!("{step}:{count}=kill")).end();
            assert!(left.was_killed(), "{step} was not passed: {:?}", left.status);
            checker.hears(&left);
            let findings = checker.finds(&stage);
            assert!(findings.is_empty(), "{step}:{count}: {findings:#?}");
            again(&stage, &mut checker, Op::Order, &jobs);
        }
    }
    assert!(checker.has_retried(), "no call was attempted twice");
    checker.replays(&stage, checker.told.keys());
    stage.is_recovered(&mut checker);
}

#[test]
fn a_log_killed_while_pruning_still_verifies() {
    let stage = Stage::new();
    let jobs = (0..12).map(|n| Job { name: format!("pruned-{n}"), op: Op::Order, keyed: false }).collect();
    assert!(stage.start(jobs, 1, "").end().status.success());
    let prune = ["audit", "prune", "--older-than", "2100-01-01"];
    for point in ["before.commit", "after.commit", "prune.signed"] {
        let mut command = stage.cli().command(&prune);
        command.env("COFFERDAM_FAILPOINTS", format!("{point}=kill"));
        assert!(Load::of(command, Vec::new()).end().was_killed(), "{point} was not passed");
        stage.cli().run(&["audit", "verify"]).ok();
    }
    stage.cli().run(&prune).ok();
    stage.cli().run(&["audit", "verify"]).ok();
    let listed = stage.cli().run(&["audit", "list", "--format", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 0, "{listed}");
}

/// The jobs with keys, once more: now each has an outcome, or waits for a decision.
fn again(stage: &Stage, checker: &mut KillChecker, op: Op, jobs: &[Job]) {
    let keyed: Vec<_> = jobs.iter().filter(|job| job.keyed).cloned().collect();
    let left = stage.start(keyed.clone(), 4, "").end();
    checker.hears(&left);
    let findings = checker.finds(stage);
    assert!(findings.is_empty(), "{op:?}: {findings:#?}");
    for job in keyed {
        let decided = checker.done.contains(&job.name);
        let undecided = op == Op::OrderOnce && checker.undecided.contains(&job.name);
        assert!(decided || undecided, "{} was given again, and has no outcome: {:#?}", job.name, left.lines);
    }
}

/// The remains of a broken host: a checker that finds nothing in them is worthless.
#[track_caller]
fn is_found(points: &str, op: Op, what: &str) {
    let (stage, mut checker) = (Stage::new(), KillChecker::new());
    checker.hears(&stage.start(jobs(op, "broken", 8), 2, points).end());
    let findings = checker.finds(&stage);
    assert!(findings.iter().any(|finding| finding.contains(what)), "{points}: {findings:#?}");
}

#[test]
fn the_checker_finds_an_unrecorded_effect() {
    is_found("skip.open=skip,request.answered=kill", Op::Order, "which is not on record");
}

#[test]
fn the_checker_finds_an_unrecorded_outcome() {
    is_found("skip.close=skip", Op::Order, "was told, and is not on record");
}
