//! Time as a dependency: code that reads the time or waits takes a clock, so that tests control both.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// A wait that ends at a given instant.
pub type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the monotonic time, for deadlines and durations.
    fn now(&self) -> Instant;

    /// Returns the time of day, for dates in documents and audit entries.
    fn timestamp(&self) -> jiff::Timestamp;

    /// Returns a future that is ready at `deadline`.
    fn sleep_until(&self, deadline: Instant) -> SleepFuture;
}

/// Returns a duration in whole milliseconds.
#[must_use]
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole microseconds.
#[must_use]
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The machine's own clock, with tokio's timers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn timestamp(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }
}
