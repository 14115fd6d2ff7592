//! How a server ends, in two steps that all parts of it see: nothing new, and then nothing at all.

use tokio_util::sync::CancellationToken;

/// Told once, seen by all clones.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    closing: CancellationToken,
    cancelling: CancellationToken,
}

impl Shutdown {
    /// Nobody said anything yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing new is taken; what runs may go on for the time of grace.
    pub fn begin(&self) {
        self.closing.cancel();
    }

    /// What still runs is cancelled.
    pub fn cancel(&self) {
        self.closing.cancel();
        self.cancelling.cancel();
    }

    /// Whether it began.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Ready once it began.
    pub async fn begun(&self) {
        self.closing.cancelled().await;
    }

    /// Ready once what still runs is to be cancelled.
    pub async fn cancelled(&self) {
        self.cancelling.cancelled().await;
    }
}
