//! Kills at random instants, of two hosts on one record: nothing that was told is lost, and nothing is done twice.

use std::io::Write as _;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::judge::Judge;
use super::stage::{Job, Op, Stage};

/// New jobs of each kind for a process: more than it can do before it is killed.
const JOBS: usize = 80;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

/// New jobs, with a key and without, and before them those with keys of which nothing was told yet.
fn jobs(op: Op, round: usize, judge: &Judge, before: &[Job]) -> Vec<Job> {
    let open = |job: &&Job| !judge.done.contains(&job.name) && !judge.undecided.contains(&job.name);
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
fn killed_at_any_instant_nothing_told_is_lost_and_nothing_is_done_twice() {
    let (most, seed) = (number("COFFERDAM_KILLS", 200), number("COFFERDAM_KILLS_SEED", 7));
    let (stage, mut judge, mut random) = (Stage::new(), Judge::new(), Rng::with_seed(seed));
    let (mut kills, mut round, started) = (0, 0, Instant::now());
    let mut before: Vec<Job> = Vec::new();
    while kills < most {
        round += 1;
        let mut loads: Vec<_> = Op::BOTH
            .into_iter()
            .map(|op| stage.start(jobs(op, round, &judge, &before), random.u32(1..=8), ""))
            .collect();
        before = loads.iter().flat_map(|load| load.jobs.clone()).collect();
        // One is killed while it starts, or when it has told some; the other a little later, or not at all.
        let first = random.usize(0..2);
        match random.u8(0..6) {
            0 => std::thread::sleep(Duration::from_millis(random.u64(0..60))),
            _ => loads[first].prints(random.usize(0..JOBS)),
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..3_000)));
        // Beside them, what was cut short before is done again, and that is cut short, too.
        let recovery = (random.u8(0..4) == 0).then(|| stage.recovers());
        let killed = loads.remove(first).kill();
        kills += u64::from(killed.was_killed());
        judge.hears(&killed);
        let other = loads.remove(0);
        let ended = match random.u8(0..8) {
            0 => other.end(),
            _ => {
                std::thread::sleep(Duration::from_micros(random.u64(0..20_000)));
                other.kill()
            }
        };
        kills += u64::from(ended.was_killed());
        judge.hears(&ended);
        if let Some(recovery) = recovery {
            kills += u64::from(judge.hears_of_recovery(&recovery.kill()));
        }
        if !ended.was_killed() {
            let open = ended.lines.len() < ended.jobs.len();
            assert!(!open, "the host beside the killed one did not do all: {}", ended.lines.len());
        }
        let findings = judge.finds(&stage);
        assert!(findings.is_empty(), "seed {seed}, round {round}, {kills} kills: {findings:#?}");
        let told: Vec<_> = judge.told.keys().collect();
        if !told.is_empty() {
            let some = (0..5).map(|_| told[random.usize(0..told.len())]);
            judge.replays(&stage, some);
        }
    }
    let cut_short = judge.without_end().len();
    assert!(cut_short > 0, "no kill cut a call short");
    stage.is_recovered(&mut judge);
    judge.replays(&stage, judge.told.keys().take(2_000));
    let (calls, requests) = judge.totals();
    assert!(judge.done.len() > most as usize, "under load: {} calls were told", judge.done.len());
    let _ = writeln!(
        std::io::stderr(),
        "\n{kills} kills in {:.0?} (seed {seed}): {calls} calls on record, {} told, {} cut short, {requests} requests",
        started.elapsed(),
        judge.told.len(),
        cut_short,
    );
}
