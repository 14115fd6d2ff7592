//! Time that does not wait between attempts: for hosts that many tests call at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_core::event::{Event, EventKind, Listener};

thread_local! {
    /// When the wait between two attempts that was last announced on this thread is over, at the latest.
    static ANNOUNCED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The maximum time from a call's reading of the clock to the announcement of its wait; if longer, it really
/// waits.
const SLACK: Duration = Duration::from_secs(1);

/// The machine's clock, except that an announced wait between two attempts ends at once; and the listener that
/// observes it. Unlike with [`ManualClock`](crate::ManualClock) the time does not move on: concurrent calls
/// keep theirs.
pub struct FastClock;

impl Clock for FastClock {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn timestamp(&self) -> jiff::Timestamp {
        SystemClock.timestamp()
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        // A call may be cancelled before it waits, and a listening host may have another clock: the next wait
        // on this thread is another call's, and its deadline is not the wait's end.
        let is_the_wait = |end: Instant| deadline <= end && end.duration_since(deadline) < SLACK;
        match ANNOUNCED.take().is_some_and(is_the_wait) {
            true => Box::pin(std::future::ready(())),
            false => SystemClock.sleep_until(deadline),
        }
    }
}

impl Listener for FastClock {
    /// The call announces a wait, and begins it on the same thread before it does anything else.
    fn event(&self, event: &Event<'_>) {
        if let EventKind::RetryScheduled { delay, .. } = event.kind {
            ANNOUNCED.set(Some(SystemClock.now() + delay));
        }
    }
}
