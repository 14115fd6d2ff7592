//! The problems of a document: one line each, or in the style of the Rust compiler.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{MAX_PROBLEMS, path_part};
use crate::error::{HostError, HostErrorKind};
use crate::failure::sanitize_line;

/// The longest source line that is shown, in bytes; for a longer one only its number is shown.
const SHOWN_LINE_BYTES: usize = 400;

/// Longest piece of a document that is quoted in a message, in characters.
const QUOTED_CHARS: usize = 80;

/// One problem of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    file: String,
    line: usize,
    column: usize,
    key: String,
    message: String,
    fix: String,
    #[serde(skip)]
    span: Range<usize>,
}

impl Diagnostic {
    pub(super) fn new(file: &str, text: &str, span: Range<usize>, key: &str, refused: &InvalidValue) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            key: key.to_owned(),
            message: sanitize_line(&refused.message, 600),
            fix: sanitize_line(&refused.fix, 600),
            span,
        }
    }

    /// Returns the document's name, as the caller gave it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the line, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the column, from 1, in characters.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns the dotted key (`capabilities.network.hosts[0]`); empty if the text is not TOML at that place.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the problem.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the suggested fix.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }

    pub(super) fn start(&self) -> usize {
        self.span.start
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.message, self.fix)
    }
}

/// Everything that is wrong with a document: at least one [`Diagnostic`], in the order of the text.
///
/// `Display` prints one line a problem, fit for a log: no control characters, whatever the document
/// holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    text: Arc<str>,
    problems: Vec<Diagnostic>,
}

impl DocumentError {
    pub(super) fn new(text: &str, mut problems: Vec<Diagnostic>) -> Self {
        problems.sort_by_key(Diagnostic::start);
        Self { text: text.into(), problems }
    }

    /// Creates the error for a text that is not parsed further, with one problem at `span`.
    pub fn one(file: &str, text: &str, span: Range<usize>, refused: &InvalidValue) -> Self {
        let span = text.floor_char_boundary(span.start)..text.ceil_char_boundary(span.end);
        Self::new(text, vec![Diagnostic::new(&sanitize_line(file, 200), text, span, "", refused)])
    }

    /// Converts to an error of the host: the first problem in words, all of them as data.
    pub fn into_host_error(self) -> HostError {
        let (message, fix) = match self.problems() {
            [first, rest @ ..] => {
                let more = match rest.len() {
                    0 => String::new(),
                    more => format!(" ({more} more)"),
                };
                let place = format!("{}:{}:{}", first.file(), first.line(), first.column());
                let key = if first.key().is_empty() { String::new() } else { format!("{}: ", first.key()) };
                (format!("{place}: {key}{}{more}.", first.message()), first.fix().to_owned())
            }
            [] => ("The document is not acceptable.".to_owned(), "Correct it.".to_owned()),
        };
        let problems = serde_json::to_value(self.problems()).unwrap_or_default();
        HostError::new(HostErrorKind::Validation, message)
            .with_hint(fix)
            .detail("problems", problems)
            .with_source(self)
    }

    /// Returns the problems.
    #[must_use]
    pub fn problems(&self) -> &[Diagnostic] {
        &self.problems
    }

    /// Formats the problems in the style of the Rust compiler, with the source lines; `color` adds terminal
    /// colours.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let rendered: Vec<_> = self.problems.iter().map(|problem| self.show(problem, &renderer)).collect();
        rendered.join("\n\n")
    }

    fn show(&self, problem: &Diagnostic, renderer: &Renderer) -> String {
        let title = Level::ERROR.primary_title(match problem.key.as_str() {
            "" => problem.message.clone(),
            key => format!("{key}: {}", problem.message),
        });
        let help = Level::HELP.message(problem.fix.as_str());
        let start =
            self.text.get(..problem.span.start).map_or(0, |text| text.rfind('\n').map_or(0, |at| at + 1));
        let line = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        if line.len() > SHOWN_LINE_BYTES {
            let place = format!("{}:{}:{}", problem.file, problem.line, problem.column);
            return renderer.render(&[title.element(Level::NOTE.message(place)).element(help)]);
        }
        let from = (problem.span.start - start).min(line.len());
        let to = (problem.span.end.saturating_sub(start)).clamp(from, line.len());
        let snippet = Snippet::source(printable(line))
            .line_start(problem.line)
            .path(problem.file.as_str())
            .annotation(AnnotationKind::Primary.span(from..to));
        renderer.render(&[title.element(snippet).element(help)])
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for DocumentError {}

/// The reason why a value is invalid, and a suggested fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {fix}")]
pub struct InvalidValue {
    message: String,
    fix: String,
}

impl InvalidValue {
    /// Creates the error; neither text ends in a full stop.
    pub fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into() }
    }

    /// Returns the problem, without secrets and control characters.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the suggested fix.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

/// Quotes `text` for a message.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", sanitize_line(text, QUOTED_CHARS))
}

/// Quotes a text that may only be ASCII: other letters are shown by their numbers.
pub fn quoted_ascii(text: &str) -> String {
    format!("\"{}\"", crate::failure::ascii_line(text, QUOTED_CHARS))
}

/// Replaces every character of `line` that could control a terminal or hide text, byte for byte, so that
/// positions in it stay valid.
fn printable(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        if c == '\t' {
            shown.push(' ');
        } else if c.is_control() || (sanitize_line(&format!("a{c}a"), 3).chars().nth(1) != Some(c)) {
            shown.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// One step of the path to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathSegment<'k> {
    /// The value of this key of a table.
    Name(&'k str),
    /// The item at this index of a list.
    At(usize),
}

/// The problems of a parsed document.
pub struct Diagnostics<'t> {
    file: &'t str,
    whole: &'t str,
    text: &'t str,
    problems: Vec<Diagnostic>,
}

impl<'t> Diagnostics<'t> {
    /// Creates an empty list of problems for the document `text`, which is the beginning of `whole`.
    pub fn new(file: &'t str, whole: &'t str, text: &'t str) -> Self {
        Self { file, whole, text, problems: Vec::new() }
    }

    /// Reports a problem with the value at `path`. If there is no such value, the problem is reported for its
    /// parent.
    pub fn refuse(&mut self, path: &[PathSegment<'_>], refused: &InvalidValue) {
        if self.problems.len() < MAX_PROBLEMS {
            let problem = Diagnostic::new(self.file, self.whole, self.place(path), &written(path), refused);
            self.problems.push(problem);
        }
    }

    /// Returns whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns the problems, if there are any.
    ///
    /// # Errors
    /// At least one problem was reported.
    pub fn finish(self) -> Result<(), DocumentError> {
        if self.problems.is_empty() { Ok(()) } else { Err(DocumentError::new(self.whole, self.problems)) }
    }

    fn place(&self, path: &[PathSegment<'_>]) -> Range<usize> {
        let (root, _) = DeTable::parse_recoverable(self.text);
        let Some((PathSegment::Name(first), rest)) = path.split_first() else { return 0..0 };
        let Some(mut at) = root.get_ref().get(*first) else { return 0..0 };
        for key in rest {
            let Some(next) = inside(at, *key) else { break };
            at = next;
        }
        let span = at.span();
        let start = self.whole.floor_char_boundary(span.start);
        start..self.whole.ceil_char_boundary(span.end.max(start))
    }
}

fn inside<'v>(value: &'v Spanned<DeValue<'v>>, key: PathSegment<'_>) -> Option<&'v Spanned<DeValue<'v>>> {
    match (value.get_ref(), key) {
        (DeValue::Table(table), PathSegment::Name(name)) => table.get(name),
        (DeValue::Array(items), PathSegment::At(index)) => items.get(index),
        _ => None,
    }
}

fn written(path: &[PathSegment<'_>]) -> String {
    let mut text = String::new();
    for key in path {
        match key {
            PathSegment::Name(name) if text.is_empty() => text.push_str(&path_part(name)),
            PathSegment::Name(name) => {
                text.push('.');
                text.push_str(&path_part(name));
            }
            PathSegment::At(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}
