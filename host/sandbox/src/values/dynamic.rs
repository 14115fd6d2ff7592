//! Images to wasmtime's dynamic values and back, for operations that are called without the bridge.
//!
//! One enum a value: the cheaper way for a few values, since nothing more is instantiated, and the dear one
//! for lists, of which each element costs 32 bytes and each field of a record a name.

use std::cell::Cell;

use cofferdam_core::limits;
use cofferdam_model::package::Name;
use wasmtime::component::Val;

use super::image::{Image, Malformed, Refused, Writer};
use super::layout::{Kind, Layout, OperationLayout, discriminant};

/// Why a dynamic value does not become an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwritable {
    /// It is not of its type.
    Malformed,
    /// It is longer than an image may be.
    TooLong,
}

impl From<Refused> for Unwritable {
    fn from(_: Refused) -> Self {
        Self::TooLong
    }
}

/// The parameters, in order.
///
/// Where even arguments with lists go this way, types chosen by the connector could make a few kilobytes of
/// JSON gigabytes of dynamic values; more than a budget of them are refused.
pub(super) fn parameters(layout: &OperationLayout, image: Image<'_>) -> Result<Vec<Val>, Malformed> {
    let Kind::Record(parts) = &layout.params.kind else { return Err(Malformed) };
    let at = layout.params_at();
    let left = Cell::new(limits::RESULT_BYTES);
    let budgeted = Budgeted { image, left: &left };
    parts.iter().map(|part| read(&part.layout, budgeted, at + part.offset as usize)).collect()
}

/// An image, and the bytes of dynamic values that may still be made of it.
#[derive(Clone, Copy)]
struct Budgeted<'i> {
    image: Image<'i>,
    left: &'i Cell<usize>,
}

impl Budgeted<'_> {
    fn take(self, bytes: usize) -> Result<(), Malformed> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(Malformed)?);
        Ok(())
    }
}

/// The dynamic value at `at`.
fn read(layout: &Layout, from: Budgeted<'_>, at: usize) -> Result<Val, Malformed> {
    let image = from.image;
    from.take(size_of::<Val>())?;
    let payload = at + layout.payload as usize;
    let side = |side: Option<&Layout>| side.map(|side| read(side, from, payload).map(Box::new)).transpose();
    Ok(match &layout.kind {
        Kind::Bool => Val::Bool(image.get(at)? != [0]),
        Kind::Signed(8) => Val::S8(i8::from_le_bytes(image.get(at)?)),
        Kind::Signed(16) => Val::S16(i16::from_le_bytes(image.get(at)?)),
        Kind::Signed(32) => Val::S32(i32::from_le_bytes(image.get(at)?)),
        Kind::Signed(_) => Val::S64(i64::from_le_bytes(image.get(at)?)),
        Kind::Unsigned(8) => Val::U8(u8::from_le_bytes(image.get(at)?)),
        Kind::Unsigned(16) => Val::U16(u16::from_le_bytes(image.get(at)?)),
        Kind::Unsigned(32) => Val::U32(u32::from_le_bytes(image.get(at)?)),
        Kind::Unsigned(_) => Val::U64(u64::from_le_bytes(image.get(at)?)),
        Kind::Float(32) => Val::Float32(f32::from_le_bytes(image.get(at)?)),
        Kind::Float(_) => Val::Float64(f64::from_le_bytes(image.get(at)?)),
        Kind::Char => Val::Char(char::from_u32(image.sized(at, 4)?).ok_or(Malformed)?),
        Kind::String => Val::String(image.text(at)?.to_owned()),
        Kind::Bytes => {
            let bytes = image.bytes(at)?;
            from.take(bytes.len().saturating_mul(size_of::<Val>()))?;
            Val::List(bytes.iter().copied().map(Val::U8).collect())
        }
        Kind::List(item) => {
            let (start, length) = image.span(at)?;
            let size = item.size as usize;
            Val::List(
                (0..length).map(|index| read(item, from, start + index * size)).collect::<Result<_, _>>()?,
            )
        }
        Kind::Tuple(parts) => {
            let part = |(offset, part): &(u32, Layout)| read(part, from, at + *offset as usize);
            Val::Tuple(parts.iter().map(part).collect::<Result<_, _>>()?)
        }
        Kind::Record(parts) => {
            let mut fields = Vec::with_capacity(parts.len());
            for part in parts.iter() {
                from.take(size_of::<String>() + part.name.wit().len())?;
                let value = read(&part.layout, from, at + part.offset as usize)?;
                fields.push((part.name.wit().to_owned(), value));
            }
            Val::Record(fields)
        }
        Kind::Option(item) => match image.get(at)? {
            [0] => Val::Option(None),
            _ => Val::Option(side(Some(item))?),
        },
        Kind::Result(ok, err) => match image.get(at)? {
            [0] => Val::Result(Ok(side(ok.as_deref())?)),
            _ => Val::Result(Err(side(err.as_deref())?)),
        },
        Kind::Variant(cases) => {
            let case = image.sized(at, discriminant(cases.len()))?;
            let case = cases.get(case as usize).ok_or(Malformed)?;
            Val::Variant(case.name.wit().to_owned(), side(case.payload.as_ref())?)
        }
        Kind::Enum(names) => {
            let case = image.sized(at, layout.size)?;
            Val::Enum(names.get(case as usize).ok_or(Malformed)?.wit().to_owned())
        }
        Kind::Flags(names) => {
            let bits = image.sized(at, layout.size)?;
            let set = (0_u32..).zip(names.iter()).filter(|(bit, _)| bits >> bit & 1 == 1);
            Val::Flags(set.map(|(_, name)| name.wit().to_owned()).collect())
        }
    })
}

/// What a dynamic value takes of the host's memory, in bytes.
pub(super) fn host_bytes(value: &Val) -> usize {
    let sum = |values: &mut dyn Iterator<Item = usize>| values.fold(0, usize::saturating_add);
    let boxed = |value: &Option<Box<Val>>| value.as_deref().map_or(0, host_bytes);
    let behind = match value {
        Val::String(text) | Val::Enum(text) => text.len(),
        Val::List(items) | Val::Tuple(items) => sum(&mut items.iter().map(host_bytes)),
        Val::Record(fields) => {
            let field = |(name, value): &(String, Val)| size_of::<String>() + name.len() + host_bytes(value);
            sum(&mut fields.iter().map(field))
        }
        Val::Flags(names) => sum(&mut names.iter().map(|name| size_of::<String>() + name.len())),
        Val::Variant(name, value) => name.len().saturating_add(boxed(value)),
        Val::Option(value) | Val::Result(Ok(value) | Err(value)) => boxed(value),
        _ => 0,
    };
    size_of::<Val>().saturating_add(behind)
}

/// The image of a result.
pub(super) fn result(layout: &OperationLayout, value: &Val, base: u32) -> Result<Vec<u8>, Unwritable> {
    let mut writer = Writer::new(base);
    let at = writer.reserve(layout.result.size as usize, layout.result.align)?;
    write(&layout.result, value, &mut writer, at)?;
    Ok(writer.finish())
}

fn write(layout: &Layout, value: &Val, to: &mut Writer, at: usize) -> Result<(), Unwritable> {
    let payload = at + layout.payload as usize;
    match (&layout.kind, value) {
        (Kind::Bool, Val::Bool(value)) => to.put(at, [u8::from(*value)]),
        (Kind::Signed(8), Val::S8(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Signed(16), Val::S16(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Signed(32), Val::S32(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Signed(64), Val::S64(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Unsigned(8), Val::U8(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Unsigned(16), Val::U16(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Unsigned(32), Val::U32(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Unsigned(64), Val::U64(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Float(32), Val::Float32(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Float(64), Val::Float64(number)) => to.put(at, number.to_le_bytes()),
        (Kind::Char, Val::Char(c)) => to.put(at, u32::from(*c).to_le_bytes()),
        (Kind::String, Val::String(text)) => {
            let start = to.append(text.as_bytes())?;
            to.put_span(at, start, text.len());
        }
        (Kind::Bytes, Val::List(items)) => {
            let byte = |item: &Val| match item {
                Val::U8(byte) => Ok(*byte),
                _ => Err(Unwritable::Malformed),
            };
            let bytes = items.iter().map(byte).collect::<Result<Vec<_>, _>>()?;
            let start = to.append(&bytes)?;
            to.put_span(at, start, bytes.len());
        }
        (Kind::List(item), Val::List(items)) => {
            let size = item.size as usize;
            let start = to.reserve(size.saturating_mul(items.len()), item.align)?;
            to.put_span(at, start, items.len());
            for (index, value) in items.iter().enumerate() {
                write(item, value, to, start + index * size)?;
            }
        }
        (Kind::Tuple(parts), Val::Tuple(items)) if parts.len() == items.len() => {
            for ((offset, part), value) in parts.iter().zip(items) {
                write(part, value, to, at + *offset as usize)?;
            }
        }
        (Kind::Record(parts), Val::Record(fields)) if parts.len() == fields.len() => {
            for (part, (_, value)) in parts.iter().zip(fields) {
                write(&part.layout, value, to, at + part.offset as usize)?;
            }
        }
        (Kind::Option(_), Val::Option(None)) => {}
        (Kind::Option(item), Val::Option(Some(value))) => {
            to.put(at, [1]);
            write(item, value, to, payload)?;
        }
        (Kind::Result(ok, _), Val::Result(Ok(value))) => {
            write_payload(ok.as_deref(), value.as_deref(), to, payload)?;
        }
        (Kind::Result(_, err), Val::Result(Err(value))) => {
            to.put(at, [1]);
            write_payload(err.as_deref(), value.as_deref(), to, payload)?;
        }
        (Kind::Variant(cases), Val::Variant(name, value)) => {
            let mut cases_in_order = (0..).zip(cases.iter());
            let (index, case) =
                cases_in_order.find(|(_, case)| case.name.wit() == name).ok_or(Unwritable::Malformed)?;
            to.put_sized(at, discriminant(cases.len()), index);
            write_payload(case.payload.as_ref(), value.as_deref(), to, payload)?;
        }
        (Kind::Enum(names), Val::Enum(name)) => to.put_sized(at, layout.size, position(names, name)?),
        (Kind::Flags(names), Val::Flags(set)) => {
            let mut bits = 0;
            for name in set {
                bits |= 1_u32.checked_shl(position(names, name)?).unwrap_or(0);
            }
            to.put_sized(at, layout.size, bits);
        }
        _ => return Err(Unwritable::Malformed),
    }
    Ok(())
}

fn write_payload(
    layout: Option<&Layout>,
    value: Option<&Val>,
    to: &mut Writer,
    at: usize,
) -> Result<(), Unwritable> {
    match (layout, value) {
        (None, None) => Ok(()),
        (Some(layout), Some(value)) => write(layout, value, to, at),
        _ => Err(Unwritable::Malformed),
    }
}

fn position(names: &[Name], wit: &str) -> Result<u32, Unwritable> {
    (0..).zip(names).find(|(_, name)| name.wit() == wit).map(|(at, _)| at).ok_or(Unwritable::Malformed)
}
