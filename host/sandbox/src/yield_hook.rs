//! Makes a guest that is busy with host calls yield, so that the clock and a gate's verdict reach it.
//!
//! Fuel makes computing guests yield, but a host call burns none: a loop of them, each a fraction of a
//! millisecond, would hold its thread beyond any deadline. The hook yields after a host call once the guest
//! has held its thread for a millisecond. Time in which the guest waited does not count: a yield costs a pass
//! through the whole queue of the executor, and calls that wait for the network would pay it at each answer.
//!
//! On the way into the host and out of it, the hook also checks the memory that the host call may use, and
//! has used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::limits;
use wasmtime::{CallHook, CallHookHandler, StoreContextMut};

use super::attempt_trace::HostCallRecorder;
use super::store_data::StoreData;

/// The longest time that a guest holds its thread with host calls.
const YIELD_INTERVAL: Duration = Duration::from_millis(1);

/// The time at which the guest got its thread: the start of the current poll.
#[derive(Debug, Clone)]
pub(super) struct PollStart(Arc<Mutex<Instant>>);

impl PollStart {
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    pub(super) fn set(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hook of one store.
pub(super) struct YieldHook {
    clock: Arc<dyn Clock>,
    poll_start: PollStart,
    recorder: Option<Arc<HostCallRecorder>>,
}

impl YieldHook {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        poll_start: PollStart,
        recorder: Option<Arc<HostCallRecorder>>,
    ) -> Self {
        Self { clock, poll_start, recorder }
    }

    fn is_due(&self) -> bool {
        self.clock.now().saturating_duration_since(self.poll_start.get()) >= YIELD_INTERVAL
    }
}

#[wasmtime_wasi::async_trait]
impl CallHookHandler<StoreData> for YieldHook {
    async fn handle_call_event(
        &self,
        mut store: StoreContextMut<'_, StoreData>,
        event: CallHook,
    ) -> wasmtime::Result<()> {
        if let (Some(recorder), CallHook::CallingHost) = (&self.recorder, event) {
            recorder.enter(store.get_fuel().unwrap_or(0));
        }
        if let (Some(recorder), CallHook::ReturningFromHost) = (&self.recorder, event) {
            recorder.exit();
        }
        if event.entering_host() {
            // The guest's parameters are decoded in the host's memory.
            let room = store.data().ledger().memory().room();
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            store.set_hostcall_fuel(room.min(limits::HOST_TRANSFER_BYTES));
        } else {
            store.data_mut().charge_handles()?;
        }
        if event.exiting_host() && self.is_due() {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::clock::SystemClock;

    #[test]
    fn time_outside_a_poll_is_not_counted() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let long_ago = clock.now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now);
        let poll_start = PollStart::new(long_ago);
        let hook = YieldHook::new(Arc::clone(&clock), poll_start.clone(), None);
        assert!(hook.is_due());
        poll_start.set(clock.now() + Duration::from_secs(60));
        assert!(!hook.is_due());
    }
}
