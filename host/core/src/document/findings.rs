//! Problems that are found after a document was read: each is told of the key it is about, and finds its place.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{DocumentError, Problem, Refused};
use super::reader::{MAX_PROBLEMS, path_part};

/// One step on the way to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'k> {
    /// The value of this key of a table.
    Name(&'k str),
    /// The item at this place of a list.
    At(usize),
}

/// What is wrong with a document that could be read.
pub struct Findings<'t> {
    file: &'t str,
    whole: &'t str,
    text: &'t str,
    problems: Vec<Problem>,
}

impl<'t> Findings<'t> {
    /// Nothing yet, of the document `text`, which `whole` begins with; both as they were read.
    pub fn new(file: &'t str, whole: &'t str, text: &'t str) -> Self {
        Self { file, whole, text, problems: Vec::new() }
    }

    /// Reports what is wrong with the value at `path`; one that is not there is reported of what it is missing in.
    pub fn refuse(&mut self, path: &[Key<'_>], refused: &Refused) {
        if self.problems.len() < MAX_PROBLEMS {
            let problem = Problem::new(self.file, self.whole, self.place(path), &written(path), refused);
            self.problems.push(problem);
        }
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// What was reported, if anything was.
    ///
    /// # Errors
    /// It was.
    pub fn finish(self) -> Result<(), DocumentError> {
        if self.problems.is_empty() { Ok(()) } else { Err(DocumentError::new(self.whole, self.problems)) }
    }

    fn place(&self, path: &[Key<'_>]) -> Range<usize> {
        let (root, _) = DeTable::parse_recoverable(self.text);
        let Some((Key::Name(first), rest)) = path.split_first() else { return 0..0 };
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

fn inside<'v>(value: &'v Spanned<DeValue<'v>>, key: Key<'_>) -> Option<&'v Spanned<DeValue<'v>>> {
    match (value.get_ref(), key) {
        (DeValue::Table(table), Key::Name(name)) => table.get(name),
        (DeValue::Array(items), Key::At(index)) => items.get(index),
        _ => None,
    }
}

fn written(path: &[Key<'_>]) -> String {
    let mut text = String::new();
    for key in path {
        match key {
            Key::Name(name) if text.is_empty() => text.push_str(&path_part(name)),
            Key::Name(name) => {
                text.push('.');
                text.push_str(&path_part(name));
            }
            Key::At(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}
