//! Secrets: a text that cannot be printed, and the scanner that finds it in other data.

mod encodings;
mod heuristics;
mod personal;
mod scanner;
#[cfg(test)]
mod tests;

use zeroize::Zeroizing;

pub use encodings::MIN_SCANNED_BYTES;
pub use heuristics::redact_likely_secrets;
pub use personal::{is_personal_field, is_personal_parameter};
pub use scanner::{REDACTED, ScanState, Scanner, SecretMatch};

/// A secret text. It has no `Debug`, `Display`, `Serialize` or `Clone`, and its memory is cleared when it is
/// dropped: it is shared by reference, and read only where it is used.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes ownership of `text`. The caller has to clear its own copies, if there are any.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Returns the text, for the code that uses it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}
