//! A retry profile as a page: for each cause the attempts and the waits between them.

use cofferdam_core::clock::millis;
use cofferdam_core::failure::FailureCause;
use cofferdam_egress::resilience::{BreakerPolicy, RetryProfile, RetrySchedule};
use serde::Serialize;

use crate::layout::Page;

/// A profile, for people and programs.
#[derive(Debug, Serialize)]
pub(super) struct ProfileView {
    profile: String,
    schedules: Vec<ScheduleView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_time_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_timeout_ms: Option<u64>,
    breaker: bool,
    /// The breaker in words, for people.
    #[serde(skip)]
    opens: Option<String>,
}

/// The retries for one cause.
#[derive(Debug, Serialize)]
struct ScheduleView {
    cause: &'static str,
    max_attempts: u32,
    /// The shortest and the longest that each wait may be.
    waits_ms: Vec<[u64; 2]>,
}

impl ProfileView {
    pub(super) fn new(profile: &RetryProfile) -> Self {
        let schedules = FailureCause::ALL.into_iter().filter_map(|cause| {
            let schedule = profile.schedule(cause)?;
            let waits = (1..schedule.max_attempts()).map(|retry| between(schedule, retry)).collect();
            Some(ScheduleView { cause: cause.name(), max_attempts: schedule.max_attempts(), waits_ms: waits })
        });
        Self {
            profile: profile.name().to_string(),
            schedules: schedules.collect(),
            wall_time_ms: profile.times().wall_time.map(millis),
            attempt_timeout_ms: profile.times().attempt_timeout.map(millis),
            breaker: profile.breaker().is_some(),
            opens: profile.breaker().map(|policy| opens(policy)),
        }
    }

    /// Its name, and what it repeats.
    pub(super) fn row(&self) -> [String; 2] {
        let causes: Vec<_> = self.schedules.iter().map(|schedule| schedule.cause).collect();
        [self.profile.clone(), if causes.is_empty() { "nothing".to_owned() } else { causes.join(", ") }]
    }

    pub(super) fn describe(&self, page: &mut Page) {
        page.heading(&format!("{} - a retry profile", self.profile));
        if self.schedules.is_empty() {
            page.line("Nothing is repeated.");
        } else {
            let rows = self.schedules.iter().map(|schedule| {
                let waits: Vec<_> = schedule.waits_ms.iter().map(|wait| shown(*wait)).collect();
                [schedule.cause.to_owned(), schedule.max_attempts.to_string(), waits.join(", ")]
            });
            page.table(["CAUSE", "ATTEMPTS", "WAITS"], rows.collect());
            page.line(
                "Idempotent operations alone, and never past the call's wall time. A Retry-After that the service \
                 sends stands in the place of a wait.",
            );
        }
        if let Some(ms) = self.wall_time_ms {
            page.field("wall time", &shown([ms, ms]));
        }
        if let Some(ms) = self.attempt_timeout_ms {
            page.field("an attempt", &shown([ms, ms]));
        }
        if let Some(opens) = &self.opens {
            page.line(opens);
        }
    }
}

/// When the circuits of this breaker open, and for how long.
fn opens(policy: &BreakerPolicy) -> String {
    let after = match (policy.threshold(), policy.window()) {
        (1, _) => "the first failure".to_owned(),
        (n, None) => format!("{n} failures in a row"),
        (n, Some(window)) => format!("{n} failures within {}", shown([millis(window); 2])),
    };
    let closes = FailureCause::ALL.into_iter().filter_map(|cause| {
        let cooldown = policy.cooldown(cause, None)?;
        Some(format!("{} after {}", shown([millis(cooldown); 2]), cause.name()))
    });
    let for_good =
        FailureCause::ALL.into_iter().filter(|cause| policy.is_permanent(*cause)).map(FailureCause::name);
    let (closes, for_good) = (closes.collect::<Vec<_>>().join(", "), for_good.collect::<Vec<_>>().join(", "));
    let mut text =
        format!("It brings a circuit breaker. The circuit to a host opens at {after}, for {closes}");
    if !for_good.is_empty() {
        text.push_str(&format!("; and until it is mended after {for_good}"));
    }
    text + "."
}

/// The shortest and the longest wait before this retry.
fn between(schedule: &RetrySchedule, retry: u32) -> [u64; 2] {
    [schedule.varied_wait(retry, 0.0), schedule.varied_wait(retry, 1.0)].map(millis)
}

/// `1 s`, or `1 to 1.2 s` where it varies.
fn shown([least, most]: [u64; 2]) -> String {
    let seconds = |ms: u64| {
        let text = format!("{}.{:03}", ms / 1000, ms % 1000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if least == most {
        format!("{} s", seconds(least))
    } else {
        format!("{} to {} s", seconds(least), seconds(most))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn a_breaker_is_described_in_words() {
        let opens = |name: &str| ProfileView::new(&RetryProfile::named(name).unwrap()).opens;
        assert_eq!(opens("standard"), None);
        let failover = opens("failover").unwrap();
        assert!(
            failover.contains("opens at the first failure, for ")
                && failover.contains("30 s after network_error")
        );
        assert!(failover.contains("until it is mended after auth, payment_required."), "{failover}");
        assert!(opens("failover-windowed").unwrap().contains(" failures within "));
    }

    #[test]
    fn the_default_profile_waits_as_it_is_documented() {
        let view = ProfileView::new(&RetryProfile::named("standard").unwrap());
        let shown: Vec<_> = view.schedules[0].waits_ms.iter().map(|wait| shown(*wait)).collect();
        assert_eq!(shown, ["1 to 1.2 s", "2 to 2.4 s", "4 to 4.8 s"]);
        assert_eq!(view.schedules[0].max_attempts, 4);
        assert_eq!(view.row()[1], "network_error, rate_limited, unavailable");
        assert_eq!(ProfileView::new(&RetryProfile::named("none").unwrap()).row()[1], "nothing");
    }
}
