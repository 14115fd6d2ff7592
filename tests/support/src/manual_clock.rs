//! A clock that skips the waits between attempts, and records the steps: tests of retries take no longer than
//! calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_core::event::{Event, EventKind, Listener};
use serde_json::Value;
use tokio::sync::watch;

/// A clock that runs like the machine's, and jumps ahead by every wait that a call or its requests announce;
/// and the listener that observes it. Give a host both.
pub struct ManualClock {
    skipped: watch::Sender<Duration>,
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
    /// A clock that has skipped nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { skipped: watch::Sender::new(Duration::ZERO), steps: Mutex::default() })
    }

    /// Jumps ahead.
    pub fn skip(&self, time: Duration) {
        self.skipped.send_modify(|skipped| *skipped += time);
    }

    /// The steps of all calls so far.
    #[must_use]
    pub fn steps(&self) -> Vec<RecordedStep> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The waits between attempts so far, as they were announced, in milliseconds.
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

    fn timestamp(&self) -> jiff::Timestamp {
        SystemClock.timestamp() + *self.skipped.borrow()
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
