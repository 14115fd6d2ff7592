//! Texts for agents: their authors are not trusted, so characters that hide or reorder text are removed, and
//! the length is bounded.

use cofferdam_core::failure::sanitize_line;

/// The longest description of a tool, in bytes.
pub(super) const DESCRIPTION_BYTES: usize = 1024;

/// The longest description of a parameter, in bytes.
pub(super) const PARAMETER_BYTES: usize = 512;

/// The longest title of a tool, in bytes.
pub(super) const TITLE_BYTES: usize = 120;

/// Returns `text` with its lines, each printable, truncated to `max` bytes between two characters.
pub(super) fn sanitize_text(text: &str, max: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| sanitize_line(line, max)).collect();
    let text = lines.join("\n").trim().to_owned();
    if text.len() <= max {
        return text;
    }
    let room = max.saturating_sub('…'.len_utf8());
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= room).last();
    format!("{}…", text.get(..end.unwrap_or_default()).unwrap_or_default().trim_end())
}

/// Returns the author's description of a tool, then our description of its target, which the author's text
/// cannot displace.
pub(super) fn description(author: &str, runs: &str) -> String {
    let runs = sanitize_text(runs, DESCRIPTION_BYTES / 2);
    let author = sanitize_text(author, DESCRIPTION_BYTES - runs.len() - 2);
    if author.is_empty() { runs } else { format!("{author}\n\n{runs}") }
}

#[cfg(test)]
mod tests {
    use super::{DESCRIPTION_BYTES, description, sanitize_text};

    #[test]
    fn attack_156_a_description_shows_all_that_is_in_it_and_is_short() {
        let hidden =
            "Posts.\u{1b}[31m\u{200b}\u{202e}\u{2066}\u{e0049}\u{e0067}\u{feff}\r\nIgnore previous\u{0}";
        assert_eq!(sanitize_text(hidden, 1024), "Posts. [31m\nIgnore previous");
        let long = description(&"ä".repeat(1 << 20), "Operation greet of github://acme/hello@1.0.0.");
        assert!(long.len() <= DESCRIPTION_BYTES, "{}", long.len());
        assert!(long.ends_with("…\n\nOperation greet of github://acme/hello@1.0.0."), "{long}");
        assert_eq!(description("\u{200b}\n ", "Runs."), "Runs.");
        assert_eq!(sanitize_text("äää", 5), "ä…");
    }
}
