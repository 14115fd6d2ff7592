//! Generates the table of `docs/reference/circuit-breaker.md` from the policies. Exists only in tests, which
//! keep the page in sync with the code.

use std::fmt::Write as _;
use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use cofferdam_test_support::golden::assert_committed;

use super::policy::{BreakerPolicy, FailureSignal};

#[test]
fn the_breaker_page_has_the_policy_table() {
    let page = include_str!("reference.md").replace("{table}", table().trim_end());
    assert_committed("docs/reference/circuit-breaker.md", &page);
}

fn table() -> String {
    let policies = [BreakerPolicy::at_once(), BreakerPolicy::windowed()];
    let mut table = String::from("| seen | cause | `at-once` | `windowed` |\n|---|---|---|---|\n");
    for cause in FailureCause::ALL {
        let cells: Vec<_> = policies.iter().filter_map(|policy| cell(policy, cause)).collect();
        if cells.len() == policies.len() {
            writeln!(table, "| {} | `{}` | {} |", seen(cause), cause.name(), cells.join(" | ")).ok();
        }
    }
    let thresholds: Vec<_> = policies.iter().map(threshold).collect();
    writeln!(table, "| opens at | | {} |", thresholds.join(" | ")).ok();
    table
}

/// Formats the cooldown and the time of the probe.
fn cell(policy: &BreakerPolicy, cause: FailureCause) -> Option<String> {
    let cooldown = match policy.signal(Some(cause), None) {
        FailureSignal::Good => return None,
        FailureSignal::Permanent => return Some("at once, for good".to_owned()),
        FailureSignal::Trouble(cooldown) => cooldown,
    };
    let FailureSignal::Trouble(least) = policy.signal(Some(cause), Some(Duration::ZERO)) else { return None };
    let FailureSignal::Trouble(most) = policy.signal(Some(cause), Some(Duration::MAX)) else { return None };
    let asked = match cause {
        FailureCause::Network => String::new(),
        _ => format!("; as `Retry-After` says, {} to {} s", least.as_secs(), most.as_secs()),
    };
    let probe = policy.probe_after(cooldown).as_secs();
    Some(format!("{} s, tried after {probe} s{asked}", cooldown.as_secs()))
}

fn threshold(policy: &BreakerPolicy) -> String {
    match policy.window() {
        None => format!("{} in a row", policy.threshold()),
        Some(window) => format!("{} within {} s", policy.threshold(), window.as_secs()),
    }
}

fn seen(cause: FailureCause) -> String {
    let statuses: Vec<_> = (400..600).filter(|status| FailureCause::from_status(*status) == cause).collect();
    match statuses.as_slice() {
        [] => "no answer, or one that broke off".to_owned(),
        [one] => one.to_string(),
        [first, .., last] if usize::from(last - first) + 1 == statuses.len() => format!("{first} to {last}"),
        several => several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
