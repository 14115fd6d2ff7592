//! The rules for the text of a secret: it can be sent verbatim, without characters that pasting adds.

use std::sync::Arc;

use cofferdam_core::secret::Secret;
use zeroize::Zeroizing;

/// The longest secret, in bytes: the longest tokens have a few thousand.
pub const SECRET_BYTES: usize = 16 * 1024;

/// The number of characters below which a text occurs too often by coincidence to be scanned for.
pub const SHORT_SECRET_CHARS: usize = cofferdam_core::secret::MIN_SCANNED_BYTES;

/// The form in which a secret is sent, which decides its allowed characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// Verbatim in a header or a URL: visible ASCII, and spaces only inside.
    Visible,
    /// Encoded (a password): any text without control characters.
    Encoded,
}

/// The reason why a text cannot be a secret. It reveals nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretFlaw {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// It is longer than [`SECRET_BYTES`].
    #[error("it has more than 16 KiB")]
    TooLong,
    /// It has several lines.
    #[error("it has more than one line")]
    Lines,
    /// It has a control character.
    #[error("it has a control character in it")]
    Control,
    /// It begins or ends with a blank, as after careless copying.
    #[error("it begins or ends with a blank")]
    Blank,
    /// It has a character that no header can carry.
    #[error("it has a character in it that is not ASCII, which no header can carry")]
    NotAscii,
}

/// Returns the secret in `text`, without the one line end that files and pipes add. `text` is cleared.
///
/// # Errors
/// The text cannot be sent verbatim.
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

/// Checks that `text` can be sent verbatim in this form.
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
    fn unsendable_secrets_are_refused() {
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
    fn a_password_can_be_any_text() {
        for text in ["pässword", " two words ", "漢字"] {
            assert_eq!(taken(text, SecretForm::Encoded).unwrap(), text);
        }
        assert_eq!(taken("a\nb", SecretForm::Encoded), Err(SecretFlaw::Lines));
        assert_eq!(taken("a\0", SecretForm::Encoded), Err(SecretFlaw::Control));
    }
}
