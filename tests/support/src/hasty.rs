//! Time that does not wait between attempts: for hosts that many tests call at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_core::event::{Event, EventKind, Listener};

thread_local! {
    /// When the wait between two attempts that was last announced on this thread is over, at the latest.
    static ANNOUNCED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// How long a call takes at most from looking at the time to announcing its wait; if longer, it really waits.
const SLACK: Duration = Duration::from_secs(1);

/// The machine's clock, but that an announced wait between two attempts is over at once; and the listener that hears
/// of it. Unlike with [`Skipping`](crate::Skipping) nobody's time moves on: calls beside it keep theirs.
pub struct Hasty;

impl Clock for Hasty {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn timestamp(&self) -> jiff::Timestamp {
        SystemClock.timestamp()
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        // A call may be cancelled before it waits, and a host that listens may have another clock: what follows on this
        // thread is another call's, and its deadline is not the wait's end.
        let is_the_wait = |end: Instant| deadline <= end && end.duration_since(deadline) < SLACK;
        match ANNOUNCED.take().is_some_and(is_the_wait) {
            true => Box::pin(std::future::ready(())),
            false => SystemClock.sleep_until(deadline),
        }
    }
}

impl Listener for Hasty {
    /// The call announces a wait, and begins it on the same thread before it does anything else.
    fn event(&self, event: &Event<'_>) {
        if let EventKind::RetryScheduled { delay, .. } = event.kind {
            ANNOUNCED.set(Some(SystemClock.now() + delay));
        }
    }
}
