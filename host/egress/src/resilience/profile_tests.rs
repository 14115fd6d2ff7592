//! The built-in profiles against the tables of their specifications.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use cofferdam_core::failure::FailureCause;

use super::reference_tests::rows;
use super::{Jitter, PROFILES, RetryProfile};

/// A cause, the number of attempts, the waits in seconds, the jitter.
type Expected = (FailureCause, u32, &'static [u64], Jitter);

/// Returns the retry rules that the requirements specify for a profile.
fn expected(name: &str) -> Vec<Expected> {
    use FailureCause::*;
    const PLUS: Jitter = Jitter::Plus(0.2);
    const BOTH: Jitter = Jitter::Both(0.2);
    const EXACT: Jitter = Jitter::None;
    match name {
        // Three retries, 1, 2, 4 s plus up to a fifth; only network errors, 5xx and 429.
        "standard" => [Network, RateLimited, Unavailable].map(|it| (it, 4, &[1, 2, 4][..], PLUS)).into(),
        // Six attempts after a rate limit, three otherwise.
        "patient" => vec![
            (Network, 3, &[1, 2], BOTH),
            (Timeout, 3, &[1, 2], BOTH),
            (RateLimited, 6, &[5, 10, 20, 40, 80], BOTH),
            (Unavailable, 3, &[1, 2], BOTH),
        ],
        // Three attempts, 1 and 2 s.
        "failover" => {
            [Network, Timeout, RateLimited, Unavailable].map(|it| (it, 3, &[1, 2][..], EXACT)).into()
        }
        // 0, 2, 4 s; 408 is retried once; 503 falls back at once.
        "failover-windowed" => {
            vec![(Network, 3, &[2, 4], EXACT), (Timeout, 2, &[2], EXACT), (RateLimited, 3, &[2, 4], EXACT)]
        }
        // Three attempts, exactly 1 and 2 s, also for attempts that took too long.
        "deterministic" => [Network, Timeout, RateLimited, Unavailable, Transient, WallTime]
            .map(|it| (it, 3, &[1, 2][..], EXACT))
            .into(),
        // No retries.
        "none" => Vec::new(),
        other => unreachable!("{other} has no row"),
    }
}

#[test]
fn built_in_profiles_match_their_documents() {
    for name in PROFILES {
        let profile = RetryProfile::named(name).unwrap();
        assert_eq!(&**profile.name(), name);
        let expected = expected(name);
        for cause in FailureCause::ALL {
            let row = expected.iter().find(|row| row.0 == cause);
            let schedule = profile.schedule(cause);
            assert_eq!(schedule.is_some(), row.is_some(), "{name}: {}", cause.name());
            let Some((schedule, (_, attempts, waits, jitter))) = schedule.zip(row) else { continue };
            let place = format!("{name}: {}", cause.name());
            assert_eq!(schedule.max_attempts(), *attempts, "{place}");
            let seconds: Vec<_> = schedule.waits().map(|wait| wait.as_secs()).collect();
            assert_eq!(&seconds[..], *waits, "{place}");
            assert_eq!(schedule.jitter(), *jitter, "{place}");
        }
    }
}

#[test]
fn profiles_retry_only_retriable_causes() {
    assert_eq!(super::ResilienceSettings::default().profile.name().as_ref(), PROFILES[0]);
    for name in PROFILES {
        let profile = RetryProfile::named(name).unwrap();
        for cause in FailureCause::ALL.into_iter().filter(|cause| !cause.is_retriable()) {
            assert!(profile.schedule(cause).is_none(), "{name}: {}", cause.name());
        }
    }
    assert!(RetryProfile::named("custom").is_none());
}

#[test]
fn a_profiles_waits_fit_into_its_wall_time() {
    // A policy must not promise attempts that can never be made. 30 s is the default of every call.
    for name in PROFILES {
        let profile = RetryProfile::named(name).unwrap();
        let wall = profile.times().wall_time.unwrap_or(Duration::from_secs(30));
        for row in rows(&profile) {
            let longest: f64 = row.waits.iter().map(|wait| wait.as_secs_f64() * 1.2).sum();
            assert!(longest < wall.as_secs_f64(), "{name}: {:?}", row.causes);
        }
    }
}
