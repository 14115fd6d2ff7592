//! Makes guests that live in host calls yield: the clock and the gates' verdict must reach them too.
//!
//! Fuel makes computing guests yield, but a host call burns none: a loop of them, each a fraction of a
//! millisecond, would hold its thread beyond any deadline. So after each host call the hook yields once
//! a millisecond has gone by since the last time. On the way into the host and out of it the memory is looked at that
//! the host call may use, and has used.

use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::{CallHook, CallHookHandler, StoreContextMut};

use super::state::State;
use crate::clock::Clock;
use crate::limits;

/// The longest that host calls go on without a look at the clock.
const BREATH: Duration = Duration::from_millis(1);

/// The hook of one store.
pub(super) struct Breather {
    clock: Arc<dyn Clock>,
    last: Mutex<Instant>,
}

impl Breather {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let last = Mutex::new(clock.now());
        Self { clock, last }
    }

    fn due(&self) -> bool {
        let now = self.clock.now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = now.saturating_duration_since(*last) >= BREATH;
        if due {
            *last = now;
        }
        due
    }
}

#[wasmtime_wasi::async_trait]
impl CallHookHandler<State> for Breather {
    async fn handle_call_event(
        &self,
        mut store: StoreContextMut<'_, State>,
        event: CallHook,
    ) -> wasmtime::Result<()> {
        if event.entering_host() {
            // What the guest hands over is decoded in the host's memory.
            let room = store.data().ledger().memory().room();
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            store.set_hostcall_fuel(room.min(limits::HOST_TRANSFER_BYTES));
        } else {
            store.data_mut().charge_handles()?;
        }
        if event.exiting_host() && self.due() {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
