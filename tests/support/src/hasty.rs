//! Time that does not wait between attempts: for hosts that many tests call at once.

use std::cell::Cell;
use std::time::Instant;

use cofferdam::clock::{Clock, Sleep, SystemClock};
use cofferdam::event::{Event, Listener, Step};

thread_local! {
    /// Whether the next sleep on this thread is the one between two attempts that was just announced.
    static ANNOUNCED: Cell<bool> = const { Cell::new(false) };
}

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

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        match ANNOUNCED.take() {
            true => Box::pin(std::future::ready(())),
            false => SystemClock.sleep_until(deadline),
        }
    }
}

impl Listener for Hasty {
    /// The call announces a wait, and begins it on the same thread before it does anything else.
    fn event(&self, event: &Event<'_>) {
        if let Step::RetryScheduled { .. } = event.step {
            ANNOUNCED.set(true);
        }
    }
}
