//! Reads a TOML text value by value, and collects the problems with their places.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use jiff::Timestamp;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_parser::lexer::TokenKind;

use super::error::{Diagnostic, DocumentError, InvalidValue, quoted};
use super::{value, yaml};
use crate::failure::sanitize_line;

/// Longest document, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// The number of problems that are collected.
pub(super) const MAX_PROBLEMS: usize = 50;

/// Deepest nesting of brackets, and most parts of a dotted key: documents here need 4.
pub(super) const MAX_DEPTH: usize = 16;

/// Reads the document `text`, called `label` in problems. `build` reads the root table and returns `None`
/// only if it has reported a problem.
///
/// # Errors
/// All reported problems, or the errors of the TOML itself.
pub fn read<T>(
    label: &str,
    text: &str,
    build: impl FnOnce(&DocumentTable<'_>) -> Option<T>,
) -> Result<T, DocumentError> {
    read_part(label, text, text, build)
}

/// Reads a document that is the beginning of a file: `text` is TOML of which every byte has the same position
/// in `whole`, in which problems are shown.
///
/// # Errors
/// As [`read`].
pub fn read_part<T>(
    label: &str,
    whole: &str,
    text: &str,
    build: impl FnOnce(&DocumentTable<'_>) -> Option<T>,
) -> Result<T, DocumentError> {
    let sink = DiagnosticSink::new(label, whole);
    if let Some((span, problem)) = not_a_document(text).or_else(|| too_deep_problem(text)) {
        sink.report(span, "", problem);
        return Err(sink.refused());
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // One error a line: the parser continues after a mistake, and reports consequential errors.
        let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut seen = BTreeSet::new();
        for error in &errors {
            let span = sink.at_char(error.span().unwrap_or_default());
            if seen.len() < MAX_PROBLEMS && seen.insert(line_ends.partition_point(|end| *end < span.start)) {
                let (key, problem) = syntax(error.message(), text.get(span.clone()).unwrap_or_default());
                sink.report(span, &key, problem);
            }
        }
        return Err(sink.refused());
    }
    build_from(&sink, root.get_ref(), build)
}

/// Reads the YAML document `text` as [`read`] reads the TOML with the same values.
///
/// # Errors
/// As [`read`].
pub fn read_yaml<T>(
    label: &str,
    text: &str,
    build: impl FnOnce(&DocumentTable<'_>) -> Option<T>,
) -> Result<T, DocumentError> {
    let sink = DiagnosticSink::new(label, text);
    let parsed = match not_a_document(text) {
        Some(problem) => Err(problem),
        None => yaml::parse(text),
    };
    match parsed {
        Ok(root) => build_from(&sink, &root, build),
        Err((span, problem)) => {
            sink.report(span, "", problem);
            Err(sink.refused())
        }
    }
}

fn build_from<'a, T>(
    sink: &'a DiagnosticSink<'a>,
    entries: &'a DeTable<'a>,
    build: impl FnOnce(&DocumentTable<'a>) -> Option<T>,
) -> Result<T, DocumentError> {
    let table = DocumentTable { sink, path: String::new(), span: 0..0, entries, hidden: None };
    match build(&table) {
        Some(value) if sink.problems.borrow().is_empty() => Ok(value),
        _ => {
            if sink.problems.borrow().is_empty() {
                sink.report(
                    0..0,
                    "",
                    InvalidValue::new("the document is not complete", "add what is missing"),
                );
            }
            Err(sink.refused())
        }
    }
}

/// Returns the line, from 1, of the key at the end of `path` in `text`, a document that was already parsed.
pub fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let (root, _) = DeTable::parse_recoverable(text);
    let (last, tables) = path.split_last()?;
    let mut table = root.get_ref();
    for name in tables {
        let DeValue::Table(inner) = table.get(*name)?.get_ref() else { return None };
        table = inner;
    }
    let (key, _) = table.iter().find(|(key, _)| key.get_ref() == last)?;
    Some(text.get(..key.span().start)?.matches('\n').count() + 1)
}

/// Finds texts that are rejected before they are parsed.
fn not_a_document(text: &str) -> Option<(Range<usize>, InvalidValue)> {
    if text.len() > MAX_BYTES {
        let message = format!("the document has {} bytes, more than 1 MiB", text.len());
        return Some((0..0, InvalidValue::new(message, "shorten it")));
    }
    if text.starts_with('\u{feff}') {
        return Some((
            0..0,
            InvalidValue::new("the document starts with a byte order mark", "save it as UTF-8 without BOM"),
        ));
    }
    if let Some(at) = text.find('\0') {
        return Some((at..at + 1, InvalidValue::new("the document holds a NUL byte", "remove it")));
    }
    None
}

fn too_deep_problem(text: &str) -> Option<(Range<usize>, InvalidValue)> {
    too_deep(text).map(|at| {
        let message = format!("values are nested more than {MAX_DEPTH} deep");
        (at..at, InvalidValue::new(message, "flatten them"))
    })
}

/// Returns the place where brackets or dots are nested deeper than [`MAX_DEPTH`]: a parsed document is
/// traversed and dropped by recursion, and the parser's own bounds on brackets and on dots multiply.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut dots = 0usize;
    for token in toml_parser::Source::new(text).lex() {
        match token.kind() {
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => depth += 1,
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => depth = depth.saturating_sub(1),
            TokenKind::Dot => dots += 1,
            TokenKind::Newline | TokenKind::Equals | TokenKind::Comma => dots = 0,
            _ => {}
        }
        if depth > MAX_DEPTH || dots > MAX_DEPTH {
            return Some(token.span().start());
        }
    }
    None
}

/// Rewords a syntax error of the TOML parser, with the key if the text at that place is one.
fn syntax(message: &str, at: &str) -> (String, InvalidValue) {
    if message.starts_with("duplicate key") {
        return (
            path_part(at),
            InvalidValue::new("this key stands twice in its table", "keep one of the two"),
        );
    }
    let fix = if message.starts_with("string values must be quoted") {
        "put the value in double quotes, or write it as the type it is to have"
    } else {
        "correct the TOML here"
    };
    (String::new(), InvalidValue::new(format!("this is not TOML: {message}"), fix))
}

/// Formats a name as a part of a dotted key.
pub(super) fn path_part(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { sanitize_line(name, 80) } else { quoted(name) }
}

pub(super) struct DiagnosticSink<'t> {
    file: String,
    text: &'t str,
    problems: RefCell<Vec<Diagnostic>>,
}

impl<'t> DiagnosticSink<'t> {
    fn new(label: &str, text: &'t str) -> Self {
        Self { file: sanitize_line(label, 200), text, problems: RefCell::default() }
    }

    /// Returns the error with all reported problems.
    fn refused(&self) -> DocumentError {
        let shown = if self.text.len() > MAX_BYTES { "" } else { self.text };
        DocumentError::new(shown, self.problems.take())
    }

    fn report(&self, span: Range<usize>, key: &str, refused: InvalidValue) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MAX_PROBLEMS {
            let span = self.at_char(span);
            let problem = Diagnostic::new(&self.file, self.text, span, key, &refused);
            // A value that is read twice is reported once.
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }

    /// Moves `span` to character boundaries inside the text.
    fn at_char(&self, span: Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start);
        start..self.text.ceil_char_boundary(span.end.max(start))
    }
}

/// A value with its key and its place.
#[derive(Clone)]
pub struct SpannedItem<'a, T> {
    pub(super) sink: &'a DiagnosticSink<'a>,
    pub(super) path: String,
    pub(super) span: Range<usize>,
    /// The value.
    pub value: T,
}

impl<'a, T> SpannedItem<'a, T> {
    /// Reports that this value is invalid.
    pub fn refuse(&self, refused: InvalidValue) {
        self.sink.report(self.span.clone(), &self.path, refused);
    }

    /// Returns the line, from 1.
    pub fn line(&self) -> usize {
        self.sink.text.get(..self.span.start).unwrap_or_default().matches('\n').count() + 1
    }

    /// Returns the same place with another value.
    pub fn with_value<U>(self, value: U) -> SpannedItem<'a, U> {
        SpannedItem { sink: self.sink, path: self.path, span: self.span, value }
    }

    /// Parses the value with `parse`; reports the error otherwise.
    pub fn parse<U>(&self, parse: impl FnOnce(&T) -> Result<U, InvalidValue>) -> Option<U> {
        parse(&self.value).map_err(|error| self.refuse(error)).ok()
    }
}

/// A table of the document.
pub struct DocumentTable<'a> {
    pub(super) sink: &'a DiagnosticSink<'a>,
    path: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    /// A key that another reader handles.
    hidden: Option<&'a str>,
}

impl<'a> DocumentTable<'a> {
    /// Reports every key that is not in `allowed`, with the nearest allowed one.
    pub fn reject_unknown_keys(&self, allowed: &[&str]) {
        for key in self.entries.keys() {
            let name: &str = key.get_ref();
            if allowed.contains(&name) || self.hidden == Some(name) {
                continue;
            }
            let list = allowed.join(", ");
            let fix = match crate::suggest::nearest(name, allowed.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? (allowed: {list})"),
                None => format!("remove it (allowed: {list})"),
            };
            let message = "this key is not known here";
            self.sink.report(key.span(), &self.child(name), InvalidValue::new(message, fix));
        }
    }

    /// Reports that `key` is missing.
    pub fn missing(&self, key: &str, example: &str) {
        let fix = format!("add {example}");
        self.sink.report(self.span.clone(), &self.child(key), InvalidValue::new("this key is missing", fix));
    }

    /// Returns the text under `key`, if it is there and is text.
    pub fn text(&self, key: &str) -> Option<SpannedItem<'a, &'a str>> {
        let (path, value) = self.get(key)?;
        self.as_text(path, value)
    }

    /// Returns the text under `key`; reports it if it is missing.
    pub fn required_text(&self, key: &str, example: &str) -> Option<SpannedItem<'a, &'a str>> {
        if !self.entries.contains_key(key) {
            self.missing(key, example);
        }
        self.text(key)
    }

    /// Returns the whole number of at most 64 bits under `key`, if it is there and is one.
    pub fn integer(&self, key: &str) -> Option<SpannedItem<'a, u64>> {
        let (path, value) = self.get(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            return self.wrong_type(&path, value, "a whole number without quotes");
        };
        let digits: String = integer.as_str().chars().filter(|c| *c != '_').collect();
        let located = self.located(path, value, ());
        match u64::from_str_radix(&digits, integer.radix()) {
            Ok(number) => Some(located.with_value(number)),
            Err(_) => {
                let message =
                    format!("{} is not a whole number from 0 to 2^64-1", sanitize_line(&digits, 40));
                located.refuse(InvalidValue::new(message, "write a number in that range"));
                None
            }
        }
    }

    /// Returns the number under `key`, whole or not, if it is there and is a finite amount.
    pub fn number(&self, key: &str) -> Option<SpannedItem<'a, f64>> {
        let (path, value) = self.get(key)?;
        let digits = |text: &str| text.chars().filter(|c| *c != '_').collect::<String>();
        let number = match value.get_ref() {
            DeValue::Float(float) => digits(float.as_str()).parse::<f64>().ok(),
            DeValue::Integer(whole) if whole.radix() == 10 => digits(whole.as_str()).parse::<f64>().ok(),
            _ => return self.wrong_type(&path, value, "a number without quotes, like 0.2"),
        };
        let located = self.located(path, value, ());
        match number.filter(|number| number.is_finite()) {
            Some(number) => Some(located.with_value(number)),
            None => {
                located.refuse(InvalidValue::new("this counts nothing", "write a number like 0.2"));
                None
            }
        }
    }

    /// Returns the truth value under `key`, if it is there and is one.
    pub fn flag(&self, key: &str) -> Option<bool> {
        let (path, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.wrong_type(&path, value, "true or false"),
        }
    }

    /// Returns the time under `key`, if it is there and is one: RFC 3339, quoted or bare, with an offset.
    pub fn moment(&self, key: &str) -> Option<SpannedItem<'a, Timestamp>> {
        let (path, value) = self.get(key)?;
        let text = match value.get_ref() {
            DeValue::Datetime(datetime) => datetime.to_string(),
            DeValue::String(text) => text.to_string(),
            _ => return self.wrong_type(&path, value, "a date and time like 2027-01-31T00:00:00Z"),
        };
        let located = self.located(path, value, ());
        match text.parse::<Timestamp>() {
            Ok(moment) => Some(located.with_value(moment)),
            Err(_) => {
                let message = format!("{} is not a date and time with an offset", quoted(&text));
                located.refuse(InvalidValue::new(message, "write it like 2027-01-31T00:00:00Z"));
                None
            }
        }
    }

    /// Returns the texts in the array under `key`; none if it is missing.
    pub fn texts(&self, key: &str) -> Vec<SpannedItem<'a, &'a str>> {
        let Some((path, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type::<()>(&path, value, "an array of strings, like [\"...\"]");
            return Vec::new();
        };
        let indexed = array.iter().enumerate();
        indexed.filter_map(|(index, item)| self.as_text(format!("{path}[{index}]"), item)).collect()
    }

    /// Returns the table under `key`, if it is there and is one.
    pub fn table(&self, key: &str) -> Option<DocumentTable<'a>> {
        self.table_like(key, &format!("a table: [{}]", self.child(key)))
    }

    fn table_like(&self, key: &str, example: &str) -> Option<DocumentTable<'a>> {
        let (path, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => {
                Some(DocumentTable { sink: self.sink, path, span: value.span(), entries, hidden: None })
            }
            _ => self.wrong_type(&path, value, example),
        }
    }

    /// Returns the table under `key` as a JSON object, if it is there and is one; `example` shows how to
    /// write it.
    pub fn inline_json(
        &self,
        key: &str,
        example: &str,
    ) -> Option<serde_json::Map<String, serde_json::Value>> {
        let table = self.table_like(key, example)?;
        value::object(table.entries).map_err(|refused| table.location().refuse(refused)).ok()
    }

    /// Returns the tables in the array under `key`; none if it is missing.
    pub fn tables(&self, key: &str) -> Vec<DocumentTable<'a>> {
        let Some((path, value)) = self.get(key) else { return Vec::new() };
        let expected = format!("an array of tables: [[{}]]", self.child(key));
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type::<()>(&path, value, &expected);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match item.get_ref() {
                DeValue::Table(entries) => {
                    tables.push(DocumentTable {
                        sink: self.sink,
                        path,
                        span: item.span(),
                        entries,
                        hidden: None,
                    });
                }
                _ => drop(self.wrong_type::<()>(&path, item, &expected)),
            }
        }
        tables
    }

    /// Returns every key of the table with its text.
    pub fn each_text(&self) -> Vec<(SpannedItem<'a, &'a str>, SpannedItem<'a, &'a str>)> {
        let each = self.entries.iter().filter_map(|(key, value)| {
            let name: &str = key.get_ref();
            let path = self.child(name);
            let name = SpannedItem { sink: self.sink, path: path.clone(), span: key.span(), value: name };
            Some((name, self.as_text(path, value)?))
        });
        each.collect()
    }

    /// Returns every key of the table with the table under it.
    pub fn each_table(&self) -> Vec<(SpannedItem<'a, &'a str>, DocumentTable<'a>)> {
        let each = self.entries.keys().filter_map(|key| {
            let name: &str = key.get_ref();
            let path = self.child(name);
            let located = SpannedItem { sink: self.sink, path, span: key.span(), value: name };
            Some((located, self.table(name)?))
        });
        each.collect()
    }

    /// Returns the same table for a reader that does not know `key`, which another reader handles.
    pub fn ignoring(&self, key: &'a str) -> Self {
        let Self { sink, ref path, ref span, entries, .. } = *self;
        Self { sink, path: path.clone(), span: span.clone(), entries, hidden: Some(key) }
    }

    /// Returns whether `key` is there, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns whether `key` is the only key.
    pub fn has_only(&self, key: &str) -> bool {
        self.has(key) && self.entries.len() == 1
    }

    /// Returns the place of the value under `key`, whatever its type.
    pub fn location_of(&self, key: &str) -> Option<SpannedItem<'a, ()>> {
        let (path, value) = self.get(key)?;
        Some(self.located(path, value, ()))
    }

    /// Returns the place of the table itself, for problems of the whole table.
    pub fn location(&self) -> SpannedItem<'a, ()> {
        SpannedItem { sink: self.sink, path: self.path.clone(), span: self.span.clone(), value: () }
    }

    /// Returns a place of the file outside the table.
    pub fn location_at(&self, span: Range<usize>) -> SpannedItem<'a, ()> {
        SpannedItem { sink: self.sink, path: String::new(), span, value: () }
    }

    pub(super) fn get(&self, key: &str) -> Option<(String, &'a Spanned<DeValue<'a>>)> {
        self.entries.get(key).map(|value| (self.child(key), value))
    }

    fn child(&self, key: &str) -> String {
        let part = path_part(key);
        if self.path.is_empty() { part } else { format!("{}.{part}", self.path) }
    }

    fn located<T>(&self, path: String, at: &Spanned<DeValue<'_>>, value: T) -> SpannedItem<'a, T> {
        SpannedItem { sink: self.sink, path, span: at.span(), value }
    }

    fn as_text(&self, path: String, value: &'a Spanned<DeValue<'a>>) -> Option<SpannedItem<'a, &'a str>> {
        match value.get_ref() {
            DeValue::String(text) => Some(self.located(path, value, text.as_ref())),
            _ => self.wrong_type(&path, value, "a string in double quotes"),
        }
    }

    fn wrong_type<T>(&self, path: &str, value: &Spanned<DeValue<'_>>, expected: &str) -> Option<T> {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let refused = InvalidValue::new(format!("this is {found}"), format!("write {expected}"));
        self.sink.report(value.span(), path, refused);
        None
    }
}
