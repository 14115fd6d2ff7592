//! The declaration of `[connector.idempotency]` about one operation.

use std::fmt;

use serde::Serialize;

/// A manifest's declaration about repeating an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredIdempotency {
    /// The manifest names the operation and declares it `idempotent`.
    Declared,
    /// The manifest does not name the operation. The host repeats it only where it saw that no request could
    /// have taken effect twice.
    Undeclared,
    /// The manifest says that the operation must not be repeated, by name or by default.
    NotIdempotent,
}

impl DeclaredIdempotency {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Undeclared => "undeclared",
            Self::NotIdempotent => "not_idempotent",
        }
    }
}

impl fmt::Display for DeclaredIdempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
