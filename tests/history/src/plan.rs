//! The keys that clients use, with the effects that each of them is to have.

use serde::{Deserialize, Serialize};

/// A key, and the steps that run under it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedKey {
    /// The idempotency key.
    pub key: String,
    /// The steps of the action; of a call, one with an empty id.
    pub steps: Vec<PlannedStep>,
}

/// A step, which has one effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// The id of the step; empty for a call.
    pub id: String,
    /// True if the operation is declared idempotent: the upstream could recognise a repeated request by its key.
    pub repeatable: bool,
}

impl PlannedKey {
    /// Returns the key under which the host runs this step.
    #[must_use]
    pub(crate) fn key_of(&self, step: &PlannedStep) -> String {
        match step.id.is_empty() {
            true => self.key.clone(),
            false => format!("{}/{}", self.key, step.id),
        }
    }
}
