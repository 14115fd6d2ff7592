//! Properties of the retry decision for any profile, failure, time and random value.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::time::{Duration, Instant};

use cofferdam_core::failure::{FailureCause, RetryStopped};
use cofferdam_core::rng::RandomSource;
use proptest::prelude::*;

use super::{Backoff, Jitter, PROFILES, RetryContext, RetryDecision, RetryProfile, RetrySchedule, decide};

/// A random source with one constant value.
struct Lot(f64);

impl RandomSource for Lot {
    fn next_f64(&self) -> f64 {
        self.0
    }
}

/// Generates a profile: a built-in or an arbitrary valid one.
fn profiles() -> impl Strategy<Value = RetryProfile> {
    let jitter = prop_oneof![
        Just(Jitter::None),
        (0.0..=1.0).prop_map(Jitter::Plus),
        (0.0..=1.0).prop_map(Jitter::Both),
    ];
    let backoff = prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)];
    let own = (1..=100_u32, backoff, 1..=86_400_000_u64, 0..=86_400_000_u64, jitter, any::<u16>()).prop_map(
        |(attempts, backoff, base, more, jitter, causes)| {
            let base = Duration::from_millis(base);
            let cap = (base + Duration::from_millis(more)).min(Duration::from_secs(86_400));
            let schedule = RetrySchedule::new(attempts, backoff, base, cap, jitter).unwrap();
            let named = |cause: &FailureCause| cause.is_retriable() && causes >> (*cause as u16) & 1 == 1;
            let causes: Vec<_> = FailureCause::ALL.into_iter().filter(named).collect();
            RetryProfile::new("own", schedule, &causes).unwrap()
        },
    );
    let built_in = (0..PROFILES.len()).prop_map(|n| (*RetryProfile::named(PROFILES[n]).unwrap()).clone());
    prop_oneof![own, built_in]
}

/// Generates a failed attempt with times far from anything that could overflow.
fn moments() -> impl Strategy<Value = RetryContext> {
    let retry_after = proptest::option::of((0..=700_000_u64).prop_map(Duration::from_secs));
    let parts = (0..FailureCause::ALL.len(), any::<bool>(), any::<bool>(), any::<bool>(), retry_after);
    (parts, 1..=120_u32, 0..=3_u32, 0..=600_000_u64).prop_map(|(parts, attempts, candidate, left)| {
        let (cause, retriable, idempotent, sent_unkeyed, retry_after) = parts;
        let now = Instant::now();
        RetryContext {
            cause: FailureCause::ALL[cause],
            retriable: retriable && !sent_unkeyed,
            idempotent,
            sent_unkeyed,
            retry_after,
            attempts,
            candidate,
            now,
            deadline: now + Duration::from_millis(left),
        }
    })
}

proptest! {
    #[test]
    fn every_retry_is_safe_and_ends_in_time(
        profile in profiles(),
        moment in moments(),
        unit in 0.0..1.0_f64,
    ) {
        let RetryDecision::Retry { delay, of, .. } = decide(&profile, &moment, &Lot(unit)) else { return Ok(()) };
        let schedule = profile.schedule(moment.cause).unwrap();
        prop_assert!(moment.idempotent, "never what is not idempotent");
        prop_assert!(!moment.sent_unkeyed, "never what may have taken effect and declares nothing");
        prop_assert!(moment.retriable || moment.cause == FailureCause::WallTime, "never what says that it is final");
        prop_assert!(moment.cause.is_retriable());
        prop_assert!(moment.attempts < schedule.max_attempts(), "never more attempts than allowed");
        prop_assert_eq!(of + 1, schedule.max_attempts());
        prop_assert!(moment.now + delay < moment.deadline, "never a wait that ends after the deadline");
        match moment.retry_after {
            Some(asked) => {
                let ratio = match schedule.jitter() {
                    Jitter::None => 0.0,
                    Jitter::Plus(ratio) | Jitter::Both(ratio) => ratio,
                };
                let most = Duration::from_secs(30).min(asked.mul_f64(ratio));
                prop_assert!((asked..=asked + most).contains(&delay), "never earlier than asked, and not much later");
            }
            None => {
                let later = if profile.waits_grow_along_chain { moment.candidate } else { 0 };
                let wait = schedule.wait(moment.attempts + later).as_secs_f64();
                let (least, most) = match schedule.jitter() {
                    Jitter::None => (wait, wait),
                    Jitter::Plus(ratio) => (wait, wait * (1.0 + ratio)),
                    Jitter::Both(ratio) => (wait * (1.0 - ratio), wait * (1.0 + ratio)),
                };
                let delay = delay.as_secs_f64();
                prop_assert!((least - 1e-6..=most + 1e-6).contains(&delay), "{delay} in {least}..={most}");
            }
        }
    }

    #[test]
    fn a_retry_that_stops_has_a_reason(profile in profiles(), moment in moments(), unit in 0.0..1.0_f64) {
        let RetryDecision::Stop { stopped, retry_after } = decide(&profile, &moment, &Lot(unit)) else { return Ok(()) };
        let repeatable = moment.idempotent
            && (moment.retriable || moment.sent_unkeyed || moment.cause == FailureCause::WallTime)
            && profile.schedule(moment.cause).is_some();
        prop_assert_eq!(stopped.is_some(), repeatable);
        let unkeyed = stopped == Some(RetryStopped::NotDeclaredIdempotent);
        prop_assert_eq!(unkeyed, repeatable && moment.sent_unkeyed);
        prop_assert_eq!(retry_after.is_some(), repeatable && !unkeyed);
        if let (Some(RetryStopped::WallTime), Some(wait)) = (stopped, retry_after) {
            prop_assert!(moment.now + wait >= moment.deadline, "it would have had the time");
        }
    }

    /// Simulates a whole call with arbitrary failures and random values.
    #[test]
    fn attempts_and_time_of_a_call_are_bounded(
        profile in profiles(),
        ends in proptest::collection::vec((moments(), 0..=20_000_u64, 0.0..1.0_f64), 130),
        idempotent in any::<bool>(),
        sent_unkeyed in any::<bool>(),
    ) {
        let began = Instant::now();
        let deadline = began + Duration::from_secs(300);
        let (mut now, mut attempts) = (began, 0);
        for (moment, took, unit) in ends {
            attempts += 1;
            // An attempt ends at the call's deadline at the latest.
            now = (now + Duration::from_millis(took)).min(deadline);
            let moment = RetryContext { idempotent, sent_unkeyed, attempts, candidate: 0, now, deadline, ..moment };
            match decide(&profile, &moment, &Lot(unit)) {
                RetryDecision::Stop { .. } => break,
                RetryDecision::Retry { delay, .. } => now += delay,
            }
        }
        prop_assert!(attempts <= profile.max_attempts());
        prop_assert!((idempotent && !sent_unkeyed) || attempts == 1);
        prop_assert!(now <= deadline);
    }
}

#[test]
fn the_last_cause_selects_the_schedule() {
    let patient = RetryProfile::named("patient").unwrap();
    let now = Instant::now();
    let moment = |cause, attempts| RetryContext {
        cause,
        retriable: true,
        idempotent: true,
        sent_unkeyed: false,
        retry_after: None,
        attempts,
        candidate: 0,
        now,
        deadline: now + Duration::from_secs(299),
    };
    let wait = |cause, attempts| match decide(&patient, &moment(cause, attempts), &Lot(0.5)) {
        RetryDecision::Retry { delay, .. } => Some(delay.as_secs()),
        RetryDecision::Stop { .. } => None,
    };
    assert_eq!(wait(FailureCause::RateLimited, 3), Some(20), "the third of the waits for rate limits");
    assert_eq!(
        wait(FailureCause::Unavailable, 3),
        None,
        "three attempts were made, whatever they ended with"
    );
}

#[test]
fn later_candidates_can_wait_longer() {
    let now = Instant::now();
    let wait = |profile: &str, candidate, attempts| {
        let moment = RetryContext {
            cause: FailureCause::Unavailable,
            retriable: true,
            idempotent: true,
            sent_unkeyed: false,
            retry_after: None,
            attempts,
            candidate,
            now,
            deadline: now + Duration::from_secs(60),
        };
        match decide(&RetryProfile::named(profile).unwrap(), &moment, &Lot(0.0)) {
            RetryDecision::Retry { delay, .. } => delay.as_secs(),
            RetryDecision::Stop { .. } => 0,
        }
    };
    // The wait is 1000 x 2^(retry-1+index) ms.
    for (candidate, waits) in [(0, [1, 2]), (1, [2, 4]), (2, [4, 8])] {
        assert_eq!([wait("failover", candidate, 1), wait("failover", candidate, 2)], waits, "{candidate}");
    }
    assert_eq!(wait("standard", 2, 1), 1);
}

#[test]
fn retry_after_gets_jitter_within_the_deadline() {
    let standard = RetryProfile::named("standard").unwrap();
    let now = Instant::now();
    let delay = |asked: u64, left: u64, unit: f64| {
        let moment = RetryContext {
            cause: FailureCause::RateLimited,
            retriable: true,
            idempotent: true,
            sent_unkeyed: false,
            retry_after: Some(Duration::from_secs(asked)),
            attempts: 1,
            candidate: 0,
            now,
            deadline: now + Duration::from_secs(left),
        };
        match decide(&standard, &moment, &Lot(unit)) {
            RetryDecision::Retry { delay, .. } => Ok(delay.as_millis()),
            RetryDecision::Stop { retry_after, .. } => Err(retry_after.unwrap().as_millis()),
        }
    };
    let spread = [0.0, 0.5, 0.999].map(|unit| delay(10, 300, unit));
    assert_eq!(spread, [Ok(10_000), Ok(11_000), Ok(11_998)], "three callers that were told the same");
    assert_eq!(delay(200, 300, 0.999), Ok(229_970), "by half a minute at most");
    assert_eq!(delay(10, 11, 0.999), Ok(10_499), "there is time left for the attempt");
    assert_eq!(delay(11, 11, 0.0), Err(11_000), "what is too long is told as it was asked for");
    assert_eq!(delay(0, 30, 0.999), Ok(0));
}
