//! A value in an image, written to any of serde's serializers: one walk for JSON text and for `Value`.

use std::cell::Cell;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::image::{Image, Malformed};
use super::layout::{Kind, Layout, discriminant};

/// A value at `at`; without a layout it is `null`.
#[derive(Clone, Copy)]
pub(super) struct Written<'i> {
    pub(super) layout: Option<&'i Layout>,
    pub(super) at: usize,
    pub(super) image: Image<'i>,
    /// Bytes of the host's memory that may still be taken; none once it was not enough.
    pub(super) budget: &'i Cell<Option<usize>>,
}

impl<'i> Written<'i> {
    fn inside(&self, layout: &'i Layout, at: usize) -> Self {
        Self { layout: Some(layout), at, ..*self }
    }

    /// Accounts for what is about to be allocated.
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
        items: impl Iterator<Item = (&'i Layout, usize)>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        self.take(count.saturating_mul(VALUE_BYTES).saturating_add(BLOCK_BYTES))?;
        let mut list = to.serialize_seq(Some(count))?;
        for (item, at) in items {
            list.serialize_element(&self.inside(item, at))?;
        }
        list.end()
    }

    /// An object of one entry.
    fn entry<S: Serializer>(&self, key: &str, value: &Self, to: S) -> Result<S::Ok, S::Error> {
        self.take(OBJECT_BYTES + ENTRY_BYTES + key.len())?;
        let mut object = to.serialize_map(Some(1))?;
        object.serialize_entry(key, value)?;
        object.end()
    }
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { image, at, .. } = *self;
        let Some(layout) = self.layout else { return to.serialize_unit() };
        let payload = at + layout.payload as usize;
        match &layout.kind {
            Kind::String => self.text(image.text(at).map_err(broken)?, to),
            Kind::Record(parts) => {
                self.take(OBJECT_BYTES.saturating_add(parts.len().saturating_mul(ENTRY_BYTES)))?;
                let mut object = to.serialize_map(Some(parts.len()))?;
                for part in parts.iter() {
                    let value = self.inside(&part.layout, at + part.offset as usize);
                    self.take(part.name.json().len())?;
                    object.serialize_entry(part.name.json(), &value)?;
                }
                object.end()
            }
            Kind::List(item) => {
                let (start, count) = image.items(at, item.size).map_err(broken)?;
                let size = item.size as usize;
                self.items(count, (0..count).map(|index| (&**item, start + index * size)), to)
            }
            Kind::Bool => to.serialize_bool(image.get(at).map_err(broken)? != [0]),
            Kind::Signed(8) => to.serialize_i8(i8::from_le_bytes(image.get(at).map_err(broken)?)),
            Kind::Signed(16) => to.serialize_i16(i16::from_le_bytes(image.get(at).map_err(broken)?)),
            Kind::Signed(32) => to.serialize_i32(i32::from_le_bytes(image.get(at).map_err(broken)?)),
            Kind::Signed(_) => to.serialize_i64(i64::from_le_bytes(image.get(at).map_err(broken)?)),
            Kind::Unsigned(64) => to.serialize_u64(u64::from_le_bytes(image.get(at).map_err(broken)?)),
            Kind::Unsigned(_) => to.serialize_u32(image.sized(at, layout.size).map_err(broken)?),
            Kind::Float(32) => float(widened(f32::from_le_bytes(image.get(at).map_err(broken)?)), to),
            Kind::Float(_) => float(f64::from_le_bytes(image.get(at).map_err(broken)?), to),
            Kind::Char => {
                let code = u32::from_le_bytes(image.get(at).map_err(broken)?);
                self.take(BLOCK_BYTES)?;
                to.serialize_char(char::from_u32(code).ok_or(Malformed).map_err(broken)?)
            }
            Kind::Bytes => {
                let bytes = image.bytes(at).map_err(broken)?;
                self.take(bytes.len().div_ceil(3).saturating_mul(4))?;
                to.collect_str(&Base64Display::new(bytes, &STANDARD))
            }
            Kind::Tuple(parts) => {
                self.items(parts.len(), parts.iter().map(|(offset, item)| (item, at + *offset as usize)), to)
            }
            Kind::Option(item) => match image.get(at).map_err(broken)? {
                [0] => to.serialize_unit(),
                _ => {
                    let value = self.inside(item, payload);
                    match item.kind {
                        Kind::Option(_) => self.entry("some", &value, to),
                        _ => value.serialize(to),
                    }
                }
            },
            Kind::Result(ok, err) => {
                let (key, side) = match image.get(at).map_err(broken)? {
                    [0] => ("ok", ok),
                    _ => ("err", err),
                };
                self.entry(key, &Self { layout: side.as_deref(), at: payload, ..*self }, to)
            }
            Kind::Variant(cases) => {
                let case = image.sized(at, discriminant(cases.len())).map_err(broken)?;
                let case = cases.get(case as usize).ok_or(Malformed).map_err(broken)?;
                match &case.payload {
                    Some(layout) => self.entry(case.name.json(), &self.inside(layout, payload), to),
                    None => self.text(case.name.json(), to),
                }
            }
            Kind::Enum(names) => {
                let case = image.sized(at, layout.size).map_err(broken)?;
                let name = names.get(case as usize).ok_or(Malformed).map_err(broken)?;
                self.text(name.json(), to)
            }
            Kind::Flags(names) => {
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

fn broken<E: Error>(_: Malformed) -> E {
    E::custom("malformed")
}

/// What a JSON value takes in memory, without what it points to.
const VALUE_BYTES: usize = size_of::<Value>();

/// The least that a block of memory takes, however little is asked for.
const BLOCK_BYTES: usize = 32;

/// What an object takes beside its entries: its two tables.
const OBJECT_BYTES: usize = 2 * BLOCK_BYTES;

/// What an object's entry takes: its key, its value, its place in the index.
const ENTRY_BYTES: usize = VALUE_BYTES + 64;

/// JSON has no number for these three.
fn float<S: Serializer>(number: f64, to: S) -> Result<S::Ok, S::Error> {
    match number {
        number if number.is_finite() => to.serialize_f64(number),
        number if number.is_nan() => to.serialize_str("NaN"),
        number if number > 0.0 => to.serialize_str("Infinity"),
        _ => to.serialize_str("-Infinity"),
    }
}

/// The shortest decimal that is this number, not the one of the `f64` next to it.
fn widened(number: f32) -> f64 {
    if !number.is_finite() {
        return number.into();
    }
    number.to_string().parse().unwrap_or(f64::from(number))
}
