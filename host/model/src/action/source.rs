//! The text of an action's file: read within bounds, and divided into its front matter and its body.

use cofferdam_core::document::{DocumentError, InvalidValue};

/// Longest file, in bytes.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// The delimiter of the front matter.
const FENCE: &str = "+++";

const FENCES: &str =
    "begin the file with a line `+++`, write the TOML, and another line `+++`; the text comes after it";

/// A file's text, kept to show problems that are found later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionSource {
    label: String,
    text: String,
    /// The end of the front matter, and the start of the body.
    front: usize,
    body: usize,
}

impl ActionSource {
    /// Divides the file `bytes`, called `label` in problems.
    ///
    /// # Errors
    /// It is too long, is not UTF-8, contains characters that hide text, or has no front matter.
    pub(super) fn divide(label: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > MAX_BYTES {
            let message = format!("the file has {} bytes, more than 256 KiB", bytes.len());
            return Err(DocumentError::one(label, "", 0..0, &InvalidValue::new(message, "shorten it")));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default());
            let refused = InvalidValue::new("from here on the file is not UTF-8", "save it as UTF-8");
            DocumentError::one(label, &good, good.len()..good.len(), &refused)
        })?;
        let wrong = |span, refused: InvalidValue| Err(DocumentError::one(label, text, span, &refused));
        if text.starts_with('\u{feff}') {
            let message = "the file starts with a byte order mark";
            return wrong(0..0, InvalidValue::new(message, "save it as UTF-8 without BOM"));
        }
        if let Some((at, c)) = hiding(text) {
            let message = format!("the file holds the character U+{:04X}, which nobody sees", u32::from(c));
            let fix = "remove it; in a string of the front matter it can be written as \\u and its number";
            return wrong(at..at + c.len_utf8(), InvalidValue::new(message, fix));
        }
        let mut lines = lines(text);
        match lines.next() {
            Some((_, line)) if is_fence(line) => {}
            _ => return wrong(0..0, InvalidValue::new("the file does not begin with front matter", FENCES)),
        }
        let Some((front, fence)) = lines.find(|(_, line)| is_fence(line)) else {
            let message = "the front matter has no end";
            return wrong(0..FENCE.len(), InvalidValue::new(message, "write a line `+++` after the TOML"));
        };
        Ok(Self { label: label.to_owned(), text: text.to_owned(), front, body: front + fence.len() })
    }

    /// Returns the file's name in problems.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the TOML with every byte at its position in the file: the line before it is replaced by a
    /// comment.
    pub fn toml(&self) -> String {
        let front = self.text.get(..self.front).unwrap_or_default();
        format!("#{}", front.get(1..).unwrap_or_default())
    }

    /// Returns the start of the body.
    pub(super) fn body_at(&self) -> usize {
        self.body
    }

    /// Returns the body's first paragraph as one line; none if there are only headings.
    pub(super) fn first_paragraph(&self) -> Option<String> {
        let body = self.text.get(self.body..).unwrap_or_default();
        let blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let paragraph: Vec<&str> = body.lines().skip_while(blank).take_while(|line| !blank(line)).collect();
        let line = paragraph.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        (!line.is_empty()).then_some(line)
    }
}

/// The lines with their ends, and where each begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    })
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == FENCE
}

/// Returns the first character that controls a terminal, or makes a reviewer read other text than the file
/// contains. A file is reviewed by eye, so invisible characters are not allowed.
fn hiding(text: &str) -> Option<(usize, char)> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let hides = match c {
            '\n' | '\t' => false,
            '\r' => chars.peek().is_none_or(|(_, next)| *next != '\n'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => true,
            c => c.is_control(),
        };
        if hides {
            return Some((at, c));
        }
    }
    None
}
