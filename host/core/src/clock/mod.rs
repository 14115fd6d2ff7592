//! Time as a dependency: code that reads the time or waits takes a clock, so that tests control both.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

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
