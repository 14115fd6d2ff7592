//! The shutdown of a server, in two steps that all its parts see: no new requests, and then no running ones.

use tokio_util::sync::CancellationToken;

/// A signal that is set once and seen by all clones.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    closing: CancellationToken,
    cancelling: CancellationToken,
}

impl Shutdown {
    /// Creates the signal, unset.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the shutdown: no new requests are accepted; running ones have the grace period.
    pub fn begin(&self) {
        self.closing.cancel();
    }

    /// Cancels the running requests.
    pub fn cancel(&self) {
        self.closing.cancel();
        self.cancelling.cancel();
    }

    /// Returns true if the shutdown has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Completes once the shutdown has begun.
    pub async fn begun(&self) {
        self.closing.cancelled().await;
    }

    /// Completes once running requests are to be cancelled.
    pub async fn cancelled(&self) {
        self.cancelling.cancelled().await;
    }
}
