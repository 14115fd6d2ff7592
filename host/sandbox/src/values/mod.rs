//! JSON <-> component values, along the shapes that were made at load.
//!
//! The mapping (documented for users in `docs/json.md`): records are objects, variants `{"case": payload}`
//! or `"case"`, enums strings, flags arrays of strings, options the value or `null` (an option in an
//! option wraps: `{"some": ..}`), results `{"ok": ..}` or `{"err": ..}`, tuples and lists arrays,
//! `list<u8>` base64 text, 64-bit integers numbers that are accepted as strings too, NaN and the
//! infinities strings, characters strings of one character. Names are snake_case.

mod argument_error;
mod decode;
mod dynamic;
mod encode;
mod flat;
mod image;
mod layout;
mod objects;
mod scalars;
mod size;
mod slots;
mod visit;
mod written;

pub(crate) use argument_error::ArgumentError;
pub use decode::Answer;
pub(crate) use decode::{Returned, Unreadable};
pub use encode::Arguments;
pub(crate) use layout::{Flat, Layouts, OperationLayout, Signature};

use std::cell::Cell;

use cofferdam_model::package::{Field, Name, Shape};
use wasmtime::component::Val;

use super::bridge::BASE;

impl OperationLayout {
    /// The arguments object as an image, checked against the types of the parameters.
    pub(crate) fn arguments(&self, args: &serde_json::Value) -> Result<Arguments, ArgumentError> {
        encode::from_value(self, args)
    }

    /// The same from JSON text.
    pub(crate) fn arguments_from_text(&self, args: &str) -> Result<Arguments, ArgumentError> {
        encode::from_text(self, args)
    }

    /// What a call with `args` returned, from its image, in so much of the host's memory; what is left stays in
    /// `room`.
    pub(crate) fn returned<A: Answer>(
        &self,
        args: &Arguments,
        image: &[u8],
        room: &Cell<usize>,
    ) -> Result<Returned<A>, Unreadable> {
        decode::returned(self, image, args.end(), room)
    }

    /// The arguments as dynamic values.
    pub(crate) fn parameters(&self, args: &Arguments) -> Result<Vec<Val>, Unreadable> {
        Ok(dynamic::parameters(self, image::Image::new(&args.image, BASE))?)
    }

    /// What a call returned, from a dynamic value, in so much of the host's memory; what is left stays in `room`.
    pub(crate) fn returned_dynamic<A: Answer>(
        &self,
        result: &Val,
        room: &Cell<usize>,
    ) -> Result<Returned<A>, Unreadable> {
        // The value is there already, and its image is no longer than that, in a buffer that doubles as it grows.
        let taken = dynamic::host_bytes(result).saturating_mul(3);
        room.set(room.get().checked_sub(taken).ok_or(Unreadable::NoRoom)?);
        let image = dynamic::result(self, result, BASE).map_err(|error| match error {
            dynamic::Unwritable::Malformed => Unreadable::Malformed,
            dynamic::Unwritable::TooLong => Unreadable::TooLarge,
        })?;
        decode::returned(self, &image, BASE, room)
    }
}

impl Arguments {
    /// The image.
    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }

    /// The address after the image, where that of the result begins.
    fn end(&self) -> u32 {
        let end = u32::try_from(self.image.len()).unwrap_or(u32::MAX).saturating_add(BASE);
        end.checked_next_multiple_of(8).unwrap_or(u32::MAX)
    }
}

/// Whether `value` can be given for a parameter of this type, as a call would decide it.
///
/// # Errors
/// It cannot: the steps to the part that does not fit (`.name`, `[0]`), and what is expected there.
pub fn literal_fits(shape: &Shape, value: &serde_json::Value) -> Result<(), (Vec<String>, String)> {
    let field = Field { name: Name::from_wit("it"), shape: shape.clone() };
    let layout = Layouts::default().function(std::slice::from_ref(&field), None);
    let args = serde_json::json!({"it": value});
    layout.arguments(&args).map(drop).map_err(ArgumentError::into_parts)
}

/// The length of a value's compact JSON text, in bytes, if it is more than `limit`.
pub fn json_size_over(value: &serde_json::Value, limit: u64) -> Option<u64> {
    size::over(value, limit)
}

/// The same of an object that is no value yet.
pub fn json_fields_over(fields: &serde_json::Map<String, serde_json::Value>, limit: u64) -> Option<u64> {
    size::fields_over(fields, limit)
}

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod text_tests;
