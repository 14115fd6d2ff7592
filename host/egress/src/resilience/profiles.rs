//! The built-in profiles as data: one for each document that specifies retries.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use cofferdam_core::limits::ProfileTimes;

use super::breaker::BreakerPolicy;
use super::profile::RetryProfile;
use super::schedule::{Backoff, Jitter, RetrySchedule};

/// The names of the built-in profiles; the first is the default.
pub const PROFILES: [&str; 6] =
    ["standard", "patient", "failover", "failover-windowed", "deterministic", "none"];

static BUILT_IN: LazyLock<[Arc<RetryProfile>; 6]> = LazyLock::new(|| {
    [standard(), patient(), failover(), failover_windowed(), deterministic(), none()].map(Arc::new)
});

pub(super) fn named(name: &str) -> Option<Arc<RetryProfile>> {
    BUILT_IN.iter().find(|profile| &**profile.name() == name).cloned()
}

/// Returns the default, `standard`.
pub(super) fn default() -> Arc<RetryProfile> {
    let [standard, ..] = &*BUILT_IN;
    Arc::clone(standard)
}

/// Three retries after 1, 2 and 4 seconds plus up to a fifth: 5xx, 429, and requests without a response.
fn standard() -> RetryProfile {
    let schedule = schedule(4, Backoff::Exponential, 1, 4, Jitter::Plus(0.2));
    RetryProfile::of(
        "standard",
        &[(&[FailureCause::Network, FailureCause::RateLimited, FailureCause::Unavailable], schedule)],
    )
}

/// Five retries after 429 with waits of 5 to 80 seconds, two if the service is unavailable; minutes in total.
fn patient() -> RetryProfile {
    let transient = schedule(3, Backoff::Exponential, 1, 4, Jitter::Both(0.2));
    let limited = schedule(6, Backoff::Exponential, 5, 160, Jitter::Both(0.2));
    RetryProfile {
        // Its waits do not fit into the default 30 seconds of a call. An attempt keeps those 30 seconds.
        times: ProfileTimes {
            wall_time: Some(Duration::from_secs(300)),
            attempt_timeout: Some(Duration::from_secs(30)),
        },
        ..RetryProfile::of(
            "patient",
            &[
                (&[FailureCause::Network, FailureCause::Timeout, FailureCause::Unavailable], transient),
                (&[FailureCause::RateLimited], limited),
            ],
        )
    }
}

/// Three attempts with each candidate of a chain, one step slower for each candidate, and a breaker that
/// opens at the first failure.
fn failover() -> RetryProfile {
    let schedule = schedule(3, Backoff::Exponential, 1, 64, Jitter::None);
    let causes =
        [FailureCause::Network, FailureCause::Timeout, FailureCause::RateLimited, FailureCause::Unavailable];
    RetryProfile {
        waits_grow_along_chain: true,
        breaker: Some(Arc::new(BreakerPolicy::at_once())),
        ..RetryProfile::of("failover", &[(&causes, schedule)])
    }
}

/// Falls back at once if a candidate is unavailable, and has a breaker that counts failures in a window.
fn failover_windowed() -> RetryProfile {
    let three = schedule(3, Backoff::Linear, 2, 4, Jitter::None);
    let twice = schedule(2, Backoff::Linear, 2, 4, Jitter::None);
    RetryProfile {
        breaker: Some(Arc::new(BreakerPolicy::windowed())),
        ..RetryProfile::of(
            "failover-windowed",
            &[
                (&[FailureCause::Network, FailureCause::RateLimited], three),
                (&[FailureCause::Timeout], twice),
            ],
        )
    }
}

/// Exact waits without jitter, so that replays are exact. Also retries attempts that took too long.
fn deterministic() -> RetryProfile {
    let schedule = schedule(3, Backoff::Exponential, 1, 24 * 60 * 60, Jitter::None);
    let causes = [
        FailureCause::Network,
        FailureCause::Timeout,
        FailureCause::RateLimited,
        FailureCause::Unavailable,
        FailureCause::Transient,
        FailureCause::WallTime,
    ];
    RetryProfile::of("deterministic", &[(&causes, schedule)])
}

/// Never retries.
fn none() -> RetryProfile {
    RetryProfile::of("none", &[])
}

fn schedule(max_attempts: u32, backoff: Backoff, base: u64, cap: u64, jitter: Jitter) -> RetrySchedule {
    let max_attempts = NonZeroU32::new(max_attempts).unwrap_or(NonZeroU32::MIN);
    RetrySchedule {
        max_attempts,
        backoff,
        base: Duration::from_secs(base),
        cap: Duration::from_secs(cap),
        jitter,
    }
}
