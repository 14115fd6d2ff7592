//! Problems that are found after a document was parsed: each is reported with the path of its value, from
//! which its place is found.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Diagnostic, DocumentError, InvalidValue};
use super::reader::{MAX_PROBLEMS, path_part};

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
