//! JSON to an image: the caller's arguments are checked against the types before a guest exists.
//!
//! One walk serves JSON text and a `serde_json::Value`: both are serde's deserializers.

use serde::de::{DeserializeSeed, Error};
use serde_json::Value;

use super::argument_error::ArgumentError;
use super::flat::flatten;
use super::image::{ImageWriter, MalformedImage};
use super::layout::{OperationLayout, SLOT};
use super::slots::StagingBuffer;
use super::visit::ValueCursor;
use crate::bridge::BASE;

/// An operation's arguments as an image, checked against its types: the flat values, then the parameters as a
/// record, then the data that they point to.
pub struct EncodedArguments {
    pub(super) image: Vec<u8>,
}

/// The output, and the first error: serde's own errors have no room for a path.
pub(super) struct Encoder {
    pub(super) slots: StagingBuffer,
    refused: Option<ArgumentError>,
}

impl Encoder {
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
    let mut image = ImageWriter::with_capacity(BASE, fixed.saturating_add(bytes));
    image.reserve(layout.params_at(), 8)?;
    let params_at = image.reserve(params.size as usize, params.align)?;
    let mut encoder = Encoder { slots: StagingBuffer::new(image), refused: None };
    let at = encoder.slots.push(params.size)?;
    walk(ValueCursor::new(&mut encoder, params, at))
        .map_err(|error| encoder.refused.take().unwrap_or_else(|| ArgumentError::syntax(&error)))?;
    let mut image = encoder.slots.finish(params_at);
    put_flat(layout, &mut image, params_at);
    Ok(EncodedArguments { image: image.finish() })
}

/// Writes the flat values of the parameters in front of them.
fn put_flat(layout: &OperationLayout, image: &mut ImageWriter, at: usize) {
    let slots = layout.flat_params() as usize;
    if slots > 0 {
        let mut flat = Vec::with_capacity(slots);
        // The same layout wrote it, so reading it cannot fail.
        let _: Result<(), MalformedImage> = flatten(&layout.params, image.read(), at, &mut flat);
        for (slot, value) in flat.into_iter().take(slots).enumerate() {
            image.put(slot * SLOT, value.to_le_bytes());
        }
    }
}
