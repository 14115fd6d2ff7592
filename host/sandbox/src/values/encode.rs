//! JSON to an image: what a caller gives is checked against the types before a guest exists.
//!
//! One walk for JSON text and for a `serde_json::Value`: both are serde's deserializers.

use serde::de::{DeserializeSeed, Error};
use serde_json::Value;

use super::argument_error::ArgumentError;
use super::flat::flatten;
use super::image::{Malformed, Writer};
use super::layout::{OperationLayout, SLOT};
use super::slots::Slots;
use super::visit::Place;
use crate::bridge::BASE;

/// An operation's arguments as an image, checked against its types: the flat values, then the parameters
/// as a record, then what they point to.
pub struct Arguments {
    pub(super) image: Vec<u8>,
}

/// What is written, and what was refused: serde's own errors have no room for a path.
pub(super) struct Encoder {
    pub(super) slots: Slots,
    refused: Option<ArgumentError>,
}

impl Encoder {
    /// Keeps the error, and gives the one that ends the walk.
    pub(super) fn refuse<E: Error>(&mut self, error: impl Into<ArgumentError>) -> E {
        self.refused = Some(error.into());
        E::custom("refused")
    }

    /// On the way out of a value that was refused: where that is. Text that is not JSON has no path.
    pub(super) fn step(&mut self, step: impl FnOnce() -> String) {
        if let Some(error) = &mut self.refused {
            error.step(step());
        }
    }
}

/// Turns the arguments object into the image of the parameters.
pub(super) fn from_value(layout: &OperationLayout, args: &Value) -> Result<Arguments, ArgumentError> {
    arguments(layout, 0, |place| place.deserialize(args))
}

/// The same from JSON text, with nothing after it but white space.
pub(super) fn from_text(layout: &OperationLayout, args: &str) -> Result<Arguments, ArgumentError> {
    let mut text = serde_json::Deserializer::from_str(args);
    arguments(layout, args.len(), |place| {
        place.deserialize(&mut text)?;
        text.end()
    })
}

fn arguments<'l>(
    layout: &'l OperationLayout,
    bytes: usize,
    walk: impl FnOnce(Place<'_, 'l>) -> Result<(), serde_json::Error>,
) -> Result<Arguments, ArgumentError> {
    let params = &layout.params;
    let fixed = layout.params_at().saturating_add(params.size as usize);
    let mut image = Writer::with_capacity(BASE, fixed.saturating_add(bytes));
    image.reserve(layout.params_at(), 8)?;
    let params_at = image.reserve(params.size as usize, params.align)?;
    let mut encoder = Encoder { slots: Slots::new(image), refused: None };
    let at = encoder.slots.push(params.size)?;
    walk(Place::new(&mut encoder, params, at))
        .map_err(|error| encoder.refused.take().unwrap_or_else(|| ArgumentError::syntax(&error)))?;
    let mut image = encoder.slots.finish(params_at);
    put_flat(layout, &mut image, params_at);
    Ok(Arguments { image: image.finish() })
}

/// Writes the flat values that the parameters are, before them.
fn put_flat(layout: &OperationLayout, image: &mut Writer, at: usize) {
    let slots = layout.flat_params() as usize;
    if slots > 0 {
        let mut flat = Vec::with_capacity(slots);
        // It was written by the same layout: reading it cannot fail.
        let _: Result<(), Malformed> = flatten(&layout.params, image.read(), at, &mut flat);
        for (slot, value) in flat.into_iter().take(slots).enumerate() {
            image.put(slot * SLOT, value.to_le_bytes());
        }
    }
}
