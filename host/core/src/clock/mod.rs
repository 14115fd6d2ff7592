//! Time as a dependency: what reads the time or waits takes a clock, so that tests own both.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A wait that ends at a given instant.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The monotonic time: for deadlines and durations.
    fn now(&self) -> Instant;

    /// The time of day: for dates in documents and records.
    fn timestamp(&self) -> jiff::Timestamp;

    /// A future that is ready at `deadline`.
    fn sleep_until(&self, deadline: Instant) -> Sleep;
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

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }
}
