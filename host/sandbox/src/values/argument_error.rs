//! Arguments that do not fit their types: the path, and the expected type in words.

use std::fmt;

use cofferdam_model::package::WitName;

use super::image::ImageRefusal;
use super::layout::{LayoutCase, LayoutKind};
use super::scalars::ScalarToken;

/// An argument that does not fit its type: the path, and the expected type. It never repeats the value.
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
    pub(super) fn mismatch(expected: &LayoutKind, got: ScalarToken<'_>) -> Self {
        Self::got(wanted(expected), got)
    }

    pub(super) fn got(expected: impl fmt::Display, got: ScalarToken<'_>) -> Self {
        Self::new(format!("expected {expected}, got {}", got.words()))
    }

    /// Text that is not JSON. serde_json's message contains a position and no part of the text.
    pub(super) fn syntax(error: &serde_json::Error) -> Self {
        Self::new(format!("not JSON: {error}"))
    }

    /// Adds a step to the path, from the inside out.
    pub(super) fn step(&mut self, step: String) {
        self.path.push(step);
    }

    /// Returns the path inside the argument, and the expected type.
    pub(super) fn into_parts(self) -> (Vec<String>, String) {
        let inside = self.path.len().saturating_sub(1);
        (self.path.into_iter().take(inside).rev().collect(), self.expected)
    }

    pub(super) fn under(mut self, step: impl Into<String>) -> Self {
        self.step(step.into());
        self
    }
}

impl From<ImageRefusal> for ArgumentError {
    fn from(refused: ImageRefusal) -> Self {
        Self::new(match refused {
            ImageRefusal::TooLong => "takes more than 64 MiB of the connector's memory",
            ImageRefusal::NotBase64 => "expected base64 text (RFC 4648, padded)",
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
    let near = cofferdam_core::suggest::nearest(unknown, names.clone())
        .map(|near| format!("; did you mean `{near}`?"));
    let known = names.collect::<Vec<_>>();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    let unknown = cofferdam_core::failure::sanitize_line(unknown, 64);
    let near = near.unwrap_or(".".into());
    ArgumentError::new(format!("there is no such field{near} The fields are: {known}"))
        .under(format!(".{unknown}"))
}

/// Describes the type in one phrase, without its inner fields.
pub(super) fn wanted(kind: &LayoutKind) -> String {
    match kind {
        LayoutKind::Bool => "true or false".into(),
        LayoutKind::String => "a string".into(),
        LayoutKind::Char => "a string of exactly one character".into(),
        LayoutKind::Bytes => "base64 text".into(),
        LayoutKind::Signed(bits) => format!("a whole number (s{bits})"),
        LayoutKind::Unsigned(bits) => format!("a whole number (u{bits})"),
        LayoutKind::Float(_) => "a number".into(),
        LayoutKind::List(_) => "an array".into(),
        LayoutKind::Flags(_) => "an array of flag names".into(),
        LayoutKind::Tuple(items) => format!("an array of {}", items.len()),
        LayoutKind::Option(inner) => format!("null or {}", wanted(&inner.kind)),
        LayoutKind::Result(..) => "{\"ok\": ..} or {\"err\": ..}".into(),
        LayoutKind::Record(..) => "an object".into(),
        LayoutKind::Variant(cases) => wanted_cases(cases),
        LayoutKind::Enum(names) => {
            format!("one of {}", names.iter().map(WitName::json).collect::<Vec<_>>().join(", "))
        }
    }
}

pub(super) fn wanted_cases(cases: &[LayoutCase]) -> String {
    let case = |case: &LayoutCase| match case.payload {
        Some(_) => format!("{{\"{}\": ..}}", case.name.json()),
        None => format!("\"{}\"", case.name.json()),
    };
    format!("one of {}", cases.iter().map(case).collect::<Vec<_>>().join(", "))
}
