//! Simulated outages: the real decisions, profiles and circuits in virtual time, and
//! `docs/contributing/testing.md` with the results. Nothing here waits, and the same seeds produce the same
//! results.
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
mod load;
mod measure;
mod thundering_herd;
mod upstream;
mod world;

use std::time::Duration;

use cofferdam_core::rng::{RandomSource, SeededRng};
use cofferdam_test_support::golden::assert_committed_part;

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
fn the_simulation_results_are_up_to_date() {
    let page = "docs/contributing/testing.md";
    assert_committed_part(page, "load", &load::section());
    assert_committed_part(page, "herd", &thundering_herd::section());
    assert_committed_part(page, "duplicates", &duplicates::section());
}

/// Formats the rows of a table, of a profile and its figures; profiles with the same figures share a row.
fn rows_by_figures(rows: &[(&str, String)]) -> String {
    let mut shared: Vec<(Vec<String>, &String)> = Vec::new();
    for (profile, figures) in rows {
        match shared.iter_mut().find(|row| row.1 == figures) {
            Some(row) => row.0.push(format!("`{profile}`")),
            None => shared.push((vec![format!("`{profile}`")], figures)),
        }
    }
    shared.iter().map(|(profiles, figures)| format!("| {} | {figures} |\n", profiles.join(", "))).collect()
}
