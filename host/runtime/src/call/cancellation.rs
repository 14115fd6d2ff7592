//! The third way a call can end: by whoever asked for it.

use cofferdam_core::error::{HostError, HostErrorKind};
use tokio_util::sync::CancellationToken;

/// Cancels the calls it was given to. Cheap to clone; all clones are one.
///
/// A call that is cancelled ends at once, wherever it is: in line, in its sandbox, between two attempts. Its outcome
/// is neither a value nor a failure but the error `cancelled`. Dropping a call's future ends it, too, and leaves
/// nobody to tell.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(CancellationToken);

impl Cancellation {
    /// One that nobody has used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels every call it was given to, also those that are made later.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Ready once it is used.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

/// The outcome of a call that was cancelled after so many attempts were begun.
pub(crate) fn cancelled(attempts: usize) -> HostError {
    let message = match attempts {
        0 => "The call was cancelled before its first attempt; nothing was done.",
        _ => "The call was cancelled before it had an outcome. It may have had effects.",
    };
    HostError::new(HostErrorKind::Cancelled, message).detail("attempts", attempts)
}
