//! An image to JSON: what a guest returned, under the names that callers use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::image::{Image, Malformed};
use super::layout::{Kind, Layout, OperationLayout, discriminant};
use crate::package::Name;

/// What an operation returned.
#[derive(Debug, PartialEq)]
pub(crate) enum Returned {
    /// Its value; `null` where its type has none.
    Value(Value),
    /// The contract's `failure`, as JSON.
    Failure(Value),
}

/// Why an image does not become JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// See [`Malformed`].
    Malformed,
    /// The value would take more of the host's memory than it may.
    TooLarge,
}

impl From<Malformed> for Unreadable {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// What a call returned, from the image that lies at `base`; of at most `budget` bytes of the host's memory.
pub(super) fn returned(
    layout: &OperationLayout,
    image: &[u8],
    base: u32,
    budget: usize,
) -> Result<Returned, Unreadable> {
    let result = &layout.result;
    let Kind::Result(ok, err) = &result.kind else { return Err(Unreadable::Malformed) };
    let mut reader = Reader { image: Image::new(image, base), left: budget };
    let payload = result.payload as usize;
    match reader.image.get(0)? {
        [0] => Ok(Returned::Value(reader.payload(ok.as_deref(), payload)?)),
        [1] => Ok(Returned::Failure(reader.payload(err.as_deref(), payload)?)),
        _ => Err(Unreadable::Malformed),
    }
}

struct Reader<'i> {
    image: Image<'i>,
    left: usize,
}

impl Reader<'_> {
    /// Accounts for what is about to be allocated.
    fn take(&mut self, bytes: usize) -> Result<(), Unreadable> {
        self.left = self.left.checked_sub(bytes).ok_or(Unreadable::TooLarge)?;
        Ok(())
    }

    fn value(&mut self, layout: &Layout, at: usize) -> Result<Value, Unreadable> {
        let image = self.image;
        Ok(match &layout.kind {
            Kind::String => {
                let text = image.text(at)?;
                self.take(text.len())?;
                Value::String(text.to_owned())
            }
            Kind::Record(parts, object) => {
                self.take(parts.len().saturating_mul(ENTRY_BYTES))?;
                let mut object = Map::clone(object);
                for (part, place) in parts.iter().zip(object.values_mut()) {
                    *place = self.value(&part.layout, at + part.offset as usize)?;
                }
                Value::Object(object)
            }
            Kind::List(item) => {
                let (start, length) = image.span(at)?;
                self.take(length.saturating_mul(VALUE_BYTES))?;
                let size = item.size as usize;
                let item = |index| self.value(item, start + index * size);
                Value::Array((0..length).map(item).collect::<Result<_, _>>()?)
            }
            Kind::Bool => match image.get(at)? {
                [0] => Value::Bool(false),
                _ => Value::Bool(true),
            },
            Kind::Signed(8) => i8::from_le_bytes(image.get(at)?).into(),
            Kind::Signed(16) => i16::from_le_bytes(image.get(at)?).into(),
            Kind::Signed(32) => i32::from_le_bytes(image.get(at)?).into(),
            Kind::Signed(_) => i64::from_le_bytes(image.get(at)?).into(),
            Kind::Unsigned(64) => u64::from_le_bytes(image.get(at)?).into(),
            Kind::Unsigned(_) => image.sized(at, layout.size)?.into(),
            Kind::Float(32) => narrow(f32::from_le_bytes(image.get(at)?)),
            Kind::Float(_) => float(f64::from_le_bytes(image.get(at)?)),
            Kind::Char => {
                let c = char::from_u32(u32::from_le_bytes(image.get(at)?)).ok_or(Malformed)?;
                Value::String(c.into())
            }
            Kind::Bytes => {
                let bytes = image.bytes(at)?;
                self.take(bytes.len().div_ceil(3).saturating_mul(4))?;
                Value::String(STANDARD.encode(bytes))
            }
            Kind::Tuple(parts) => {
                self.take(parts.len().saturating_mul(VALUE_BYTES))?;
                let item = |(offset, item): &(u32, Layout)| self.value(item, at + *offset as usize);
                Value::Array(parts.iter().map(item).collect::<Result<_, _>>()?)
            }
            Kind::Option(item) => match image.get(at)? {
                [0] => Value::Null,
                _ => {
                    let value = self.value(item, at + layout.payload as usize)?;
                    if matches!(item.kind, Kind::Option(_)) { self.single("some", value)? } else { value }
                }
            },
            Kind::Result(ok, err) => {
                let (key, side) = match image.get(at)? {
                    [0] => ("ok", ok),
                    _ => ("err", err),
                };
                let value = self.payload(side.as_deref(), at + layout.payload as usize)?;
                self.single(key, value)?
            }
            Kind::Variant(cases) => {
                let case = image.sized(at, discriminant(cases.len()))?;
                let case = cases.get(case as usize).ok_or(Malformed)?;
                match &case.payload {
                    Some(payload) => {
                        let value = self.value(payload, at + layout.payload as usize)?;
                        self.single(case.name.json(), value)?
                    }
                    None => self.name(&case.name)?,
                }
            }
            Kind::Enum(names) => {
                let case = image.sized(at, layout.size)?;
                self.name(names.get(case as usize).ok_or(Malformed)?)?
            }
            Kind::Flags(names) => {
                let bits = image.sized(at, layout.size)?;
                let set = (0_u32..).zip(names.iter()).filter(|(bit, _)| bits >> bit & 1 == 1);
                set.map(|(_, name)| self.name(name)).collect::<Result<Vec<_>, _>>()?.into()
            }
        })
    }

    fn payload(&mut self, layout: Option<&Layout>, at: usize) -> Result<Value, Unreadable> {
        layout.map_or(Ok(Value::Null), |layout| self.value(layout, at))
    }

    fn name(&mut self, name: &Name) -> Result<Value, Unreadable> {
        self.take(name.json().len() + VALUE_BYTES)?;
        Ok(Value::String(name.json().to_owned()))
    }

    fn single(&mut self, key: &str, value: Value) -> Result<Value, Unreadable> {
        self.take(ENTRY_BYTES)?;
        let mut object = Map::with_capacity(1);
        object.insert(key.to_owned(), value);
        Ok(Value::Object(object))
    }
}

/// What a JSON value takes in memory, without what it points to.
const VALUE_BYTES: usize = size_of::<Value>();

/// What an object's entry takes: its key, its value, its place in the index.
const ENTRY_BYTES: usize = VALUE_BYTES + 64;

fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// The shortest decimal that is this number, not the one of the `f64` next to it.
fn narrow(number: f32) -> Value {
    if !number.is_finite() {
        return float(number.into());
    }
    float(number.to_string().parse().unwrap_or(f64::from(number)))
}
