//! Replaces what does not belong into a file of a repository: secrets, sessions, and what says who asked.

use cofferdam_core::secret::{Scanner, redact_likely_secrets};

/// The replacement in what is compared.
pub(super) const COMPARED: &str = "{{any}}";

/// The replacement in what is sent.
pub(super) const SENT: &str = "redacted";

/// Returns whether a text has a bound secret in it, or what looks like one.
pub(super) fn is_secret(text: &str, scanner: &Scanner) -> bool {
    scanner.find_in_value(text.as_bytes()).is_some() || redact_likely_secrets(text, false) != text
}
