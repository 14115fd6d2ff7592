//! The reference of retries, `docs/reference/retries.md`. It is committed so that it can be read; this
//! module, which exists only in tests, generates its tables from the code.

use std::fmt::Write as _;

use cofferdam_core::failure::{FailureCause, RetryStopped};
use cofferdam_test_support::committed::assert_committed;

use super::profile::{shown_time, shown_waits};
use super::{MAX_ATTEMPTS, MAX_WAIT, PROFILES, RetryProfile};

#[test]
fn the_manual_of_retries_is_the_code() {
    let page = include_str!("reference.md")
        .replace("{causes}", &causes_table())
        .replace("{profiles}", &profiles_table())
        .replace("{stopped}", &stopped_table())
        .replace("{max_attempts}", &MAX_ATTEMPTS.to_string())
        .replace("{max_wait}", &shown_time(MAX_WAIT));
    assert_committed("docs/reference/retries.md", &page);
}

/// Describes the observation of the host for an attempt that ends for this cause.
fn seen(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Network => {
            "no answer: DNS, connecting, TLS, or a connection that broke off, on the way there or back"
        }
        FailureCause::Timeout => "status 408 or 425",
        FailureCause::RateLimited => "status 429",
        FailureCause::Unavailable => "status 5xx",
        FailureCause::Auth => "status 401",
        FailureCause::PaymentRequired => "status 402",
        FailureCause::NotFound => "status 404",
        FailureCause::Transient => "the connector says that its operation failed in a way that may pass",
        FailureCause::RefreshUnreachable => "who issues the credential's tokens could not be asked",
        FailureCause::WallTime => "the time of the attempt was over",
        FailureCause::CircuitOpen => "nothing was sent, since the circuit to the host is open",
        FailureCause::Other => {
            "everything else: denials, limits, bugs, other statuses, what a connector only claims"
        }
    }
}

fn causes_table() -> String {
    let mut table = String::from("| cause | what the host saw | may be repeated | by |\n|---|---|---|---|\n");
    for cause in FailureCause::ALL {
        let by: Vec<_> = PROFILES
            .into_iter()
            .filter(|name| RetryProfile::named(name).is_some_and(|profile| profile.schedule(cause).is_some()))
            .map(|name| format!("`{name}`"))
            .collect();
        let by = match (by.is_empty(), cause.is_retriable()) {
            (false, _) => by.join(", "),
            (true, true) => "an own profile that names it".to_owned(),
            (true, false) => "nobody".to_owned(),
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
        if profile.rows().is_empty() {
            writeln!(table, "| `{}` | none | 1 | | | {times} |", profile.name()).ok();
        }
        for row in profile.rows() {
            let causes: Vec<_> = row.causes.iter().map(|cause| format!("`{}`", cause.name())).collect();
            let (causes, waits) = (causes.join(", "), shown_waits(&row.waits));
            writeln!(
                table,
                "| `{}` | {causes} | {} | {waits} | {} | {times} |",
                profile.name(),
                row.attempts,
                row.jitter
            )
            .ok();
        }
    }
    table
}

fn stopped_table() -> String {
    let mut table = String::from("| `details.retry_stopped` | why |\n|---|---|\n");
    for stopped in RetryStopped::ALL {
        let why = match stopped {
            RetryStopped::MaxAttempts => "every attempt that the profile allows was made",
            RetryStopped::WallTime => "the next wait could not have ended before the call's deadline",
            RetryStopped::CircuitOpen => {
                "the circuit to the host opened, or this was the one call that tried it"
            }
            RetryStopped::NotAdmitted => {
                "what admitted the first attempt no longer did: the connector was removed, its key revoked"
            }
            RetryStopped::NotDeclaredIdempotent => {
                "it had sent a request that may take effect each time it arrives, and its manifest does not declare the \
                 operation idempotent; also why it was not handed to a fallback"
            }
            RetryStopped::Busy => "as many calls wait between attempts, or for a turn, as the host takes",
        };
        writeln!(table, "| `{}` | {why} |", stopped.name()).ok();
    }
    table
}
