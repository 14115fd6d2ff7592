//! An action that may run: its connectors are there, and take what it gives them.

use std::sync::Arc;

use crate::action::Action;

/// An action that was checked.
#[derive(Debug, Clone)]
pub struct Runnable {
    pub(crate) action: Arc<Action>,
    pub(crate) idempotent: Vec<bool>,
}

impl Runnable {
    /// The action.
    pub(crate) fn action(&self) -> &Action {
        &self.action
    }

    /// Whether a step may be repeated.
    pub(crate) fn idempotent(&self, step: usize) -> bool {
        self.idempotent.get(step).copied().unwrap_or(false)
    }
}
