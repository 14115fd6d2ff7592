//! What an agent is told of a call: a text to read and a structure to branch on, made in one place.
//!
//! The text of a failure is always the same three lines: what failed and why, what mends it, and the record's id. It
//! has what the envelope has for callers and nothing else: no secret, no payload, no path of this machine. What is
//! not an outcome of the call (the host could not take it up, somebody cancelled it) reads differently, so that
//! nobody takes it for one; and a value that is partial, or that another connector gave, says so before or after it. What is told of an action says, beside
//! that, which of its steps are done: nothing undoes them.

mod action;
mod error;
#[cfg(test)]
mod reference;
mod shown;
mod value;

pub use action::{action_error, action_value};
pub use error::error;
pub use error::refused_arguments;
pub use shown::VALUE_BYTES;
pub use value::value;

use serde_json::Value;

/// What an agent is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    text: String,
    /// The text without the value, for clients that also read the structure.
    beside: Option<String>,
    structured: Value,
    is_error: bool,
}

impl Rendered {
    /// The text; the value is in it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text to send with the structure: it says of a value where it is, and does not repeat it.
    #[must_use]
    pub fn text_beside(&self) -> &str {
        self.beside.as_deref().unwrap_or(&self.text)
    }

    /// The same for programs: the envelope of the failure or of the host's error, or `{"value": .., "data_from": [..]}`.
    #[must_use]
    pub fn structured(&self) -> &Value {
        &self.structured
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }
}
