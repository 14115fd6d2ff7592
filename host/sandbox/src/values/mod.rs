//! JSON <-> component values, along the shapes that were prepared at load.
//!
//! The mapping (documented for users in `docs/reference/json.md`): records are objects, variants `{"case":
//! payload}` or `"case"`, enums strings, flags arrays of strings, options the value or `null` (an option in
//! an option wraps: `{"some": ..}`), results `{"ok": ..}` or `{"err": ..}`, tuples and lists arrays,
//! `list<u8>` base64 text, 64-bit integers numbers that are accepted as strings too, NaN and the infinities
//! strings, characters strings of one character. Names are snake_case.

mod abi_buffer;
mod decode;
mod deserialize;
mod dynamic;
mod encode;
mod layout;
mod serialize;

pub use decode::ResultFormat;
pub(crate) use decode::{DecodeError, DecodedResult};
pub(crate) use encode::ArgumentError;
pub use encode::EncodedArguments;
pub(crate) use layout::{CoreSignature, FlatType, LayoutTable, OperationLayout};

use std::cell::Cell;

use cofferdam_model::package::{ShapeField, ValueShape, WitName};
use wasmtime::component::Val;

use super::adapter::BASE;

impl OperationLayout {
    /// Checks the arguments object against the types of the parameters and returns its image.
    pub(crate) fn arguments(&self, args: &serde_json::Value) -> Result<EncodedArguments, ArgumentError> {
        encode::from_value(self, args)
    }

    /// Checks arguments given as JSON text.
    pub(crate) fn arguments_from_text(&self, args: &str) -> Result<EncodedArguments, ArgumentError> {
        encode::from_text(self, args)
    }

    /// Decodes the result of a call with `args` from its image, within `room` bytes of the host's memory; the
    /// rest stays in `room`.
    pub(crate) fn decode_result<A: ResultFormat>(
        &self,
        args: &EncodedArguments,
        image: &[u8],
        room: &Cell<usize>,
    ) -> Result<DecodedResult<A>, DecodeError> {
        decode::decode_result(self, image, args.end(), room)
    }

    /// Returns the arguments as dynamic values.
    pub(crate) fn parameters(&self, args: &EncodedArguments) -> Result<Vec<Val>, DecodeError> {
        Ok(dynamic::parameters(self, abi_buffer::AbiBuffer::new(&args.abi_buffer, BASE))?)
    }

    /// Decodes the result of a call from a dynamic value, within `room` bytes of the host's memory; the rest
    /// stays in `room`.
    pub(crate) fn decode_dynamic<A: ResultFormat>(
        &self,
        result: &Val,
        room: &Cell<usize>,
    ) -> Result<DecodedResult<A>, DecodeError> {
        // The value exists already, and its image is no longer than that, in a buffer that doubles as it
        // grows.
        let taken = dynamic::host_bytes(result).saturating_mul(3);
        room.set(room.get().checked_sub(taken).ok_or(DecodeError::NoRoom)?);
        let image = dynamic::result(self, result, BASE).map_err(|error| match error {
            dynamic::EncodeError::Malformed => DecodeError::Malformed,
            dynamic::EncodeError::TooLong => DecodeError::TooLarge,
        })?;
        decode::decode_result(self, &image, BASE, room)
    }
}

impl EncodedArguments {
    /// The image.
    pub(crate) fn abi_buffer(&self) -> &[u8] {
        &self.abi_buffer
    }

    /// The address after the image, where that of the result begins.
    fn end(&self) -> u32 {
        let end = u32::try_from(self.abi_buffer.len()).unwrap_or(u32::MAX).saturating_add(BASE);
        end.checked_next_multiple_of(8).unwrap_or(u32::MAX)
    }
}

/// Checks that `value` can be passed for a parameter of this type, with the rules of a call.
///
/// # Errors
/// It cannot: the steps to the part that does not fit (`.name`, `[0]`), and the expected type there.
pub fn literal_fits(shape: &ValueShape, value: &serde_json::Value) -> Result<(), (Vec<String>, String)> {
    let field = ShapeField { name: WitName::from_wit("it"), shape: shape.clone() };
    let layout = LayoutTable::default().function(std::slice::from_ref(&field), None);
    let args = serde_json::json!({"it": value});
    layout.arguments(&args).map(drop).map_err(ArgumentError::into_parts)
}

/// Returns the length of a value's compact JSON text, in bytes, if it is more than `limit`.
pub fn json_size_over(value: &serde_json::Value, limit: u64) -> Option<u64> {
    decode::over(value, limit)
}

/// Returns the length of the JSON text of an object that is not a value yet, if it is more than `limit`.
pub fn json_fields_over(fields: &serde_json::Map<String, serde_json::Value>, limit: u64) -> Option<u64> {
    decode::fields_over(fields, limit)
}

#[cfg(test)]
mod arbitrary_tests;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod text_tests;
