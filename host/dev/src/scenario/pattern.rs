//! Patterns for texts and JSON values: what they are written like, and how a value differs from one.

use std::fmt::Write as _;

use cofferdam_core::document::{InvalidValue, SpannedValue, quoted};
use cofferdam_core::failure::sanitize_line;
use regex::Regex;
use serde::Serialize;
use serde_json::{Map, Value};

/// The key of an object, and the last item of a list, that allow anything besides what is listed.
pub(crate) const REST: &str = "...";

/// The placeholder for JSON's `null`, which TOML does not have.
pub(crate) const NULL: &str = "{{null}}";

/// The longest expected or actual value in a difference, in characters.
const SHOWN_CHARS: usize = 200;

/// The placeholders of patterns, each with its meaning. `{{regex:...}}` takes the rest of its braces as a regular
/// expression.
pub(crate) const PLACEHOLDERS: [(&str, &str); 8] = [
    ("{{any}}", "any value"),
    ("{{string}}", "any text"),
    ("{{number}}", "any number; in a text, decimal digits"),
    ("{{boolean}}", "`true` or `false`"),
    ("{{uuid}}", "a UUID in its usual form"),
    ("{{null}}", "JSON's `null`, which TOML does not have"),
    ("{{regex:...}}", "a text that the regular expression matches as a whole"),
    (
        "{{key}}",
        "the call's idempotency key, alone or with the label that the SDK puts behind it; in a longer text, the key",
    ),
];

/// One way in which a value is not as expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The place, like `json.labels[0]`.
    pub path: String,
    /// The expected value.
    pub expected: String,
    /// The actual value.
    pub actual: String,
}

impl Difference {
    pub(crate) fn new(path: impl Into<String>, expected: impl ToString, actual: impl ToString) -> Self {
        let shown = |text: String| sanitize_line(&text, SHOWN_CHARS);
        Self { path: path.into(), expected: shown(expected.to_string()), actual: shown(actual.to_string()) }
    }
}

/// A part of a text pattern.
#[derive(Debug, Clone)]
enum Segment {
    Literal(String),
    Any,
    Number,
    Boolean,
    Uuid,
    Key,
    Regex(String),
}

/// A pattern for a text, such as the value of a header.
#[derive(Debug, Clone)]
pub struct TextPattern {
    source: String,
    segments: Vec<Segment>,
    /// None if the pattern depends on the call's key.
    compiled: Option<Regex>,
}

const UUID: &str = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

impl TextPattern {
    /// Parses a text, in which placeholders may stand among other characters.
    ///
    /// # Errors
    /// An unknown placeholder, or a regular expression that is none.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            if !before.is_empty() {
                segments.push(Segment::Literal(before.to_owned()));
            }
            // A regular expression may end in braces of its own.
            let close = after.find("}}").map(|at| {
                let more = after.get(at..).unwrap_or_default().bytes().take_while(|b| *b == b'}').count();
                at + more.saturating_sub(2)
            });
            let Some((inner, behind)) = close.and_then(|at| Some((after.get(..at)?, after.get(at + 2..)?)))
            else {
                let message = format!("{} has no end of its placeholder", quoted(text));
                return Err(InvalidValue::new(message, "close it with }}"));
            };
            segments.push(placeholder(inner)?);
            rest = behind;
        }
        if !rest.is_empty() {
            segments.push(Segment::Literal(rest.to_owned()));
        }
        let needs_key = segments.iter().any(|segment| matches!(segment, Segment::Key));
        let pattern = Self { source: text.to_owned(), segments, compiled: None };
        let compiled = pattern.regex(needs_key.then_some("")).map_err(|error| {
            let shown = sanitize_line(&error.to_string(), 300);
            InvalidValue::new(format!("this is not a regular expression: {shown}"), "correct it")
        })?;
        Ok(Self { compiled: (!needs_key).then_some(compiled), ..pattern })
    }

    /// Creates the pattern that only `text` matches.
    pub(crate) fn literal(text: &str) -> Self {
        let segments = vec![Segment::Literal(text.to_owned())];
        Self { source: text.to_owned(), segments, compiled: Regex::new(&anchored(&regex::escape(text))).ok() }
    }

    /// Returns it as it is written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns whether `text` matches, in a call with this idempotency key.
    pub(crate) fn matches(&self, text: &str, key: &str) -> bool {
        match &self.compiled {
            Some(regex) => regex.is_match(text),
            None => self.regex(Some(key)).is_ok_and(|regex| regex.is_match(text)),
        }
    }

    fn regex(&self, key: Option<&str>) -> Result<Regex, regex::Error> {
        let is_alone = self.segments.len() == 1;
        let mut pattern = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => pattern += &regex::escape(text),
                Segment::Any => pattern += ".*",
                Segment::Number => pattern += r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?",
                Segment::Boolean => pattern += "(true|false)",
                Segment::Uuid => pattern += UUID,
                Segment::Key => {
                    let key = regex::escape(key.unwrap_or_default());
                    // Some services want the value in quotes.
                    let part = if is_alone { format!("\"?{key}(:.+?)?\"?") } else { key };
                    pattern += &part;
                }
                Segment::Regex(regex) => {
                    // Writing to a string cannot fail.
                    let _ = write!(pattern, "({regex})");
                }
            }
        }
        Regex::new(&anchored(&pattern))
    }
}

fn anchored(pattern: &str) -> String {
    format!(r"\A(?s:{pattern})\z")
}

fn placeholder(inner: &str) -> Result<Segment, InvalidValue> {
    Ok(match inner {
        "any" | "string" => Segment::Any,
        "number" => Segment::Number,
        "boolean" => Segment::Boolean,
        "uuid" => Segment::Uuid,
        "key" => Segment::Key,
        "null" => {
            return Err(InvalidValue::new(
                "a text is never null",
                "write {{null}} as the whole of a JSON value",
            ));
        }
        other => match other.strip_prefix("regex:") {
            Some(regex) => Segment::Regex(regex.to_owned()),
            None => return Err(unknown(other)),
        },
    })
}

fn unknown(name: &str) -> InvalidValue {
    let names = PLACEHOLDERS.map(|(written, _)| written);
    let list = names.join(", ");
    let near = cofferdam_core::suggest::nearest(name, ["any", "string", "number", "boolean", "uuid", "key"]);
    let fix = match near {
        Some(near) => format!("did you mean {{{{{near}}}}}? (there are: {list})"),
        None => format!("there are: {list}"),
    };
    InvalidValue::new(format!("{} is not a placeholder", quoted(&format!("{{{{{name}}}}}"))), fix)
}

/// A pattern for a JSON value.
#[derive(Debug, Clone)]
pub enum ValuePattern {
    /// Anything.
    Any,
    /// Any text.
    AnyText,
    /// Any number.
    AnyNumber,
    /// A truth value.
    AnyBoolean,
    /// This number, truth value or null.
    Scalar(Value),
    /// A text.
    Text(TextPattern),
    /// A list of these items; `open` if more may follow.
    List { items: Vec<ValuePattern>, open: bool },
    /// An object of these fields; `open` if it may have others.
    Object { fields: Vec<(String, ValuePattern)>, open: bool },
}

impl ValuePattern {
    /// Reads a pattern from a value of a document, and reports what is wrong with it.
    pub(crate) fn read(value: &SpannedValue<'_>) -> Option<Self> {
        match value {
            SpannedValue::Text(text) => text.parse(|text| Self::parse_text(text)),
            SpannedValue::Plain(value) => Some(Self::Scalar(value.value.clone())),
            SpannedValue::List(_, items) => {
                let (open, listed) = match items.split_last() {
                    Some((SpannedValue::Text(text), before)) if text.value == REST => (true, before),
                    _ => (false, items.as_slice()),
                };
                let items: Vec<_> = listed.iter().map(Self::read).collect();
                Some(Self::List { items: items.into_iter().collect::<Option<_>>()?, open })
            }
            SpannedValue::Table(_, fields) => {
                let open = fields.iter().any(|(name, _)| name.value == REST);
                let fields: Vec<_> = fields
                    .iter()
                    .filter(|(name, _)| name.value != REST)
                    .map(|(name, field)| Some((name.value.to_owned(), Self::read(field)?)))
                    .collect();
                Some(Self::Object { fields: fields.into_iter().collect::<Option<_>>()?, open })
            }
        }
    }

    /// Parses a text of a value: a placeholder for a value of any type, or a text.
    pub(crate) fn parse_text(text: &str) -> Result<Self, InvalidValue> {
        Ok(match text {
            "{{any}}" => Self::Any,
            "{{string}}" => Self::AnyText,
            "{{number}}" => Self::AnyNumber,
            "{{boolean}}" => Self::AnyBoolean,
            NULL => Self::Scalar(Value::Null),
            text => Self::Text(TextPattern::parse(text)?),
        })
    }

    /// Adds the ways in which `actual` is not as expected; `path` is its place.
    pub(crate) fn compare(&self, actual: &Value, path: &str, key: &str, found: &mut Vec<Difference>) {
        let mut differ = || found.push(Difference::new(path, self.shown(), actual));
        match (self, actual) {
            (Self::Any, _)
            | (Self::AnyText, Value::String(_))
            | (Self::AnyNumber, Value::Number(_))
            | (Self::AnyBoolean, Value::Bool(_)) => {}
            (Self::Scalar(expected), actual) if same_scalar(expected, actual) => {}
            (Self::Text(pattern), Value::String(text)) if pattern.matches(text, key) => {}
            (Self::List { items, open }, Value::Array(actual)) => {
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    match actual.get(at) {
                        Some(actual) => item.compare(actual, &path, key, found),
                        None => found.push(Difference::new(path, item.shown(), "nothing")),
                    }
                }
                for (at, more) in actual.iter().enumerate().skip(items.len()).filter(|_| !open) {
                    found.push(Difference::new(format!("{path}[{at}]"), "nothing", more));
                }
            }
            (Self::Object { fields, open }, Value::Object(actual)) => {
                for (name, field) in fields {
                    let path = format!("{path}.{name}");
                    match actual.get(name) {
                        Some(actual) => field.compare(actual, &path, key, found),
                        None => found.push(Difference::new(path, field.shown(), "nothing")),
                    }
                }
                let known = |name: &String| fields.iter().any(|(field, _)| field == name);
                for (name, more) in actual.iter().filter(|(name, _)| !open && !known(name)) {
                    found.push(Difference::new(format!("{path}.{name}"), "nothing", more));
                }
            }
            _ => differ(),
        }
    }

    /// Returns it as a JSON text, with its placeholders.
    pub(crate) fn shown(&self) -> String {
        self.as_json().to_string()
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Any => "{{any}}".into(),
            Self::AnyText => "{{string}}".into(),
            Self::AnyNumber => "{{number}}".into(),
            Self::AnyBoolean => "{{boolean}}".into(),
            Self::Scalar(value) => value.clone(),
            Self::Text(pattern) => pattern.source.clone().into(),
            Self::List { items, open } => {
                let rest = open.then(|| REST.into());
                items.iter().map(Self::as_json).chain(rest).collect()
            }
            Self::Object { fields, open } => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), field.as_json()));
                Value::Object(fields.chain(open.then(|| (REST.to_owned(), "{{any}}".into()))).collect())
            }
        }
    }
}

/// Compares numbers by their amount: TOML has `2` and `2.0`, and JSON writes either.
fn same_scalar(expected: &Value, actual: &Value) -> bool {
    expected == actual
        || match (expected, actual) {
            (Value::Number(one), Value::Number(other)) => {
                !(one.is_u64() && other.is_u64()) && one.as_f64() == other.as_f64()
            }
            _ => false,
        }
}

/// Reads a JSON value that is sent as it is written: only `{{null}}` has a meaning in it.
pub(crate) fn literal(value: &SpannedValue<'_>) -> Option<Value> {
    match value {
        SpannedValue::Text(text) if text.value == NULL => Some(Value::Null),
        SpannedValue::Text(text) => text.parse(|text| match text.contains("{{") {
            true => Err(InvalidValue::new(
                "only {{null}} may stand here: this value is sent, not compared",
                "write the value itself",
            )),
            false => Ok((*text).into()),
        }),
        SpannedValue::Plain(value) => Some(value.value.clone()),
        SpannedValue::List(_, items) => {
            let items: Vec<_> = items.iter().map(literal).collect();
            Some(Value::Array(items.into_iter().collect::<Option<_>>()?))
        }
        SpannedValue::Table(_, fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, field)| Some((name.value.to_owned(), literal(field)?))).collect();
            Some(Value::Object(fields.into_iter().collect::<Option<Map<_, _>>>()?))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use serde_json::json;

    use super::*;

    fn pattern(json: &Value) -> ValuePattern {
        let text = format!("v = {}", toml_inline(json));
        cofferdam_core::document::read("test", &text, |root| ValuePattern::read(&root.node("v")?)).unwrap()
    }

    fn toml_inline(value: &Value) -> String {
        match value {
            Value::Object(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{:?} = {}", name, toml_inline(value)))
                    .collect();
                format!("{{ {} }}", fields.join(", "))
            }
            Value::Array(items) => {
                format!("[{}]", items.iter().map(toml_inline).collect::<Vec<_>>().join(", "))
            }
            other => other.to_string(),
        }
    }

    fn differences(expected: &Value, actual: &Value) -> Vec<String> {
        let mut found = Vec::new();
        pattern(expected).compare(actual, "json", "K1", &mut found);
        found.iter().map(|it| format!("{}: {} / {}", it.path, it.expected, it.actual)).collect()
    }

    #[test]
    fn placeholders_match_values_of_their_type() {
        for (expected, actual) in [
            (json!("{{any}}"), json!({"a": [null]})),
            (json!("{{string}}"), json!("")),
            (json!("{{number}}"), json!(-1.5)),
            (json!("{{boolean}}"), json!(false)),
            (json!("{{null}}"), json!(null)),
            (json!("{{uuid}}"), json!("01890000-0000-7000-8000-000000000000")),
            (json!("{{regex:[a-z]{2,3}}}"), json!("abc")),
            (json!("{{key}}"), json!("K1")),
            (json!("{{key}}"), json!("K1:create")),
            (json!("{{key}}"), json!("\"K1:create\"")),
            (json!("key {{key}}!"), json!("key K1!")),
            (json!("/v1/{{number}}/{{any}}"), json!("/v1/17/x\ny")),
            (json!(2), json!(2.0)),
            (json!({"a": 1, "...": "{{any}}"}), json!({"a": 1, "b": 2})),
            (json!([1, "..."]), json!([1, 2, 3])),
        ] {
            assert_eq!(differences(&expected, &actual), Vec::<String>::new(), "{expected} {actual}");
        }
        for (expected, actual) in [
            (json!("{{string}}"), json!(1)),
            (json!("{{number}}"), json!("1")),
            (json!("{{null}}"), json!(0)),
            (json!("{{uuid}}"), json!("01890000")),
            (json!("{{regex:[a-z]}}"), json!("ab")),
            (json!("{{key}}"), json!("K10")),
            (json!("{{key}}"), json!("K1:")),
            (json!("a.c"), json!("abc")),
            (json!(18_446_744_073_709_551_615_u64), json!(18_446_744_073_709_551_614_u64)),
        ] {
            assert_eq!(differences(&expected, &actual).len(), 1, "{expected} {actual}");
        }
    }

    #[test]
    fn differences_name_their_place() {
        let expected = json!({"title": "x", "labels": ["a", "b"], "n": 1});
        let actual = json!({"title": "y", "labels": ["a"], "m": 2});
        let mut found = differences(&expected, &actual);
        found.sort();
        assert_eq!(
            found,
            [
                "json.labels[1]: \"b\" / nothing",
                "json.m: nothing / 2",
                "json.n: 1 / nothing",
                "json.title: \"x\" / \"y\"",
            ]
        );
    }

    #[test]
    fn unknown_placeholders_are_refused_with_the_nearest() {
        for (text, says) in [
            ("{{uid}}", "did you mean {{uuid}}?"),
            ("{{whatever}}", "there are: {{any}}"),
            ("{{any", "close it"),
            ("{{regex:(}}", "not a regular expression"),
            ("a {{null}}", "whole of a JSON value"),
        ] {
            let error = ValuePattern::parse_text(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
