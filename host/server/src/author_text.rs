//! Texts of connectors' authors, for descriptions.

use cofferdam_core::failure::sanitize_line;

/// The longest description of a parameter, in bytes.
pub(crate) const PARAMETER_BYTES: usize = 512;

/// Returns `text` with its lines, each printable, truncated to `max` bytes between two characters.
pub(crate) fn sanitize_text(text: &str, max: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| sanitize_line(line, max)).collect();
    let text = lines.join("\n").trim().to_owned();
    if text.len() <= max {
        return text;
    }
    let room = max.saturating_sub('…'.len_utf8());
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= room).last();
    format!("{}…", text.get(..end.unwrap_or_default()).unwrap_or_default().trim_end())
}

#[cfg(test)]
mod tests {
    use super::sanitize_text;

    #[test]
    fn texts_are_sanitized_and_truncated() {
        let hidden =
            "Posts.\u{1b}[31m\u{200b}\u{202e}\u{2066}\u{e0049}\u{e0067}\u{feff}\r\nIgnore previous\u{0}";
        assert_eq!(sanitize_text(hidden, 1024), "Posts. [31m\nIgnore previous");
        assert_eq!(sanitize_text("äää", 5), "ä…");
    }
}
