//! The escaping of a document's texts: one function for each place that a text can be in.
//!
//! Rust code is made of tokens (`quote`), whose literals escape themselves. Everything else passes here.

use cofferdam_core::failure::is_invisible;

/// The longest line of documentation.
const MAX_LINE: usize = 2_000;

/// The most lines of documentation.
const MAX_LINES: usize = 60;

/// Returns true for characters that change how the text around them is read: controls, and those that reorder; and for the
/// deprecated ones that parsers of WIT refuse.
fn is_hostile(character: char) -> bool {
    character.is_control()
        || is_invisible(character)
        || matches!(character, '\u{2028}' | '\u{2029}')
        || matches!(character, '\u{149}' | '\u{673}' | '\u{f77}' | '\u{f79}' | '\u{17a3}' | '\u{17a4}')
}

/// Returns a text as one line without hostile characters.
pub(crate) fn line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for character in text.chars() {
        let character = if is_hostile(character) || character.is_whitespace() { ' ' } else { character };
        if character == ' ' && (line.is_empty() || line.ends_with(' ')) {
            continue;
        }
        if line.chars().count() >= most {
            line.push_str("...");
            break;
        }
        line.push(character);
    }
    // Comments in WIT and Rust are read as Markdown: a fence would make code of what follows.
    line.trim_end().replace("```", "'''").replace("~~~", "---").replace("*/", "* /").replace("/*", "/ *")
}

/// Returns the lines of a documentation comment: without hostile characters, and without what would end a comment or
/// begin a code example.
pub(crate) fn doc_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for source in text.split(['\n', '\u{2028}', '\u{2029}']) {
        let clean = line(source, MAX_LINE);
        if clean.is_empty() {
            if lines.last().is_some_and(|last: &String| !last.is_empty()) {
                lines.push(String::new());
            }
            continue;
        }
        let mut current = String::new();
        for word in clean.split(' ') {
            if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(current);
        if lines.len() >= MAX_LINES {
            break;
        }
    }
    lines.truncate(MAX_LINES);
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Returns a text as a string of TOML, with its quotes.
pub(crate) fn toml(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            character if is_hostile(character) => {
                quoted.push_str(&format!("\\U{:08X}", u32::from(character)))
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a key of TOML, quoted where it has to be.
pub(crate) fn toml_key(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { toml(key) }
}

/// Returns the comment lines of TOML.
pub(crate) fn toml_comment(text: &str) -> String {
    doc_lines(text, 116).iter().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}
