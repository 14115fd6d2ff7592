//! Arguments that do not fit their types: where, and what was expected, in words.

use std::fmt;

use cofferdam_model::package::Name;

use super::image::Refused;
use super::layout::{Case, Kind};
use super::scalars::Token;

/// An argument that does not fit its type: where, and what was expected. It never repeats the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentError {
    /// Steps from the inside out.
    path: Vec<String>,
    expected: String,
}

impl ArgumentError {
    pub(super) fn new(expected: impl Into<String>) -> Self {
        Self { path: Vec::new(), expected: expected.into() }
    }

    /// A value of another kind than the type wants.
    pub(super) fn mismatch(expected: &Kind, got: Token<'_>) -> Self {
        Self::got(wanted(expected), got)
    }

    pub(super) fn got(expected: impl fmt::Display, got: Token<'_>) -> Self {
        Self::new(format!("expected {expected}, got {}", got.words()))
    }

    /// Text that is not JSON. What serde_json says of it is a place and no part of the text.
    pub(super) fn syntax(error: &serde_json::Error) -> Self {
        Self::new(format!("not JSON: {error}"))
    }

    /// Where it is, one step further out.
    pub(super) fn step(&mut self, step: String) {
        self.path.push(step);
    }

    /// The steps to it from inside the argument that it is in, and what was expected.
    pub(super) fn into_parts(self) -> (Vec<String>, String) {
        let inside = self.path.len().saturating_sub(1);
        (self.path.into_iter().take(inside).rev().collect(), self.expected)
    }

    pub(super) fn under(mut self, step: impl Into<String>) -> Self {
        self.step(step.into());
        self
    }
}

impl From<Refused> for ArgumentError {
    fn from(refused: Refused) -> Self {
        Self::new(match refused {
            Refused::TooLong => "takes more than 64 MiB of the connector's memory",
            Refused::NotBase64 => "expected base64 text (RFC 4648, padded)",
        })
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("args")?;
        self.path.iter().rev().try_for_each(|step| f.write_str(step))?;
        write!(f, ": {}", self.expected)
    }
}

pub(super) fn unknown_field<'n>(
    unknown: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> ArgumentError {
    let near = cofferdam_core::spelling::nearest(unknown, names.clone())
        .map(|near| format!("; did you mean `{near}`?"));
    let known = names.collect::<Vec<_>>();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    let unknown = cofferdam_core::failure::safe_line(unknown, 64);
    let near = near.unwrap_or(".".into());
    ArgumentError::new(format!("there is no such field{near} The fields are: {known}"))
        .under(format!(".{unknown}"))
}

/// What a type wants, in one phrase without its inner fields.
pub(super) fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "true or false".into(),
        Kind::String => "a string".into(),
        Kind::Char => "a string of exactly one character".into(),
        Kind::Bytes => "base64 text".into(),
        Kind::Signed(bits) => format!("a whole number (s{bits})"),
        Kind::Unsigned(bits) => format!("a whole number (u{bits})"),
        Kind::Float(_) => "a number".into(),
        Kind::List(_) => "an array".into(),
        Kind::Flags(_) => "an array of flag names".into(),
        Kind::Tuple(items) => format!("an array of {}", items.len()),
        Kind::Option(inner) => format!("null or {}", wanted(&inner.kind)),
        Kind::Result(..) => "{\"ok\": ..} or {\"err\": ..}".into(),
        Kind::Record(..) => "an object".into(),
        Kind::Variant(cases) => wanted_cases(cases),
        Kind::Enum(names) => {
            format!("one of {}", names.iter().map(Name::json).collect::<Vec<_>>().join(", "))
        }
    }
}

pub(super) fn wanted_cases(cases: &[Case]) -> String {
    let case = |case: &Case| match case.payload {
        Some(_) => format!("{{\"{}\": ..}}", case.name.json()),
        None => format!("\"{}\"", case.name.json()),
    };
    format!("one of {}", cases.iter().map(case).collect::<Vec<_>>().join(", "))
}
