//! A value in an image, written to any of serde's serializers: one walk for JSON text and for `Value`.

use std::cell::Cell;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::abi_buffer::{AbiBuffer, MalformedBuffer};
use super::layout::{AbiLayout, LayoutKind, discriminant};

/// A value at `at`; without a layout it is `null`.
#[derive(Clone, Copy)]
pub(super) struct SerializedValue<'i> {
    pub(super) layout: Option<&'i AbiLayout>,
    pub(super) at: usize,
    pub(super) buffer: AbiBuffer<'i>,
    /// The bytes of the host's memory that may still be taken; none once the budget was exceeded.
    pub(super) budget: &'i Cell<Option<usize>>,
}

impl<'i> SerializedValue<'i> {
    fn inside(&self, layout: &'i AbiLayout, at: usize) -> Self {
        Self { layout: Some(layout), at, ..*self }
    }

    /// Accounts for an allocation before it happens.
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.budget.get().and_then(|left| left.checked_sub(bytes));
        self.budget.set(left);
        left.map(drop).ok_or_else(|| E::custom("too large"))
    }

    fn text<S: Serializer>(&self, text: &str, to: S) -> Result<S::Ok, S::Error> {
        self.take(text.len().saturating_add(BLOCK_BYTES))?;
        to.serialize_str(text)
    }

    fn items<S: Serializer>(
        &self,
        count: usize,
        items: impl Iterator<Item = (&'i AbiLayout, usize)>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        self.take(count.saturating_mul(VALUE_BYTES).saturating_add(BLOCK_BYTES))?;
        let mut list = to.serialize_seq(Some(count))?;
        for (item, at) in items {
            list.serialize_element(&self.inside(item, at))?;
        }
        list.end()
    }

    /// Writes an object of one entry.
    fn entry<S: Serializer>(&self, key: &str, value: &Self, to: S) -> Result<S::Ok, S::Error> {
        self.take(OBJECT_BYTES + ENTRY_BYTES + key.len())?;
        let mut object = to.serialize_map(Some(1))?;
        object.serialize_entry(key, value)?;
        object.end()
    }
}

impl Serialize for SerializedValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { buffer: image, at, .. } = *self;
        let Some(layout) = self.layout else { return to.serialize_unit() };
        let payload = at + layout.payload as usize;
        match &layout.kind {
            LayoutKind::String => self.text(image.text(at).map_err(broken)?, to),
            LayoutKind::Record(parts) => {
                self.take(OBJECT_BYTES.saturating_add(parts.len().saturating_mul(ENTRY_BYTES)))?;
                let mut object = to.serialize_map(Some(parts.len()))?;
                for part in parts.iter() {
                    let value = self.inside(&part.layout, at + part.offset as usize);
                    self.take(part.name.json().len())?;
                    object.serialize_entry(part.name.json(), &value)?;
                }
                object.end()
            }
            LayoutKind::List(item) => {
                let (start, count) = image.items(at, item.size).map_err(broken)?;
                let size = item.size as usize;
                self.items(count, (0..count).map(|index| (&**item, start + index * size)), to)
            }
            LayoutKind::Bool => to.serialize_bool(image.get(at).map_err(broken)? != [0]),
            LayoutKind::Signed(8) => to.serialize_i8(i8::from_le_bytes(image.get(at).map_err(broken)?)),
            LayoutKind::Signed(16) => to.serialize_i16(i16::from_le_bytes(image.get(at).map_err(broken)?)),
            LayoutKind::Signed(32) => to.serialize_i32(i32::from_le_bytes(image.get(at).map_err(broken)?)),
            LayoutKind::Signed(_) => to.serialize_i64(i64::from_le_bytes(image.get(at).map_err(broken)?)),
            LayoutKind::Unsigned(64) => to.serialize_u64(u64::from_le_bytes(image.get(at).map_err(broken)?)),
            LayoutKind::Unsigned(_) => to.serialize_u32(image.sized(at, layout.size).map_err(broken)?),
            LayoutKind::Float(32) => float(widened(f32::from_le_bytes(image.get(at).map_err(broken)?)), to),
            LayoutKind::Float(_) => float(f64::from_le_bytes(image.get(at).map_err(broken)?), to),
            LayoutKind::Char => {
                let code = u32::from_le_bytes(image.get(at).map_err(broken)?);
                self.take(BLOCK_BYTES)?;
                to.serialize_char(char::from_u32(code).ok_or(MalformedBuffer).map_err(broken)?)
            }
            LayoutKind::Bytes => {
                let bytes = image.bytes(at).map_err(broken)?;
                self.take(bytes.len().div_ceil(3).saturating_mul(4))?;
                to.collect_str(&Base64Display::new(bytes, &STANDARD))
            }
            LayoutKind::Tuple(parts) => {
                self.items(parts.len(), parts.iter().map(|(offset, item)| (item, at + *offset as usize)), to)
            }
            LayoutKind::Option(item) => match image.get(at).map_err(broken)? {
                [0] => to.serialize_unit(),
                _ => {
                    let value = self.inside(item, payload);
                    match item.kind {
                        LayoutKind::Option(_) => self.entry("some", &value, to),
                        _ => value.serialize(to),
                    }
                }
            },
            LayoutKind::Result(ok, err) => {
                let (key, side) = match image.get(at).map_err(broken)? {
                    [0] => ("ok", ok),
                    _ => ("err", err),
                };
                self.entry(key, &Self { layout: side.as_deref(), at: payload, ..*self }, to)
            }
            LayoutKind::Variant(cases) => {
                let case = image.sized(at, discriminant(cases.len())).map_err(broken)?;
                let case = cases.get(case as usize).ok_or(MalformedBuffer).map_err(broken)?;
                match &case.payload {
                    Some(layout) => self.entry(case.name.json(), &self.inside(layout, payload), to),
                    None => self.text(case.name.json(), to),
                }
            }
            LayoutKind::Enum(names) => {
                let case = image.sized(at, layout.size).map_err(broken)?;
                let name = names.get(case as usize).ok_or(MalformedBuffer).map_err(broken)?;
                self.text(name.json(), to)
            }
            LayoutKind::Flags(names) => {
                let bits = image.sized(at, layout.size).map_err(broken)?;
                let set = (0_u32..).zip(names.iter()).filter(|(bit, _)| bits >> bit & 1 == 1);
                let mut list = to.serialize_seq(None)?;
                for (_, name) in set {
                    self.take(name.json().len() + VALUE_BYTES)?;
                    list.serialize_element(name.json())?;
                }
                list.end()
            }
        }
    }
}

fn broken<E: Error>(_: MalformedBuffer) -> E {
    E::custom("malformed")
}

/// The memory of a JSON value, without the data that it points to.
const VALUE_BYTES: usize = size_of::<Value>();

/// The minimum size of a block of memory, however small the request.
const BLOCK_BYTES: usize = 32;

/// The memory of an object without its entries: its two tables.
const OBJECT_BYTES: usize = 2 * BLOCK_BYTES;

/// The memory of an object's entry: its key, its value, its slot in the index.
const ENTRY_BYTES: usize = VALUE_BYTES + 64;

/// Writes a float. JSON has no number for NaN and the infinities.
fn float<S: Serializer>(number: f64, to: S) -> Result<S::Ok, S::Error> {
    match number {
        number if number.is_finite() => to.serialize_f64(number),
        number if number.is_nan() => to.serialize_str("NaN"),
        number if number > 0.0 => to.serialize_str("Infinity"),
        _ => to.serialize_str("-Infinity"),
    }
}

/// Returns the shortest decimal of this number, and not that of the `f64` next to it.
fn widened(number: f32) -> f64 {
    if !number.is_finite() {
        return number.into();
    }
    number.to_string().parse().unwrap_or(f64::from(number))
}
