//! How many calls run, for whoever waits until none does.

use tokio::sync::watch;

/// The calls that run now.
#[derive(Debug)]
pub(super) struct Running(watch::Sender<usize>);

impl Default for Running {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

/// One call that runs until this is dropped.
pub(super) struct One<'r>(&'r watch::Sender<usize>);

impl Running {
    /// One more, until what this returns is dropped.
    pub(super) fn one(&self) -> One<'_> {
        self.0.send_modify(|count| *count += 1);
        One(&self.0)
    }

    /// Ready when none runs.
    pub(super) async fn idle(&self) {
        // It fails only where the sender is gone, which is here.
        drop(self.0.subscribe().wait_for(|count| *count == 0).await);
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
