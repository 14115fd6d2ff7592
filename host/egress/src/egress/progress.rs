//! The progress of a connection that several requests wait for, so that each can report the phase it waited
//! for.

use std::sync::atomic::{AtomicU8, Ordering};

use cofferdam_core::failure::RequestPhase;
use tokio::sync::{Mutex, MutexGuard};

/// The lock for connecting, and the current phase of its holder.
#[derive(Debug, Default)]
pub(super) struct ConnectProgress {
    turn: Mutex<()>,
    phase: AtomicU8,
}

impl ConnectProgress {
    /// Waits for the lock.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Records that `phase` begins.
    pub(super) fn begin(&self, phase: RequestPhase) {
        self.phase.store(
            match phase {
                RequestPhase::Dns => 0,
                RequestPhase::Connect => 1,
                RequestPhase::Tls | RequestPhase::Send | RequestPhase::Response => 2,
            },
            Ordering::Relaxed,
        );
    }

    /// Returns the phase that began last.
    pub(super) fn phase(&self) -> RequestPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => RequestPhase::Dns,
            1 => RequestPhase::Connect,
            _ => RequestPhase::Tls,
        }
    }
}
