//! A thousand calls at one moment during an outage of some seconds: how many retry at once.

use std::time::Duration;

use super::rows_by_figures;
use super::upstream::{Upstream, UpstreamOutage};
use super::world::{Scenario, SimulatedRun, run};
use crate::resilience::{PROFILES, RetryProfile};

const CALLS: usize = 1_000;
const OUTAGE: Duration = Duration::from_millis(2_500);
/// The number of requests that the service can answer in a second after the outage.
const CAPACITY: u32 = 500;

fn simulate(profile: &RetryProfile, fault: UpstreamOutage) -> SimulatedRun {
    let arrivals = (0..CALLS).map(|n| Duration::from_micros(50 * n as u64)).collect();
    let upstream = Upstream::new(vec![Duration::ZERO..OUTAGE], vec![fault], CAPACITY);
    run(Scenario { seed: 1, profile, breaker: None, idempotent: true, upstream, arrivals })
}

/// Returns the section of the page, after checking its claims.
pub(super) fn section() -> String {
    let text = String::from(
        "| profile | the service says | at the first retry | after the outage | requests | got a value |\n\
         |---|---|---|---|---|---|\n",
    );
    let (mut rows, mut peaks) = (Vec::new(), Vec::new());
    let says = [
        ("503", UpstreamOutage::Status(503, None)),
        ("503, back at 2.6 s", UpstreamOutage::BackAt(Duration::from_millis(2_600))),
    ];
    for name in PROFILES {
        for (says, fault) in says {
            let ran = simulate(&RetryProfile::named(name).unwrap(), fault);
            let end = Duration::from_secs(60);
            let first_retry = ran.peak(&(Duration::from_millis(500)..OUTAGE));
            let afterwards = ran.peak(&(OUTAGE..end));
            let all = Duration::ZERO..end;
            let (requests, served) = (ran.requests(&all), ran.served(&all));
            rows.push((name, format!("{says} | {first_retry} | {afterwards} | {requests} | {served:.0} %")));
            peaks.push((name, says, first_retry));
        }
    }
    let peak = |name: &str| peaks.iter().find(|row| row.0 == name && row.1 == "503").unwrap().2;
    assert_eq!(peak("deterministic"), CALLS as u32, "without jitter all come back together");
    assert!(peak("standard") * 3 <= CALLS as u32 * 2, "{}", peak("standard"));
    assert!(peak("patient") * 3 <= CALLS as u32, "{}", peak("patient"));
    text + &rows_by_figures(&rows)
}
