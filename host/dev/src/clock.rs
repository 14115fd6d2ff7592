//! A clock that skips the waits between attempts, and records the steps: tests of retries take no longer than
//! calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_core::event::{Event, EventKind, Listener};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

/// A clock that runs like the machine's, and jumps ahead by every wait that a call or its requests announce;
/// and the listener that observes it. Give a host both.
pub struct ManualClock {
    skipped: watch::Sender<Duration>,
    /// The time of day at which it stands, but for what it skips. Without one, it has the machine's time of day.
    starts_at: Option<Timestamp>,
    steps: Mutex<Vec<RecordedStep>>,
}

/// One step of a call, as reported.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStep {
    /// The call.
    pub audit_id: String,
    /// Its number in the call, from 1.
    pub seq: u32,
    /// Its name.
    pub name: &'static str,
    /// Its facts.
    pub facts: Value,
}

impl ManualClock {
    /// Creates a clock that has skipped nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_start(None)
    }

    /// Creates a clock whose time of day is `start` and changes only by what is skipped, so that what depends on it is
    /// the same each time.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Arc<Self> {
        Self::with_start(Some(start))
    }

    fn with_start(starts_at: Option<Timestamp>) -> Arc<Self> {
        Arc::new(Self { skipped: watch::Sender::new(Duration::ZERO), starts_at, steps: Mutex::default() })
    }

    /// Jumps ahead.
    pub fn skip(&self, time: Duration) {
        self.skipped.send_modify(|skipped| *skipped += time);
    }

    /// Returns the steps of all calls so far.
    #[must_use]
    pub fn steps(&self) -> Vec<RecordedStep> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the waits between attempts so far, as they were announced, in milliseconds.
    #[must_use]
    pub fn waits_ms(&self) -> Vec<u64> {
        let steps = self.steps();
        let waits = steps.iter().filter(|step| step.name == "retry_scheduled");
        waits.filter_map(|step| step.facts.get("delay_ms")?.as_u64()).collect()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        SystemClock.now() + *self.skipped.borrow()
    }

    fn timestamp(&self) -> Timestamp {
        let from = self.starts_at.unwrap_or_else(|| SystemClock.timestamp());
        from.checked_add(*self.skipped.borrow()).unwrap_or(Timestamp::MAX)
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        let mut skipped = self.skipped.subscribe();
        Box::pin(async move {
            loop {
                let so_far = *skipped.borrow_and_update();
                let left = deadline.checked_sub(so_far).unwrap_or_else(|| SystemClock.now());
                tokio::select! {
                    () = SystemClock.sleep_until(left) => return,
                    changed = skipped.changed() => if changed.is_err() { return },
                }
            }
        })
    }
}

impl Listener for ManualClock {
    fn event(&self, event: &Event<'_>) {
        if let EventKind::RetryScheduled { delay, .. } | EventKind::RateDelayed { delay, .. } = event.kind {
            self.skip(delay);
        }
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(RecordedStep {
            audit_id: event.audit_id.as_str().to_owned(),
            seq: event.seq,
            name: event.kind.name(),
            facts: event.kind.payload().into(),
        });
    }
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock").field("skipped", &*self.skipped.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_started_clock_stands_but_for_what_it_skips() {
        let start: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let clock = ManualClock::starting_at(start);
        assert_eq!(clock.timestamp(), start);
        clock.skip(Duration::from_secs(55));
        assert_eq!(clock.timestamp().to_string(), "2026-01-02T03:05:00Z");
    }
}
