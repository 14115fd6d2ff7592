//! How far a connection has come that several requests wait for, so that each can say what it waited for.

use std::sync::atomic::{AtomicU8, Ordering};

use cofferdam_core::failure::Phase;
use tokio::sync::{Mutex, MutexGuard};

/// The turn to connect, and the phase in which whoever has it is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    turn: Mutex<()>,
    phase: AtomicU8,
}

impl Progress {
    /// Waits for the turn.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Notes that `phase` begins.
    pub(super) fn begin(&self, phase: Phase) {
        self.phase.store(
            match phase {
                Phase::Dns => 0,
                Phase::Connect => 1,
                Phase::Tls | Phase::Send | Phase::Response => 2,
            },
            Ordering::Relaxed,
        );
    }

    /// The phase that began last.
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Dns,
            1 => Phase::Connect,
            _ => Phase::Tls,
        }
    }
}
