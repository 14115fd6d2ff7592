//! Takes a TOML text apart, value by value, and notes what is wrong with each and where.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use jiff::Timestamp;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_parser::lexer::TokenKind;

use super::as_json;
use super::problem::{DocumentError, Problem, Refused, quoted};
use crate::failure::safe_line;

/// Longest document, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// Problems that are kept; who has more has other worries.
pub(super) const MAX_PROBLEMS: usize = 50;

/// Deepest nesting of brackets, and most parts of a dotted key: documents here need 4.
const MAX_DEPTH: usize = 16;

/// Reads the document `text`, called `label` in problems: `build` takes the root table apart and
/// returns `None` only where it has reported why.
///
/// # Errors
/// Everything that was reported, or what is wrong with the TOML itself.
pub fn read<T>(
    label: &str,
    text: &str,
    build: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<T, DocumentError> {
    read_part(label, text, text, build)
}

/// The same of a document that is the beginning of a file: `text` is TOML of which every byte stands where it stands
/// in `whole`, which problems are shown in.
///
/// # Errors
/// As [`read`].
pub fn read_part<T>(
    label: &str,
    whole: &str,
    text: &str,
    build: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Result<T, DocumentError> {
    let label = safe_line(label, 200);
    let sink = Sink { file: label, text: whole, problems: RefCell::default() };
    let refused = || {
        let shown = if whole.len() > MAX_BYTES { "" } else { whole };
        DocumentError::new(shown, sink.problems.take())
    };
    if let Some((span, problem)) = not_a_document(text) {
        sink.report(span, "", problem);
        return Err(refused());
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // One error a line: the parser goes on after a mistake, and what follows it there is an echo.
        let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut seen = BTreeSet::new();
        for error in &errors {
            let span = sink.at_char(error.span().unwrap_or_default());
            if seen.len() < MAX_PROBLEMS && seen.insert(line_ends.partition_point(|end| *end < span.start)) {
                let (key, problem) = syntax(error.message(), text.get(span.clone()).unwrap_or_default());
                sink.report(span, &key, problem);
            }
        }
        return Err(refused());
    }
    let table = Table { sink: &sink, path: String::new(), span: 0..0, entries: root.get_ref(), hidden: None };
    match build(&table) {
        Some(value) if sink.problems.borrow().is_empty() => Ok(value),
        _ => {
            if sink.problems.borrow().is_empty() {
                sink.report(0..0, "", Refused::new("the document is not complete", "add what is missing"));
            }
            Err(refused())
        }
    }
}

/// The line, from 1, on which the key at the end of `path` stands in `text`, a document that was read before.
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

/// What no TOML parser needs to look at.
fn not_a_document(text: &str) -> Option<(Range<usize>, Refused)> {
    if text.len() > MAX_BYTES {
        let message = format!("the document has {} bytes, more than 1 MiB", text.len());
        return Some((0..0, Refused::new(message, "shorten it")));
    }
    if text.starts_with('\u{feff}') {
        return Some((
            0..0,
            Refused::new("the document starts with a byte order mark", "save it as UTF-8 without BOM"),
        ));
    }
    if let Some(at) = text.find('\0') {
        return Some((at..at + 1, Refused::new("the document holds a NUL byte", "remove it")));
    }
    too_deep(text).map(|at| {
        let message = format!("values are nested more than {MAX_DEPTH} deep");
        (at..at, Refused::new(message, "flatten them"))
    })
}

/// Where brackets or dots go deeper than [`MAX_DEPTH`]: a parsed document is taken apart, and dropped,
/// by recursion, and the parser's own bounds on brackets and on dots multiply.
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

/// A syntax error of the TOML parser, in our words, with the key where the text at hand is one.
fn syntax(message: &str, at: &str) -> (String, Refused) {
    if message.starts_with("duplicate key") {
        return (path_part(at), Refused::new("this key stands twice in its table", "keep one of the two"));
    }
    let fix = if message.starts_with("string values must be quoted") {
        "put the value in double quotes, or write it as the type it is to have"
    } else {
        "correct the TOML here"
    };
    (String::new(), Refused::new(format!("this is not TOML: {message}"), fix))
}

/// A name as a part of a dotted key.
pub(super) fn path_part(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { safe_line(name, 80) } else { quoted(name) }
}

pub(super) struct Sink<'t> {
    file: String,
    text: &'t str,
    problems: RefCell<Vec<Problem>>,
}

impl Sink<'_> {
    fn report(&self, span: Range<usize>, key: &str, refused: Refused) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MAX_PROBLEMS {
            let span = self.at_char(span);
            let problem = Problem::new(&self.file, self.text, span, key, &refused);
            // What is read twice is not wrong twice.
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }

    /// `span` moved to character boundaries inside the text.
    fn at_char(&self, span: Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start);
        start..self.text.ceil_char_boundary(span.end.max(start))
    }
}

/// A value with its key and its place.
#[derive(Clone)]
pub struct Located<'a, T> {
    pub(super) sink: &'a Sink<'a>,
    pub(super) path: String,
    pub(super) span: Range<usize>,
    /// The value.
    pub value: T,
}

impl<'a, T> Located<'a, T> {
    /// Reports that this value is not acceptable.
    pub fn refuse(&self, refused: Refused) {
        self.sink.report(self.span.clone(), &self.path, refused);
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.sink.text.get(..self.span.start).unwrap_or_default().matches('\n').count() + 1
    }

    /// The same place with another value.
    pub fn with<U>(self, value: U) -> Located<'a, U> {
        Located { sink: self.sink, path: self.path, span: self.span, value }
    }

    /// What `parse` makes of the value; reports the refusal otherwise.
    pub fn parse<U>(&self, parse: impl FnOnce(&T) -> Result<U, Refused>) -> Option<U> {
        parse(&self.value).map_err(|error| self.refuse(error)).ok()
    }
}

/// A table of the document.
pub struct Table<'a> {
    pub(super) sink: &'a Sink<'a>,
    path: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    /// A key that is somebody else's.
    hidden: Option<&'a str>,
}

impl<'a> Table<'a> {
    /// Reports every key that is not in `allowed`, with the nearest one that is.
    pub fn only(&self, allowed: &[&str]) {
        for key in self.entries.keys() {
            let name: &str = key.get_ref();
            if allowed.contains(&name) || self.hidden == Some(name) {
                continue;
            }
            let list = allowed.join(", ");
            let fix = match crate::spelling::nearest(name, allowed.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? (allowed: {list})"),
                None => format!("remove it (allowed: {list})"),
            };
            let message = "this key is not known here";
            self.sink.report(key.span(), &self.child(name), Refused::new(message, fix));
        }
    }

    /// Reports that `key` is missing.
    pub fn missing(&self, key: &str, example: &str) {
        let fix = format!("add {example}");
        self.sink.report(self.span.clone(), &self.child(key), Refused::new("this key is missing", fix));
    }

    /// The text under `key`, if it is there and is text.
    pub fn text(&self, key: &str) -> Option<Located<'a, &'a str>> {
        let (path, value) = self.get(key)?;
        self.as_text(path, value)
    }

    /// The text under `key`; reports when it is missing.
    pub fn required_text(&self, key: &str, example: &str) -> Option<Located<'a, &'a str>> {
        if !self.entries.contains_key(key) {
            self.missing(key, example);
        }
        self.text(key)
    }

    /// The whole number of at most 64 bits under `key`, if it is there and is one.
    pub fn whole(&self, key: &str) -> Option<Located<'a, u64>> {
        let (path, value) = self.get(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            return self.wrong_type(&path, value, "a whole number without quotes");
        };
        let digits: String = integer.as_str().chars().filter(|c| *c != '_').collect();
        let located = self.located(path, value, ());
        match u64::from_str_radix(&digits, integer.radix()) {
            Ok(number) => Some(located.with(number)),
            Err(_) => {
                let message = format!("{} is not a whole number from 0 to 2^64-1", safe_line(&digits, 40));
                located.refuse(Refused::new(message, "write a number in that range"));
                None
            }
        }
    }

    /// The number under `key`, whole or not, if it is there and is one that counts something.
    pub fn number(&self, key: &str) -> Option<Located<'a, f64>> {
        let (path, value) = self.get(key)?;
        let digits = |text: &str| text.chars().filter(|c| *c != '_').collect::<String>();
        let number = match value.get_ref() {
            DeValue::Float(float) => digits(float.as_str()).parse::<f64>().ok(),
            DeValue::Integer(whole) if whole.radix() == 10 => digits(whole.as_str()).parse::<f64>().ok(),
            _ => return self.wrong_type(&path, value, "a number without quotes, like 0.2"),
        };
        let located = self.located(path, value, ());
        match number.filter(|number| number.is_finite()) {
            Some(number) => Some(located.with(number)),
            None => {
                located.refuse(Refused::new("this counts nothing", "write a number like 0.2"));
                None
            }
        }
    }

    /// The truth value under `key`, if it is there and is one.
    pub fn flag(&self, key: &str) -> Option<bool> {
        let (path, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.wrong_type(&path, value, "true or false"),
        }
    }

    /// The moment under `key`, if it is there and is one: RFC 3339, quoted or bare, with an offset.
    pub fn moment(&self, key: &str) -> Option<Located<'a, Timestamp>> {
        let (path, value) = self.get(key)?;
        let text = match value.get_ref() {
            DeValue::Datetime(datetime) => datetime.to_string(),
            DeValue::String(text) => text.to_string(),
            _ => return self.wrong_type(&path, value, "a date and time like 2027-01-31T00:00:00Z"),
        };
        let located = self.located(path, value, ());
        match text.parse::<Timestamp>() {
            Ok(moment) => Some(located.with(moment)),
            Err(_) => {
                let message = format!("{} is not a date and time with an offset", quoted(&text));
                located.refuse(Refused::new(message, "write it like 2027-01-31T00:00:00Z"));
                None
            }
        }
    }

    /// The texts in the array under `key`; none if it is not there.
    pub fn texts(&self, key: &str) -> Vec<Located<'a, &'a str>> {
        let Some((path, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type::<()>(&path, value, "an array of strings, like [\"...\"]");
            return Vec::new();
        };
        let indexed = array.iter().enumerate();
        indexed.filter_map(|(index, item)| self.as_text(format!("{path}[{index}]"), item)).collect()
    }

    /// The table under `key`, if it is there and is one.
    pub fn table(&self, key: &str) -> Option<Table<'a>> {
        self.table_like(key, &format!("a table: [{}]", self.child(key)))
    }

    fn table_like(&self, key: &str, example: &str) -> Option<Table<'a>> {
        let (path, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => {
                Some(Table { sink: self.sink, path, span: value.span(), entries, hidden: None })
            }
            _ => self.wrong_type(&path, value, example),
        }
    }

    /// The table under `key` as a JSON object, if it is there and is one; `example` shows how to write it.
    pub fn inline_json(
        &self,
        key: &str,
        example: &str,
    ) -> Option<serde_json::Map<String, serde_json::Value>> {
        let table = self.table_like(key, example)?;
        as_json::object(table.entries).map_err(|refused| table.here().refuse(refused)).ok()
    }

    /// The tables in the array under `key`; none if it is not there.
    pub fn tables(&self, key: &str) -> Vec<Table<'a>> {
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
                    tables.push(Table { sink: self.sink, path, span: item.span(), entries, hidden: None });
                }
                _ => drop(self.wrong_type::<()>(&path, item, &expected)),
            }
        }
        tables
    }

    /// Every key of the table, with its text.
    pub fn each_text(&self) -> Vec<(Located<'a, &'a str>, Located<'a, &'a str>)> {
        let each = self.entries.iter().filter_map(|(key, value)| {
            let name: &str = key.get_ref();
            let path = self.child(name);
            let name = Located { sink: self.sink, path: path.clone(), span: key.span(), value: name };
            Some((name, self.as_text(path, value)?))
        });
        each.collect()
    }

    /// Every key of the table, with the table under it.
    pub fn each_table(&self) -> Vec<(Located<'a, &'a str>, Table<'a>)> {
        let each = self.entries.keys().filter_map(|key| {
            let name: &str = key.get_ref();
            let path = self.child(name);
            let located = Located { sink: self.sink, path, span: key.span(), value: name };
            Some((located, self.table(name)?))
        });
        each.collect()
    }

    /// The same table for a reader that does not know `key`, which somebody else reads.
    pub fn without(&self, key: &'a str) -> Self {
        let Self { sink, ref path, ref span, entries, .. } = *self;
        Self { sink, path: path.clone(), span: span.clone(), entries, hidden: Some(key) }
    }

    /// Whether `key` is there, whatever it holds.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether `key` is there and nothing else.
    pub fn has_only(&self, key: &str) -> bool {
        self.has(key) && self.entries.len() == 1
    }

    /// The place of what stands under `key`, whatever it is.
    pub fn place(&self, key: &str) -> Option<Located<'a, ()>> {
        let (path, value) = self.get(key)?;
        Some(self.located(path, value, ()))
    }

    /// The place of the table itself, for what is wrong with the whole of it.
    pub fn here(&self) -> Located<'a, ()> {
        Located { sink: self.sink, path: self.path.clone(), span: self.span.clone(), value: () }
    }

    /// A place of the file that is no part of the table.
    pub fn elsewhere(&self, span: Range<usize>) -> Located<'a, ()> {
        Located { sink: self.sink, path: String::new(), span, value: () }
    }

    pub(super) fn get(&self, key: &str) -> Option<(String, &'a Spanned<DeValue<'a>>)> {
        self.entries.get(key).map(|value| (self.child(key), value))
    }

    fn child(&self, key: &str) -> String {
        let part = path_part(key);
        if self.path.is_empty() { part } else { format!("{}.{part}", self.path) }
    }

    fn located<T>(&self, path: String, at: &Spanned<DeValue<'_>>, value: T) -> Located<'a, T> {
        Located { sink: self.sink, path, span: at.span(), value }
    }

    fn as_text(&self, path: String, value: &'a Spanned<DeValue<'a>>) -> Option<Located<'a, &'a str>> {
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
        let refused = Refused::new(format!("this is {found}"), format!("write {expected}"));
        self.sink.report(value.span(), path, refused);
        None
    }
}
