//! Simulated outages: the real decisions, profiles and circuits in virtual time, and
//! `docs/contributing/retry-simulation.md` with the results. Nothing here waits, and the same seeds produce
//! the same page.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "tests"
)]

mod circuit;
mod duplicates;
mod herd;
mod load;
mod measure;
mod upstream;
mod world;

use std::time::Duration;

use cofferdam_core::rng::{RandomSource, SeededRng};
use cofferdam_test_support::committed::assert_committed;

use super::BreakerPolicy;

/// Returns the breakers that are combined with the profiles.
fn breakers() -> [(&'static str, Option<BreakerPolicy>); 3] {
    [
        ("none", None),
        ("at once", Some(BreakerPolicy::at_once())),
        ("windowed", Some(BreakerPolicy::windowed())),
    ]
}

/// Returns the calls of `callers` until `end`. The pause before a caller's next call is `pause` on average,
/// from zero to twice that.
fn arrivals(callers: usize, pause: Duration, end: Duration, seed: u64) -> Vec<Duration> {
    let chance = SeededRng::new(seed ^ 0x5eed);
    let mut all = Vec::new();
    for _ in 0..callers {
        let mut at = pause.mul_f64(2.0 * chance.next_f64());
        while at < end {
            all.push(at);
            at += pause.mul_f64(2.0 * chance.next_f64()).max(Duration::from_millis(1));
        }
    }
    all.sort_unstable();
    all
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".into(), |time| format!("{:.1} s", time.as_secs_f64()))
}

#[test]
fn what_outages_come_to_is_written_down() {
    let page = include_str!("frame.md")
        .replace("{load}", &load::section())
        .replace("{herd}", &herd::section())
        .replace("{outages}", &duplicates::OUTAGES.to_string())
        .replace("{duplicates}", &duplicates::section());
    assert_committed("docs/contributing/retry-simulation.md", &page);
}
