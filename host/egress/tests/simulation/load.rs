//! An outage of 30 to 90 seconds: the load of the service and the time to recovery, for each profile with
//! each breaker.

use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use super::measure::median;
use super::upstream::{Upstream, UpstreamOutage};
use super::world::{Scenario, SimulatedRun, run};
use super::{arrivals, breakers, rows_by_figures, seconds};
use crate::resilience::{BreakerPolicy, PROFILES, RetryProfile};

const SEEDS: u64 = 12;
const CALLERS: usize = 50;
const PAUSE: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(240);

/// The results of one profile with one breaker over all outages.
struct LoadRow {
    profile: &'static str,
    breaker: &'static str,
    /// Requests for each call that began in the outage.
    per_call: f64,
    served: f64,
    told_after: Option<Duration>,
    first_value: Option<Duration>,
    first_value_at_most: Option<Duration>,
    healthy_after: Option<Duration>,
    peak: u32,
}

fn outage(seed: u64) -> Range<Duration> {
    let start = Duration::from_secs(20);
    start..start + Duration::from_secs(30) + Duration::from_secs(60) * seed as u32 / (SEEDS - 1) as u32
}

fn simulate(profile: &RetryProfile, breaker: Option<&BreakerPolicy>, seed: u64) -> SimulatedRun {
    let faults = vec![UpstreamOutage::Status(503, None)];
    run(Scenario {
        seed,
        profile,
        breaker,
        idempotent: true,
        upstream: Upstream::new(vec![outage(seed)], faults, 1_000),
        arrivals: arrivals(CALLERS, PAUSE, END, seed),
    })
}

fn row(name: &'static str, breaker: (&'static str, Option<&BreakerPolicy>)) -> LoadRow {
    let profile = RetryProfile::named(name).unwrap();
    let (mut requests, mut calls, mut served, mut peak) = (0, 0, 0.0, 0);
    let (mut told, mut first, mut healthy) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 0..SEEDS {
        let (run, outage) = (simulate(&profile, breaker.1, seed), outage(seed));
        requests += run.requests(&outage);
        calls += run.begun(&outage).count();
        served += run.served(&outage) / SEEDS as f64;
        peak = peak.max(run.peak(&(outage.end..END)));
        told.extend(run.told_after(&outage));
        first.extend(run.first_value(outage.end));
        healthy.push(run.healthy_after(outage.end, END).unwrap_or(Duration::MAX));
    }
    LoadRow {
        profile: name,
        breaker: breaker.0,
        per_call: f64::from(requests) / calls as f64,
        served,
        told_after: median(told),
        first_value_at_most: (first.len() as u64 == SEEDS).then(|| first.iter().copied().max()).flatten(),
        first_value: median(first),
        healthy_after: median(healthy).filter(|time| *time < Duration::MAX),
        peak,
    }
}

/// Plots the load second by second as a line of blocks; the highest block is `most` requests a second.
fn plot(run: &SimulatedRun, most: u32) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let second = |n: u32| run.requests(&(Duration::from_secs(n.into())..Duration::from_secs((n + 2).into())));
    let block = |load: u32| BLOCKS[(load * 8).div_ceil(most * 2).min(8) as usize];
    (0..180).step_by(2).map(|n| block(second(n))).collect()
}

/// Returns the section of the page, after checking its claims.
pub(super) fn section() -> String {
    let breakers = breakers();
    let mut rows = Vec::new();
    for profile in PROFILES {
        for (name, breaker) in &breakers {
            rows.push(row(profile, (name, breaker.as_ref())));
        }
    }
    check(&rows);
    let mut text = String::from(
        "| profile | breaker | requests a call | got a value | told within | first value | 95 % well | peak |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let figures = |row: &LoadRow| {
        format!(
            "{} | {:.2} | {:.0} % | {} | {} ({}) | {} | {}",
            row.breaker,
            row.per_call,
            row.served,
            seconds(row.told_after),
            seconds(row.first_value),
            seconds(row.first_value_at_most),
            seconds(row.healthy_after),
            row.peak,
        )
    };
    let rows: Vec<_> = rows.iter().map(|row| (row.profile, figures(row))).collect();
    text += &rows_by_figures(&rows);
    let seed = SEEDS / 2;
    let (from, to) = (outage(seed).start.as_secs(), outage(seed).end.as_secs());
    write!(
        text,
        "\nThe load under `standard`, two seconds a character, in an outage from second {from} to {to}; a full \
         block is 40 requests a second, and 10 calls come:\n\n```text\n"
    )
    .unwrap();
    let standard = RetryProfile::named("standard").unwrap();
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (name, breaker) in &breakers {
        lines.push((name, plot(&simulate(&standard, breaker.as_ref(), seed), 40)));
    }
    let marks = (0..180).step_by(2).map(|n| if (from..to).contains(&n) { 'x' } else { '.' });
    lines.push(("outage", marks.collect()));
    for (name, line) in lines {
        writeln!(text, "{name:<9} {}", line.trim_end()).unwrap();
    }
    text.push_str("```");
    text
}

/// Checks the statements of the page's text.
fn check(rows: &[LoadRow]) {
    for profile in PROFILES {
        let row = |breaker| rows.iter().find(|row| row.profile == profile && row.breaker == breaker).unwrap();
        let (without, at_once, windowed) = (row("none"), row("at once"), row("windowed"));
        for row in [at_once, windowed] {
            assert!(row.per_call * 10.0 < without.per_call, "{profile}, {}: {}", row.breaker, row.per_call);
        }
        let probe = |policy: &BreakerPolicy| {
            policy.probe_after(
                policy.cooldown(cofferdam_core::failure::FailureCause::Unavailable, None).unwrap(),
            )
        };
        for (row, policy) in [(at_once, BreakerPolicy::at_once()), (windowed, BreakerPolicy::windowed())] {
            let bound = probe(&policy) + Duration::from_secs(2);
            assert!(row.first_value_at_most.unwrap() <= bound, "{profile}, {}", row.breaker);
            assert!(row.healthy_after.unwrap() <= bound, "{profile}, {}", row.breaker);
            assert!(row.peak <= without.peak, "{profile}, {}: {} at once", row.breaker, row.peak);
        }
        assert!(without.healthy_after.unwrap() <= Duration::from_secs(1), "{profile}");
    }
}
