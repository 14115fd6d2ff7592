//! The built-in profiles, as data: one for each document that says how to retry.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cofferdam_core::failure::Cause;
use cofferdam_core::limits::ProfileTimes;

use super::breaker::BreakerPolicy;
use super::profile::Profile;
use super::schedule::{Backoff, Jitter, Schedule};

/// The names of the built-in profiles; the first is the default.
pub const PROFILES: [&str; 6] =
    ["standard", "patient", "failover", "failover-windowed", "deterministic", "none"];

static BUILT_IN: LazyLock<[Arc<Profile>; 6]> = LazyLock::new(|| {
    [standard(), patient(), failover(), failover_windowed(), deterministic(), none()].map(Arc::new)
});

pub(super) fn named(name: &str) -> Option<Arc<Profile>> {
    BUILT_IN.iter().find(|profile| &**profile.name() == name).cloned()
}

/// The default: `standard`.
pub(super) fn default() -> Arc<Profile> {
    let [standard, ..] = &*BUILT_IN;
    Arc::clone(standard)
}

/// Three retries after 1, 2 and 4 seconds and up to a fifth more: 5xx, 429, and requests without an answer.
fn standard() -> Profile {
    let schedule = schedule(4, Backoff::Exponential, 1, 4, Jitter::Plus(0.2));
    Profile::of("standard", &[(&[Cause::Network, Cause::RateLimited, Cause::Unavailable], schedule)])
}

/// Five retries of what is rate limited after 5 to 80 seconds, two of what is unavailable; minutes in all.
fn patient() -> Profile {
    let transient = schedule(3, Backoff::Exponential, 1, 4, Jitter::Both(0.2));
    let limited = schedule(6, Backoff::Exponential, 5, 160, Jitter::Both(0.2));
    Profile {
        // Its waits do not fit into the 30 seconds that a call has by default; an attempt keeps those.
        times: ProfileTimes {
            wall_time: Some(Duration::from_secs(300)),
            attempt_timeout: Some(Duration::from_secs(30)),
        },
        ..Profile::of(
            "patient",
            &[
                (&[Cause::Network, Cause::Timeout, Cause::Unavailable], transient),
                (&[Cause::RateLimited], limited),
            ],
        )
    }
}

/// Three attempts at each candidate of a chain, each candidate a step slower, and a breaker that opens at once.
fn failover() -> Profile {
    let schedule = schedule(3, Backoff::Exponential, 1, 64, Jitter::None);
    let causes = [Cause::Network, Cause::Timeout, Cause::RateLimited, Cause::Unavailable];
    Profile {
        waits_grow_along_chain: true,
        breaker: Some(Arc::new(BreakerPolicy::at_once())),
        ..Profile::of("failover", &[(&causes, schedule)])
    }
}

/// The next candidate at once where one is unavailable, and a breaker that counts failures in a window.
fn failover_windowed() -> Profile {
    let three = schedule(3, Backoff::Linear, 2, 4, Jitter::None);
    let twice = schedule(2, Backoff::Linear, 2, 4, Jitter::None);
    Profile {
        breaker: Some(Arc::new(BreakerPolicy::windowed())),
        ..Profile::of(
            "failover-windowed",
            &[(&[Cause::Network, Cause::RateLimited], three), (&[Cause::Timeout], twice)],
        )
    }
}

/// Exact waits without jitter, so that replays are exact; repeats what took too long, too.
fn deterministic() -> Profile {
    let schedule = schedule(3, Backoff::Exponential, 1, 24 * 60 * 60, Jitter::None);
    let causes = [
        Cause::Network,
        Cause::Timeout,
        Cause::RateLimited,
        Cause::Unavailable,
        Cause::Transient,
        Cause::WallTime,
    ];
    Profile::of("deterministic", &[(&causes, schedule)])
}

/// Nothing is ever repeated.
fn none() -> Profile {
    Profile::of("none", &[])
}

fn schedule(max_attempts: u32, backoff: Backoff, base: u64, cap: u64, jitter: Jitter) -> Schedule {
    let max_attempts = NonZeroU32::new(max_attempts).unwrap_or(NonZeroU32::MIN);
    Schedule { max_attempts, backoff, base: Duration::from_secs(base), cap: Duration::from_secs(cap), jitter }
}
