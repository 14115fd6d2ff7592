//! The reason why a document, or one of its operations, cannot become a connector.

use std::fmt;

/// A problem of a document: its place, and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenApiError {
    place: String,
    message: String,
    fix: String,
}

impl OpenApiError {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), fix: fix.into() }
    }

    /// Returns the file, with the JSON pointer (`openapi.yaml#/paths`) or with line and column.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the problem.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the fix, as a sentence.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for OpenApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for OpenApiError {}
