//! Output for people: headings, fields and tables, with all outside text made printable.

use anstyle::{AnsiColor, Style};
pub(super) use cofferdam_core::amounts::bytes;
use cofferdam_core::failure::sanitize_line;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

/// Longest line of a page, in characters.
const LINE_CHARS: usize = 4_000;

/// Room for the labels of fields.
const LABEL_WIDTH: usize = 13;

/// The look of a word that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextStyle {
    /// As it should be.
    Good,
    /// Worth a look.
    Doubtful,
    /// Not as it should be.
    Bad,
}

impl TextStyle {
    fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Doubtful => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// Text for people, in the making. The styles in it are taken out where the output is no terminal.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// A line.
    pub(super) fn line(&mut self, text: &str) -> &mut Self {
        self.push("", Style::new(), text)
    }

    /// A line, as good or bad as its tone.
    pub(super) fn styled(&mut self, tone: TextStyle, text: &str) -> &mut Self {
        self.push("", tone.style(), text)
    }

    /// An empty line and a heading.
    pub(super) fn heading(&mut self, text: &str) -> &mut Self {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.push("", Style::new().bold(), text)
    }

    /// A label and its value.
    pub(super) fn field(&mut self, label: &str, value: &str) -> &mut Self {
        self.push(&labelled(label), Style::new(), value)
    }

    /// A label and a value with a tone.
    pub(super) fn styled_field(&mut self, label: &str, tone: TextStyle, value: &str) -> &mut Self {
        self.push(&labelled(label), tone.style(), value)
    }

    /// Text of several lines, set in by `indent` columns.
    pub(super) fn block(&mut self, indent: usize, text: &str) -> &mut Self {
        for line in text.lines() {
            let own = line.len() - line.trim_start_matches(' ').len();
            self.push(&" ".repeat(indent + own.min(LINE_CHARS)), Style::new(), line);
        }
        self
    }

    /// A table; its first row says what the columns are.
    pub(super) fn table<const N: usize>(&mut self, header: [&str; N], rows: Vec<[String; N]>) -> &mut Self {
        self.indented_table(0, header, rows)
    }

    /// A table that is indented by so many columns.
    pub(super) fn indented_table<const N: usize>(
        &mut self,
        indent: usize,
        header: [&str; N],
        rows: Vec<[String; N]>,
    ) -> &mut Self {
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
        for row in rows {
            table.add_row(row.map(|cell| sanitize_line(&cell, LINE_CHARS)));
        }
        for line in table.lines() {
            // The style has no borders, but its padding stays.
            let line = line.strip_prefix(' ').unwrap_or(&line);
            self.text.push_str(&" ".repeat(indent));
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
        self
    }

    fn push(&mut self, before: &str, style: Style, text: &str) -> &mut Self {
        let text = sanitize_line(text, LINE_CHARS);
        let line = match text.is_empty() {
            true => before.trim_end().to_owned(),
            false => format!("{before}{style}{text}{style:#}"),
        };
        self.text.push_str(&line);
        self.text.push('\n');
        self
    }
}

/// A label and the room after it, of which there is always some.
fn labelled(label: &str) -> String {
    let width = LABEL_WIDTH.saturating_sub(1);
    format!("{label:<width$} ")
}

/// [`sanitize_line`] with the line's indentation.
pub(super) fn printable_line(text: &str, max: usize) -> String {
    let indent = text.len() - text.trim_start_matches(' ').len();
    format!("{:1$}{2}", "", indent.min(max), sanitize_line(text, max))
}

#[cfg(test)]
mod tests {
    use super::{Page, TextStyle};

    #[test]
    fn external_text_cannot_control_the_terminal() {
        let mut page = Page::default();
        page.line("a\u{1b}[2Jb").field("name\u{20}", "x\u{202e}\ny").styled(TextStyle::Bad, "c\u{9b}");
        page.block(2, "one\u{7}\n  two").table(["h"], vec![["\u{1b}]0;t\u{7}".into()]]);
        let text = anstream::adapter::strip_str(&page.into_text()).to_string();
        assert_eq!(text, "a [2Jb\nname         x y\nc\n  one\n    two\nh\n]0;t\n");
    }
}
