//! Outages, simulated: the real decisions, profiles and circuits in virtual time, and `docs/outages.md`, which says
//! what came of it. Nothing here waits, and the same seeds come to the same page.
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

use cofferdam_core::chance::{Chance, SeededChance};
use cofferdam_test_support::committed::assert_committed;

use super::BreakerPolicy;

/// The breakers that profiles are seen with.
fn breakers() -> [(&'static str, Option<BreakerPolicy>); 3] {
    [
        ("none", None),
        ("at once", Some(BreakerPolicy::at_once())),
        ("windowed", Some(BreakerPolicy::windowed())),
    ]
}

/// Calls of so many callers until `end`, each caller's next after `pause` on average, from nothing to twice that.
fn arrivals(callers: usize, pause: Duration, end: Duration, seed: u64) -> Vec<Duration> {
    let chance = SeededChance::new(seed ^ 0x5eed);
    let mut all = Vec::new();
    for _ in 0..callers {
        let mut at = pause.mul_f64(2.0 * chance.unit());
        while at < end {
            all.push(at);
            at += pause.mul_f64(2.0 * chance.unit()).max(Duration::from_millis(1));
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
    assert_committed("docs/outages.md", &page);
}
