//! The requests that the upstream got, each with its effect.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A request to the upstream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// The number of the request. The answer has it, as `effect-<serial>`.
    pub serial: u64,
    /// The client's key, from the path.
    pub key: String,
    /// The step, from the path; empty for a call.
    pub step: String,
    /// The header `Idempotency-Key`.
    pub service_key: Option<String>,
    /// When it came, in microseconds since the beginning of the run.
    pub at: u64,
    /// True if it had its effect, false if it was refused before.
    pub performed: bool,
    /// The answer: a status, or `reset`.
    pub answer: String,
}

/// The serials that a text mentions.
pub(crate) fn serials(text: &str) -> BTreeSet<u64> {
    let digits = |part: &str| -> Option<u64> {
        let end = part.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(part.len());
        part.get(..end)?.parse().ok()
    };
    text.split("effect-").skip(1).filter_map(digits).collect()
}
