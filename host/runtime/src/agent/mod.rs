//! Renders outcomes for agents, in one place: a text to read and a structure to branch on.
//!
//! The text of a failure always has the same three lines: the error and its reason, the fix, and the audit id. It
//! has the same content as the envelope for callers and nothing else: no secret, no payload, no path of this
//! machine. A request that the host could not take up, or that was cancelled, has no outcome. It is worded
//! differently, so that it is not mistaken for one. A value that is partial, or that a fallback returned, has a
//! note before or after it. The text for an action also lists its steps that are done: nothing undoes them.

mod action;
mod error;
#[cfg(test)]
mod reference_tests;
mod value;

pub use action::{action_error, action_value, missing_parts_of_step};
pub use error::error;
pub use error::refused_arguments;
pub use value::{VALUE_BYTES, missing_parts, value};

use serde_json::Value;

/// An outcome as it is shown to an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedAnswer {
    text: String,
    /// The text without the value, for clients that also read the structure.
    structured_text: Option<String>,
    structured: Value,
    is_error: bool,
}

impl RenderedAnswer {
    /// Returns the text, including the value.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text to send together with the structure. It refers to the value and does not repeat it.
    #[must_use]
    pub fn structured_text(&self) -> &str {
        self.structured_text.as_deref().unwrap_or(&self.text)
    }

    /// Returns the structure for programs: the envelope of the failure or of the host's error, or `{"value": ..,
    /// "data_from": [..]}`.
    #[must_use]
    pub fn structured(&self) -> &Value {
        &self.structured
    }

    /// True if there is no value.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }
}
