//! Finds text that looks like a secret, known or not: tokens that services mark by their prefix.

use std::borrow::Cow;

/// The replacement of such text.
pub(crate) const LIKELY_REDACTED: &str = "[REDACTED]";

/// The prefixes, and the minimum number of characters after each.
const TOKEN_PREFIXES: [(&str, usize); 10] = [
    ("sk-", 20),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("AIza", 30),
    ("xoxb-", 20),
    ("xoxp-", 20),
];

/// Returns `text` without parts that look like a secret. If it was `cut` from a longer text, also without a
/// last part that may be the beginning of one.
pub fn redact_likely_secrets(text: &str, cut: bool) -> Cow<'_, str> {
    let (mut clean, mut kept_to, mut at) = (String::new(), 0, 0);
    let bytes = text.as_bytes();
    while let Some(offset) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| is_first(*byte))) {
        let begin = at.saturating_add(offset);
        let word = bytes.get(begin..).unwrap_or_default();
        let length = word.iter().take_while(|byte| is_part(**byte)).count();
        // A token does not begin in the middle of a word.
        let fresh = begin == 0 || bytes.get(begin.saturating_sub(1)).is_none_or(|byte| !is_part(*byte));
        let ends = cut && length == word.len();
        let found = TOKEN_PREFIXES.iter().any(|(mark, fewest)| {
            let marked = word.starts_with(mark.as_bytes());
            marked && (ends || length >= mark.len().saturating_add(*fewest))
        });
        match fresh && found {
            true => {
                clean.push_str(text.get(kept_to..begin).unwrap_or_default());
                clean.push_str(LIKELY_REDACTED);
                at = begin.saturating_add(length);
                kept_to = at;
            }
            // The rest of this word has no beginning either: each word is scanned once, however long it is.
            false => at = begin.saturating_add(length),
        }
    }
    match kept_to {
        0 => Cow::Borrowed(text),
        _ => {
            clean.push_str(text.get(kept_to..).unwrap_or_default());
            Cow::Owned(clean)
        }
    }
}

fn is_first(byte: u8) -> bool {
    matches!(byte, b's' | b'g' | b'A' | b'x')
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::redact_likely_secrets;

    #[test]
    fn marked_tokens_are_redacted_and_words_kept() {
        let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6";
        for mark in ["sk-", "sk-proj-", "ghp_", "AIza", "github_pat_", "xoxb-"] {
            let text = format!("{{\"key\":\"{mark}{long}\",\"é\":1}}");
            assert_eq!(redact_likely_secrets(&text, false), "{\"key\":\"[REDACTED]\",\"é\":1}");
        }
        let text = "a task-force, a sk-short, risk-aaaaaaaaaaaaaaaaaaaaaaaaaa, ghp_ and AIza";
        assert_eq!(redact_likely_secrets(text, false), text);
        assert_eq!(redact_likely_secrets("key sk-abc", true), "key [REDACTED]");
        assert_eq!(redact_likely_secrets(&format!("sk-{long} sk-{long}"), false), "[REDACTED] [REDACTED]");
        // One long word must be scanned in linear time; quadratic time would be hours.
        let text = "x".repeat(8 << 20);
        assert_eq!(redact_likely_secrets(&text, false), text);
    }
}
