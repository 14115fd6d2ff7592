//! Thousands of random outages: how often a call takes effect, with idempotency keys and without.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use cofferdam_core::rng::{RandomSource, SeededRng};

use super::upstream::{Upstream, UpstreamOutage};
use super::world::{Scenario, run};
use super::{arrivals, breakers};
use crate::resilience::{PROFILES, RetryProfile};

/// The number of outages.
const OUTAGES: u64 = 3_000;
const END: Duration = Duration::from_secs(90);

/// The outcomes of calls over all outages.
#[derive(Default)]
struct DuplicateSums {
    calls: u64,
    requests: u64,
    effects: u64,
    twice: u64,
    kept: u64,
}

/// One to three outages of up to half a minute, of up to four kinds of fault each.
fn upstream(chance: &dyn RandomSource) -> Upstream {
    let pick = |count: usize| (chance.next_f64() * count as f64) as usize;
    let second = |most: f64| Duration::from_secs_f64(most * chance.next_f64());
    let retry_after = (pick(2) == 0).then(|| Duration::from_secs(pick(20) as u64));
    let kinds = [
        UpstreamOutage::Refused,
        UpstreamOutage::AnswerLost,
        UpstreamOutage::Hangs,
        UpstreamOutage::Status(503, retry_after),
        UpstreamOutage::Status(429, retry_after),
        UpstreamOutage::Status(408, None),
        UpstreamOutage::Status(404, None),
        UpstreamOutage::BackAt(Duration::from_secs(60)),
    ];
    let faults = (0..=pick(4)).map(|_| kinds[pick(kinds.len())]).collect();
    let outages = (0..=pick(3)).map(|_| second(60.0)).map(|start| start..start + second(30.0)).collect();
    Upstream::new(outages, faults, 1 + pick(50) as u32)
}

/// Returns the section of the page, after checking its claims.
pub(super) fn section() -> String {
    let breakers = breakers();
    let mut sums: BTreeMap<bool, DuplicateSums> = BTreeMap::new();
    for seed in 0..OUTAGES {
        let chance = SeededRng::new(seed);
        let upstream = upstream(&chance);
        let name = PROFILES[(seed % PROFILES.len() as u64) as usize];
        let profile = RetryProfile::named(name).unwrap();
        let (_, breaker) = &breakers[(seed / 6 % 3) as usize];
        let callers = 1 + (chance.next_f64() * 8.0) as usize;
        for idempotent in [true, false] {
            let ran = run(Scenario {
                seed,
                profile: &profile,
                breaker: breaker.as_ref(),
                idempotent,
                upstream: upstream.clone(),
                arrivals: arrivals(callers, Duration::from_secs(6), END, seed),
            });
            let sums = sums.entry(idempotent).or_default();
            for call in &ran.calls {
                assert!(call.requests <= profile.max_attempts(), "seed {seed}: {call:?}");
                assert!(call.ended <= call.begun + call.allowed, "seed {seed}: {call:?}");
                assert!(idempotent || call.requests <= 1, "seed {seed}: sent twice: {call:?}");
                assert!(idempotent || call.effects <= 1, "seed {seed}: took effect twice: {call:?}");
                sums.calls += 1;
                sums.requests += u64::from(call.requests);
                sums.effects += u64::from(call.effects);
                sums.twice += u64::from(call.effects > 1);
                sums.kept += u64::from(call.effects.min(1));
            }
        }
    }
    let repeated = sums.get(&true).map_or(0, |sums| sums.twice);
    assert!(repeated > 100, "the outages must be of a kind that shows what keys are for: {repeated}");
    let mut text = format!(
        "{OUTAGES} random outages of one to three parts: refused connections, responses lost after the request took\n\
         effect, requests that hang, 503, 429 and 408 with and without `Retry-After`, 404; one to eight callers, with\n\
         each profile, with or without a breaker. Each runs with an idempotent and with a non-idempotent operation.\n\n\
         | idempotent | calls | requests | would have taken effect | more than once | with the key |\n\
         |---|---|---|---|---|---|\n",
    );
    for (idempotent, sums) in &sums {
        let DuplicateSums { calls, requests, effects, twice, kept } = sums;
        let (idempotent, kept) = if *idempotent { ("yes", kept.to_string()) } else { ("no", "-".into()) };
        writeln!(text, "| {idempotent} | {calls} | {requests} | {effects} | {twice} | {kept} |").unwrap();
    }
    text
}
