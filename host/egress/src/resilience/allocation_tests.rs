//! Asserts that retry decisions do not allocate, however often a call fails.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use allocation_counter::measure;
use cofferdam_core::clock::{Clock as _, SystemClock};
use cofferdam_core::failure::FailureCause;
use cofferdam_core::rng::SystemRng;
use cofferdam_model::manifest::ConnectorName;

use super::{PROFILES, ResilienceSettings, RetryContext, RetryProfile, decide};

#[test]
fn a_plan_and_every_decision_allocate_nothing() {
    let settings = ResilienceSettings::default();
    let name = ConnectorName::parse("github://acme/slack").unwrap();
    let now = SystemClock.now();
    // Values that are created once are created before: profiles, and this thread's random source.
    let _ = (RetryProfile::named("standard"), fastrand::f64());
    for profile in PROFILES.map(|name| RetryProfile::named(name).unwrap()) {
        for cause in FailureCause::ALL {
            for attempts in 1..8 {
                for (idempotent, retry_after, seconds) in
                    [(true, None, 600), (true, Some(7), 600), (true, None, 1), (false, None, 600)]
                {
                    let retry_after = retry_after.map(Duration::from_secs);
                    let (retriable, deadline) = (cause.is_retriable(), now + Duration::from_secs(seconds));
                    let candidate = attempts % 3;
                    let moment = RetryContext {
                        cause,
                        retriable,
                        idempotent,
                        sent_unkeyed: false,
                        retry_after,
                        attempts,
                        candidate,
                        now,
                        deadline,
                    };
                    let used = measure(|| {
                        let plan = settings.plan(&name, Some(&profile));
                        std::hint::black_box(decide(&plan.profile, &moment, &SystemRng));
                    });
                    assert_eq!(used.count_total, 0, "{} {moment:?}", profile.name());
                }
            }
        }
    }
    assert!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total > 0, "allocations are counted");
}
