//! Cancellation of calls by their callers.

use cofferdam_core::error::{HostError, HostErrorKind};
use tokio_util::sync::CancellationToken;

/// Cancels the calls that it was given to. Cheap to clone; all clones share one state.
///
/// A cancelled call ends at once in every state: in the queue, in its sandbox, between two attempts. Its outcome is
/// neither a value nor a failure but the error `cancelled`. Dropping a call's future ends it, too, but then no
/// outcome is returned.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(CancellationToken);

impl Cancellation {
    /// Creates a handle that is not cancelled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels every call that it was given to, and also those that are made later.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// True if it is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when it is cancelled.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

/// Returns the error of a call that was cancelled after `attempts` attempts.
pub(crate) fn cancelled(attempts: usize) -> HostError {
    let message = match attempts {
        0 => "The call was cancelled before its first attempt; nothing was done.",
        _ => "The call was cancelled before it had an outcome. It may have had effects.",
    };
    HostError::new(HostErrorKind::Cancelled, message).detail("attempts", attempts)
}
