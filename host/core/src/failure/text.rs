//! Sanitizes external text for messages: one line, printable, bounded.

use std::borrow::Cow;

use super::class::FailureClass;
use super::envelope::Failure;

/// Keeps the printable characters of the first `max` characters of `text`, as one line.
///
/// Control characters, line breaks, and the invisible characters that reorder or hide text
/// (bidirectional controls, zero-width characters, tags) become spaces or vanish, so that a name from
/// a component cannot forge a log line or drive a terminal.
#[must_use]
pub fn sanitize_line(text: &str, max: usize) -> String {
    printable(text, max, false)
}

/// As [`sanitize_line`], but keeps line breaks: for text that is shown as several lines, each marked with its
/// source.
pub fn sanitize_lines(text: &str, max: usize) -> String {
    printable(text, max, true)
}

fn printable(text: &str, max: usize, line_breaks: bool) -> String {
    let mut line = String::with_capacity(text.len().min(max));
    let mut kept = 0;
    for c in text.chars() {
        if is_invisible(c) {
            continue;
        }
        if kept == max {
            line.push('…');
            break;
        }
        let breaks = c == '\n' && line_breaks;
        let drives = (c.is_control() && !breaks) || c == '\u{2028}' || c == '\u{2029}';
        line.push(if drives { ' ' } else { c });
        kept += 1;
    }
    line.trim().to_owned()
}

/// As [`sanitize_line`], with every character outside ASCII written as its number: for names whose grammar is
/// ASCII, in which a letter that only looks like another must be visible.
#[must_use]
pub fn ascii_line(text: &str, max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max));
    for c in sanitize_line(text, max).chars() {
        match c {
            c if c.is_ascii() || c == '…' => line.push(c),
            c => line.extend(c.escape_unicode()),
        }
    }
    line
}

/// Escapes the characters of the JSON `text` that control terminals or hide text; the value stays the same.
pub fn printable_json(text: &str) -> String {
    let plain = |c: char| matches!(c, ' '..='~' | '\n');
    if text.chars().all(plain) {
        return text.to_owned();
    }
    let mut printable = String::with_capacity(text.len());
    let mut buffer = [0; 4];
    let mut units = [0; 2];
    for c in text.chars() {
        if plain(c) || sanitize_line(c.encode_utf8(&mut buffer), 1).starts_with(c) {
            printable.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                printable.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    printable
}

/// Makes every invisible character of `text`, which is JSON written by the host, visible in the value itself,
/// so that programs and people read the same.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains("\\u") && !text.contains("\\b") && !text.contains("\\f") && !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + text.len() / 8);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('b') => visible.push_str("\\\\u0008"),
                Some('f') => visible.push_str("\\\\u000c"),
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let number = u32::from_str_radix(&digits, 16).ok();
                    // Half of a surrogate pair is not a character, and is written out as well.
                    let shown = number.and_then(char::from_u32).is_some_and(|c| !hidden(c));
                    visible.push_str(if shown { "\\u" } else { "\\\\u" });
                    visible.push_str(&digits);
                }
                Some(escaped) => visible.extend(['\\', escaped]),
                None => visible.push('\\'),
            },
            // The host writes none between values.
            '\n' => visible.push('\n'),
            c if hidden(c) => match u32::from(c) {
                short @ ..=0xffff => visible.push_str(&format!("\\\\u{short:04x}")),
                long => visible.push_str(&format!("\\\\u{{{long:x}}}")),
            },
            c => visible.push(c),
        }
    }
    Cow::Owned(visible)
}

/// Returns true for characters that show nothing of their own: those that join, select or reorder others.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A question that a program could ask its user. The host asks no question itself: the audit log and the
/// listeners get the prompt, and a program with a user shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryPrompt {
    /// "Do it again?": the failure may be transient, or it is unknown whether the call took effect. A call
    /// that must not be repeated needs the user's approval.
    Approve,
    /// "With what instead?": the input is wrong.
    Ask,
    /// "Authenticate again?": a credential is missing, or was rejected.
    Authenticate,
}

impl RecoveryPrompt {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Ask => "ask",
            Self::Authenticate => "authenticate",
        }
    }
}

impl Failure {
    /// Returns the prompt for a person; `None` if no answer would help, as with a denial.
    #[must_use]
    pub fn prompt(&self) -> Option<RecoveryPrompt> {
        match self.class() {
            FailureClass::BindingRequired | FailureClass::BindingFailed => Some(RecoveryPrompt::Authenticate),
            FailureClass::ConnectorRuntimeError if self.code() == "input_invalid" => {
                Some(RecoveryPrompt::Ask)
            }
            // The service says that the request itself is what is wrong.
            FailureClass::ExternalApiError if self.status() == Some(401) => {
                Some(RecoveryPrompt::Authenticate)
            }
            FailureClass::ExternalApiError if matches!(self.status(), Some(400 | 404 | 410 | 413 | 422)) => {
                Some(RecoveryPrompt::Ask)
            }
            // The retries are exhausted, or it may not be repeated without approval.
            _ if self.retriable() || self.cause().is_retriable() => Some(RecoveryPrompt::Approve),
            _ => None,
        }
    }

    /// Returns the status of the service's response.
    fn status(&self) -> Option<u64> {
        self.details().get("status").and_then(serde_json::Value::as_u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::{printable_json, sanitize_line, sanitize_lines, visible_json};

    #[test]
    fn hidden_characters_are_escaped_in_the_value() {
        let value = serde_json::json!({"a\u{202e}": "x\u{200b}\u{e0041}\u{9b}\u{7f}\u{1b}\u{8}\n\t\\u202e\"ä→\u{2028}"});
        let visible: serde_json::Value = serde_json::from_str(&visible_json(&value.to_string())).unwrap();
        let spelled = r"x\u200b\u{e0041}\u009b\u007f\u001b\u0008";
        let expected = format!("{spelled}\n\t\\u202e\"ä→\\u2028");
        assert_eq!(visible, serde_json::json!({"a\\u202e": expected}));
        let escaped = r#"["\u202e\u00e9\udb40\udc41\f"]"#;
        let visible: serde_json::Value = serde_json::from_str(&visible_json(escaped)).unwrap();
        assert_eq!(visible, serde_json::json!(["\\u202eé\\udb40\\udc41\\u000c"]));
        let plain = r#"{"a": "ä \\u \n"}"#;
        assert_eq!(visible_json(plain), plain);
    }

    #[test]
    fn control_and_invisible_characters_are_removed() {
        assert_eq!(sanitize_line("\u{1b}[31mEVIL\u{7}\n FAKE", 80), "[31mEVIL   FAKE");
        assert_eq!(sanitize_line("a\u{202e}b\u{200b}c\u{e0041}d", 80), "abcd");
        assert_eq!(sanitize_line("abcdef", 3), "abc…");
        assert_eq!(sanitize_line("abc", 3), "abc");
        assert_eq!(sanitize_lines("\u{1b}[31mone\r\n\u{202e}two\u{85}\n", 80), "[31mone \ntwo");
    }

    #[test]
    fn lookalike_letters_are_shown_as_escapes() {
        assert_eq!(super::ascii_line("github://\u{430}cme/w", 80), "github://\\u{430}cme/w");
    }

    #[test]
    fn json_is_printable_and_the_same_value() {
        let value = serde_json::json!({"a": "tab\t esc\u{1b}[31m csi\u{9b} del\u{7f} rtl\u{202e} tag\u{e0041} é 漢 😀"});
        let text = serde_json::to_string(&value).unwrap();
        let printable = printable_json(&text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printable).unwrap(), value);
        assert!(!printable.contains(['\u{1b}', '\u{9b}', '\u{7f}', '\u{202e}', '\u{e0041}']), "{printable}");
        assert!(printable.contains("é 漢 😀"), "{printable}");
    }
}
