//! What may be a secret: one text that can be sent as it is, without what pasting adds.

use std::sync::Arc;

use cofferdam_core::secret::Secret;
use zeroize::Zeroizing;

/// Longest secret, in bytes: the longest tokens have a few thousand.
pub const SECRET_BYTES: usize = 16 * 1024;

/// Below this many characters, a text stands in too many places by chance to be searched for.
pub const SHORT_SECRET_CHARS: usize = cofferdam_core::secret::SHORTEST_SOUGHT;

/// How a secret travels, which says what it may consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// In a header or a URL as it is: visible ASCII, with spaces inside at most.
    Visible,
    /// Encoded (a password): any text without control characters.
    Encoded,
}

/// Why a text cannot be a secret. Says nothing of what the text was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretFlaw {
    /// Nothing is in it.
    #[error("it is empty")]
    Empty,
    /// It is longer than any.
    #[error("it has more than 16 KiB")]
    TooLong,
    /// There are several lines.
    #[error("it has more than one line")]
    Lines,
    /// A character that is no text.
    #[error("it has a control character in it")]
    Control,
    /// Blank at an end, as from careless copying.
    #[error("it begins or ends with a blank")]
    Blank,
    /// Something that no header can carry.
    #[error("it has a character in it that is not ASCII, which no header can carry")]
    NotAscii,
}

/// The secret in `text`: without the one line end that files and pipes add. `text` is cleared.
///
/// # Errors
/// It cannot be sent as it is.
pub fn secret_text(mut text: Zeroizing<String>, form: SecretForm) -> Result<Arc<Secret>, SecretFlaw> {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    check_text(&text, form)?;
    Ok(Arc::new(Secret::new(std::mem::take(&mut *text))))
}

/// Whether `text` can be sent in this form as it is.
pub(super) fn check_text(text: &str, form: SecretForm) -> Result<(), SecretFlaw> {
    if text.is_empty() {
        return Err(SecretFlaw::Empty);
    }
    if text.len() > SECRET_BYTES {
        return Err(SecretFlaw::TooLong);
    }
    if text.contains(['\n', '\r']) {
        return Err(SecretFlaw::Lines);
    }
    if text.chars().any(char::is_control) {
        return Err(SecretFlaw::Control);
    }
    if form == SecretForm::Visible {
        if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
            return Err(SecretFlaw::Blank);
        }
        if !text.is_ascii() {
            return Err(SecretFlaw::NotAscii);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_core::privileged::ExposeSecret as _;
    use zeroize::Zeroizing;

    use super::{SecretFlaw, SecretForm, secret_text};

    fn taken(text: &str, form: SecretForm) -> Result<String, SecretFlaw> {
        secret_text(Zeroizing::new(text.to_owned()), form).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn row_117_what_no_header_can_carry_is_refused_before_it_is_bound() {
        for (text, bound) in [
            ("xoxb-1", "xoxb-1"),
            ("xoxb-1\n", "xoxb-1"),
            ("xoxb-1\r\n", "xoxb-1"),
            ("Key one two", "Key one two"),
            ("a\"\\'$`!~", "a\"\\'$`!~"),
        ] {
            assert_eq!(taken(text, SecretForm::Visible).unwrap(), bound);
        }
        let long = "x".repeat(16 * 1024 + 1);
        for (text, flaw) in [
            ("", SecretFlaw::Empty),
            ("\n", SecretFlaw::Empty),
            ("\r\n", SecretFlaw::Empty),
            ("a\n\n", SecretFlaw::Lines),
            ("a\rb", SecretFlaw::Lines),
            ("a\r\nX-Other: b", SecretFlaw::Lines),
            ("a\0b", SecretFlaw::Control),
            ("a\u{1b}[31m", SecretFlaw::Control),
            ("a\tb", SecretFlaw::Control),
            (" a", SecretFlaw::Blank),
            ("a ", SecretFlaw::Blank),
            ("a\u{a0}", SecretFlaw::Blank),
            ("pässword", SecretFlaw::NotAscii),
            (&long, SecretFlaw::TooLong),
        ] {
            assert_eq!(taken(text, SecretForm::Visible), Err(flaw), "{text:?}");
        }
    }

    #[test]
    fn a_password_may_be_any_text() {
        for text in ["pässword", " two words ", "漢字"] {
            assert_eq!(taken(text, SecretForm::Encoded).unwrap(), text);
        }
        assert_eq!(taken("a\nb", SecretForm::Encoded), Err(SecretFlaw::Lines));
        assert_eq!(taken("a\0", SecretForm::Encoded), Err(SecretFlaw::Control));
    }
}
