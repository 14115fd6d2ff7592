//! That decisions allocate nothing: what is decided for a call costs it no memory, however often it fails.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use allocation_counter::measure;
use cofferdam_core::chance::SystemChance;
use cofferdam_core::clock::{Clock as _, SystemClock};
use cofferdam_core::failure::Cause;
use cofferdam_model::manifest::ConnectorName;

use super::{Moment, PROFILES, Profile, Settings, decide};

#[test]
fn a_plan_and_every_decision_allocate_nothing() {
    let settings = Settings::default();
    let name = ConnectorName::parse("github://acme/slack").unwrap();
    let now = SystemClock.now();
    // Whatever is made once, is made before: profiles, and this thread's chance.
    let _ = (Profile::named("standard"), fastrand::f64());
    for profile in PROFILES.map(|name| Profile::named(name).unwrap()) {
        for cause in Cause::ALL {
            for attempts in 1..8 {
                for (idempotent, retry_after, seconds) in
                    [(true, None, 600), (true, Some(7), 600), (true, None, 1), (false, None, 600)]
                {
                    let retry_after = retry_after.map(Duration::from_secs);
                    let (retriable, deadline) = (cause.is_retriable(), now + Duration::from_secs(seconds));
                    let candidate = attempts % 3;
                    let moment = Moment {
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
                        std::hint::black_box(decide(&plan.profile, &moment, &SystemChance));
                    });
                    assert_eq!(used.count_total, 0, "{} {moment:?}", profile.name());
                }
            }
        }
    }
    assert!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total > 0, "allocations are counted");
}
