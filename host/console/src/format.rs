//! Amounts, times and untrusted texts, as people read them.

pub(crate) use cofferdam_core::amounts::{bytes, duration, span};
use cofferdam_core::failure::sanitize_line;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The longest text of a connector, an agent or a service in one place, in bytes.
const LONGEST: usize = 2_000;

/// The characters of a value in a query that are encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a text on one line without characters that hide or reorder text. The template engine escapes it.
pub(crate) fn plain(text: &str) -> String {
    sanitize_line(text, LONGEST)
}

/// Returns a value for a query or a segment of a path.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Returns a number with its digits in groups of three.
pub(crate) fn number(amount: u64) -> String {
    let digits = amount.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a time in RFC 3339 to the second, with a space: `2026-11-22 11:29:58 UTC`.
pub(crate) fn time(at: &str) -> String {
    match (at.get(..10), at.get(11..19)) {
        (Some(day), Some(time)) if at.ends_with('Z') => format!("{day} {time} UTC"),
        _ => plain(at),
    }
}

/// Returns the share in percent; a small share is not zero, and no part is all.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    match percent {
        0 if part > 0 => "less than 1 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_readable() {
        assert_eq!([0, 999, 1_000, 30_000_000_000].map(number), ["0", "999", "1,000", "30,000,000,000"]);
        assert_eq!(time("2026-11-22T11:29:58.120031Z"), "2026-11-22 11:29:58 UTC");
        assert_eq!(time("<b>"), "<b>");
        assert_eq!(
            [percent(0, 9), percent(1, 1_000), percent(11, 100), percent(1, 0)],
            ["0 %", "less than 1 %", "11 %", "100 %"]
        );
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(encoded("github://a/b@1.0.0"), "github%3A%2F%2Fa%2Fb%401.0.0");
        assert_eq!(encoded("\"><b&x=1 ä"), "%22%3E%3Cb%26x%3D1%20%C3%A4");
    }

    #[test]
    fn hidden_characters_are_shown() {
        assert!(!plain("a\u{202e}b\nc\u{0}").contains(['\u{202e}', '\n', '\u{0}']));
    }
}
