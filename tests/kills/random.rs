//! Kills at random instants, of two hosts on one log: no reported outcome is lost, and nothing is done twice.

use std::io::Write as _;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::checker::KillChecker;
use super::fixture::{Job, Op, Stage};

/// New jobs of each kind for a process: more than it can do before it is killed.
const JOBS: usize = 80;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

/// New jobs, with a key and without, preceded by those with keys that have no reported outcome yet.
fn jobs(op: Op, round: usize, checker: &KillChecker, before: &[Job]) -> Vec<Job> {
    let open = |job: &&Job| !checker.done.contains(&job.name) && !checker.undecided.contains(&job.name);
    let again = before.iter().filter(|job| job.keyed && job.op == op).filter(open);
    let mut jobs: Vec<_> = again.cloned().collect();
    for n in 0..JOBS {
        // Some are attempted three times.
        let flaky = if op == Op::Order && n % 5 == 0 { "flaky-" } else { "" };
        let name = format!("{flaky}{}-{round}-{n}", op.name());
        jobs.push(Job { name, op, keyed: n % 2 == 0 });
    }
    jobs
}

#[test]
fn random_kills_lose_and_repeat_nothing() {
    let (most, seed) = (number("COFFERDAM_KILLS", 100), number("COFFERDAM_KILLS_SEED", 7));
    let (stage, mut checker, mut random) = (Stage::new(), KillChecker::new(), Rng::with_seed(seed));
    let (mut kills, mut round, started) = (0, 0, Instant::now());
    let mut before: Vec<Job> = Vec::new();
    while kills < most {
        round += 1;
        let mut loads: Vec<_> = Op::BOTH
            .into_iter()
            .map(|op| {
                // With many calls at once, one write has the entries of several.
                let concurrency = if random.u8(0..4) == 0 { 16 } else { random.u32(1..=8) };
                stage.start(jobs(op, round, &checker, &before), concurrency, "")
            })
            .collect();
        before = loads.iter().flat_map(|load| load.jobs.clone()).collect();
        // One is killed while it starts, or after some outcomes; the other a little later, or not at all.
        let first = random.usize(0..2);
        match random.u8(0..6) {
            0 => std::thread::sleep(Duration::from_millis(random.u64(0..60))),
            _ => loads[first].prints(random.usize(0..JOBS)),
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..3_000)));
        // Meanwhile, calls interrupted earlier are resumed, and the resuming process is killed too.
        let recovery = (random.u8(0..4) == 0).then(|| stage.recovers());
        let killed = loads.remove(first).kill();
        kills += u64::from(killed.was_killed());
        checker.hears(&killed);
        let other = loads.remove(0);
        let ended = match random.u8(0..8) {
            0 => other.end(),
            _ => {
                std::thread::sleep(Duration::from_micros(random.u64(0..20_000)));
                other.kill()
            }
        };
        kills += u64::from(ended.was_killed());
        checker.hears(&ended);
        if let Some(recovery) = recovery {
            kills += u64::from(checker.hears_of_recovery(&recovery.kill()));
        }
        if !ended.was_killed() {
            let open = ended.lines.len() < ended.jobs.len();
            assert!(!open, "the host beside the killed one did not do all: {}", ended.lines.len());
        }
        let findings = checker.finds(&stage);
        assert!(findings.is_empty(), "seed {seed}, round {round}, {kills} kills: {findings:#?}");
        let told: Vec<_> = checker.told.keys().collect();
        if !told.is_empty() {
            let some = (0..5).map(|_| told[random.usize(0..told.len())]);
            checker.replays(&stage, some);
        }
    }
    let cut_short = checker.without_end().len();
    assert!(cut_short > 0, "no kill cut a call short");
    stage.is_recovered(&mut checker);
    checker.replays(&stage, checker.told.keys().take(2_000));
    let (calls, requests) = checker.totals();
    assert!(checker.done.len() > most as usize, "under load: {} calls were told", checker.done.len());
    let _ = writeln!(
        std::io::stderr(),
        "\n{kills} kills in {:.0?} (seed {seed}): {calls} calls on record, {} told, {} cut short, {requests} requests",
        started.elapsed(),
        checker.told.len(),
        cut_short,
    );
}
