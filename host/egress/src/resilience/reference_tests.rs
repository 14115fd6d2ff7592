//! The reference of retries, `docs/reference/retries.md`. It is committed so that it can be read; this
//! module, which exists only in tests, generates its tables from the code.

use std::fmt::Write as _;
use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use cofferdam_test_support::golden::assert_committed;

use super::{Jitter, MAX_ATTEMPTS, MAX_WAIT, PROFILES, RetryProfile, RetrySchedule};

#[test]
fn the_retry_reference_is_up_to_date() {
    let page = include_str!("reference.md")
        .replace("{causes}", &causes_table())
        .replace("{profiles}", &profiles_table())
        .replace("{max_attempts}", &MAX_ATTEMPTS.to_string())
        .replace("{max_wait}", &shown_time(MAX_WAIT));
    assert_committed("docs/reference/retries.md", &page);
}

/// Describes the observation of the host for an attempt that ends for this cause.
fn seen(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Network => "no answer: DNS, connecting, TLS, or a broken connection",
        FailureCause::Timeout => "status 408 or 425",
        FailureCause::RateLimited => "status 429",
        FailureCause::Unavailable => "status 5xx",
        FailureCause::Auth => "status 401",
        FailureCause::PaymentRequired => "status 402",
        FailureCause::NotFound => "status 404",
        FailureCause::Transient => "the connector reports a temporary failure",
        FailureCause::RefreshUnreachable => "the token issuer was unreachable",
        FailureCause::WallTime => "the attempt ran out of time",
        FailureCause::CircuitOpen => "nothing was sent: the circuit is open",
        FailureCause::Other => "everything else: denials, limits, bugs, other statuses, mere claims",
    }
}

fn causes_table() -> String {
    let mut table =
        String::from("| cause | observation of the host | retriable | retried by |\n|---|---|---|---|\n");
    for cause in FailureCause::ALL {
        let by: Vec<_> = PROFILES
            .into_iter()
            .filter(|name| RetryProfile::named(name).is_some_and(|profile| profile.schedule(cause).is_some()))
            .map(|name| format!("`{name}`"))
            .collect();
        let by = match (by.is_empty(), cause.is_retriable()) {
            (false, _) => by.join(", "),
            (true, true) => "a custom profile that names it".to_owned(),
            (true, false) => "-".to_owned(),
        };
        let may = if cause.is_retriable() { "yes" } else { "no" };
        writeln!(table, "| `{}` | {} | {may} | {by} |", cause.name(), seen(cause)).ok();
    }
    table
}

fn profiles_table() -> String {
    let mut table = String::from(
        "| profile | causes | attempts | waits | jitter | a call's time | one attempt's |\n|---|---|---|---|---|---|---|\n",
    );
    for profile in PROFILES.into_iter().filter_map(RetryProfile::named) {
        let time = |time: Option<_>, default: &str| time.map_or_else(|| default.to_owned(), shown_time);
        let (wall, attempt) = (profile.times().wall_time, profile.times().attempt_timeout);
        let times = format!("{} | {}", time(wall, "30 s"), time(attempt, "what is left"));
        if rows(&profile).is_empty() {
            writeln!(table, "| `{}` | none | 1 | | | {times} |", profile.name()).ok();
        }
        for row in rows(&profile) {
            let causes: Vec<_> = row.causes.iter().map(|cause| format!("`{}`", cause.name())).collect();
            let (causes, waits) = (causes.join(", "), shown_waits(&row.waits));
            writeln!(
                table,
                "| `{}` | {causes} | {} | {waits} | {} | {times} |",
                profile.name(),
                row.attempts,
                shown_jitter(row.jitter)
            )
            .ok();
        }
    }
    table
}

/// The schedule of a profile for the causes that it treats alike.
pub(super) struct RetryProfileRow {
    /// The causes.
    pub(super) causes: Vec<FailureCause>,
    /// The number of attempts with one candidate, including the first.
    pub(super) attempts: u32,
    /// The waits between them, without jitter.
    pub(super) waits: Vec<Duration>,
    /// The jitter of the waits.
    pub(super) jitter: Jitter,
}

/// Returns a row for each schedule; without rows nothing is retried.
pub(super) fn rows(profile: &RetryProfile) -> Vec<RetryProfileRow> {
    let mut rows: Vec<(RetrySchedule, Vec<FailureCause>)> = Vec::new();
    for cause in FailureCause::ALL {
        let Some(schedule) = profile.schedule(cause) else { continue };
        match rows.iter_mut().find(|(known, _)| known == schedule) {
            Some((_, causes)) => causes.push(cause),
            None => rows.push((*schedule, vec![cause])),
        }
    }
    let row = |(schedule, causes): (RetrySchedule, Vec<FailureCause>)| RetryProfileRow {
        causes,
        attempts: schedule.max_attempts(),
        waits: schedule.waits().collect(),
        jitter: schedule.jitter(),
    };
    rows.into_iter().map(row).collect()
}

/// Formats waits for people: the first ten, and the number of the others.
fn shown_waits(waits: &[Duration]) -> String {
    let mut shown: Vec<_> = waits.iter().take(10).map(|wait| shown_time(*wait)).collect();
    if waits.len() > 10 {
        shown.push(format!("and {} more", waits.len() - 10));
    }
    shown.join(", ")
}

/// Formats a time in the largest unit in which it is a whole number.
fn shown_time(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 1_000 != 0 => format!("{ms} ms"),
        ms if ms % 60_000 != 0 || ms == 0 => format!("{} s", ms / 1_000),
        ms if ms % 3_600_000 != 0 => format!("{} min", ms / 60_000),
        ms => format!("{} h", ms / 3_600_000),
    }
}

fn shown_jitter(jitter: Jitter) -> String {
    let percent = |ratio: f64| (ratio * 100.0).round();
    match jitter {
        Jitter::None => "none".to_owned(),
        Jitter::Plus(ratio) => format!("+0 to {} %", percent(ratio)),
        Jitter::Both(ratio) => format!("±{} %", percent(ratio)),
    }
}
