//! The output of the walk over the caller's arguments (`deserialize.rs`), which ends before a guest exists: an image
//! of the values, or the first error.
//!
//! One walk serves JSON text and a `serde_json::Value`: both are serde's deserializers.

use std::fmt;

use cofferdam_model::package::WitName;
use serde::de::{DeserializeSeed, Error};
use serde_json::Value;

use super::abi_buffer::StagingBuffer;
use super::abi_buffer::{AbiBufferError, AbiBufferWriter, MalformedBuffer};
use super::deserialize::ScalarToken;
use super::deserialize::ValueCursor;
use super::layout::{LayoutCase, LayoutKind, OperationLayout, SLOT, flatten};
use crate::adapter::BASE;

/// An operation's arguments as an image, checked against its types: the flat values, then the parameters as a
/// record, then the data that they point to.
pub struct EncodedArguments {
    pub(super) abi_buffer: Vec<u8>,
}

/// The output, and the first error: serde's own errors have no room for a path.
pub(super) struct ArgumentEncoder {
    pub(super) slots: StagingBuffer,
    refused: Option<ArgumentError>,
}

impl ArgumentEncoder {
    /// Stores the error, and returns the one that ends the walk.
    pub(super) fn refuse<E: Error>(&mut self, error: impl Into<ArgumentError>) -> E {
        self.refused = Some(error.into());
        E::custom("refused")
    }

    /// Adds a step to the path of a refused value, on the way out. Text that is not JSON has no path.
    pub(super) fn step(&mut self, step: impl FnOnce() -> String) {
        if let Some(error) = &mut self.refused {
            error.step(step());
        }
    }
}

/// Turns the arguments object into the image of the parameters.
pub(super) fn from_value(layout: &OperationLayout, args: &Value) -> Result<EncodedArguments, ArgumentError> {
    arguments(layout, 0, |place| place.deserialize(args))
}

/// Turns JSON text into the image of the parameters, with only white space allowed after it.
pub(super) fn from_text(layout: &OperationLayout, args: &str) -> Result<EncodedArguments, ArgumentError> {
    let mut text = serde_json::Deserializer::from_str(args);
    arguments(layout, args.len(), |place| {
        place.deserialize(&mut text)?;
        text.end()
    })
}

fn arguments<'l>(
    layout: &'l OperationLayout,
    bytes: usize,
    walk: impl FnOnce(ValueCursor<'_, 'l>) -> Result<(), serde_json::Error>,
) -> Result<EncodedArguments, ArgumentError> {
    let params = &layout.params;
    let fixed = layout.params_at().saturating_add(params.size as usize);
    let mut image = AbiBufferWriter::with_capacity(BASE, fixed.saturating_add(bytes));
    image.reserve(layout.params_at(), 8)?;
    let params_at = image.reserve(params.size as usize, params.align)?;
    let mut encoder = ArgumentEncoder { slots: StagingBuffer::new(image), refused: None };
    let at = encoder.slots.push(params.size)?;
    walk(ValueCursor::new(&mut encoder, params, at))
        .map_err(|error| encoder.refused.take().unwrap_or_else(|| ArgumentError::syntax(&error)))?;
    let mut image = encoder.slots.finish(params_at);
    put_flat(layout, &mut image, params_at);
    Ok(EncodedArguments { abi_buffer: image.finish() })
}

/// Writes the flat values of the parameters in front of them.
fn put_flat(layout: &OperationLayout, image: &mut AbiBufferWriter, at: usize) {
    let slots = layout.flat_params() as usize;
    if slots > 0 {
        let mut flat = Vec::with_capacity(slots);
        // The same layout wrote it, so reading it cannot fail.
        let _: Result<(), MalformedBuffer> = flatten(&layout.params, image.read(), at, &mut flat);
        for (slot, value) in flat.into_iter().take(slots).enumerate() {
            image.put(slot * SLOT, value.to_le_bytes());
        }
    }
}

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

impl From<AbiBufferError> for ArgumentError {
    fn from(refused: AbiBufferError) -> Self {
        Self::new(match refused {
            AbiBufferError::TooLong => "takes more than 64 MiB of the connector's memory",
            AbiBufferError::NotBase64 => "expected base64 text (RFC 4648, padded)",
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
