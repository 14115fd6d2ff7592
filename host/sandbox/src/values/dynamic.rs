//! Images to wasmtime's dynamic values and back, for operations that are called without the adapter.
//!
//! Each value is one enum. That is cheap for a few values, since no wrapper is instantiated, and expensive
//! for lists: each element costs 32 bytes, and each field of a record a name.

use std::cell::Cell;

use cofferdam_core::limits;
use cofferdam_model::package::WitName;
use wasmtime::component::Val;

use super::abi_buffer::{AbiBuffer, AbiBufferError, AbiBufferWriter, MalformedBuffer};
use super::layout::{AbiLayout, LayoutKind, OperationLayout, discriminant};

/// The reason why a dynamic value does not become an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EncodeError {
    /// It is not of its type.
    Malformed,
    /// It is longer than an image may be.
    TooLong,
}

impl From<AbiBufferError> for EncodeError {
    fn from(_: AbiBufferError) -> Self {
        Self::TooLong
    }
}

/// Returns the parameters, in order.
///
/// If arguments with lists also go this way, types chosen by the connector could turn a few kilobytes of JSON
/// into gigabytes of dynamic values; values beyond a budget are refused.
pub(super) fn parameters(
    layout: &OperationLayout,
    image: AbiBuffer<'_>,
) -> Result<Vec<Val>, MalformedBuffer> {
    let LayoutKind::Record(parts) = &layout.params.kind else { return Err(MalformedBuffer) };
    let at = layout.params_at();
    let left = Cell::new(limits::RESULT_BYTES);
    let budgeted = BudgetedValue { buffer: image, left: &left };
    parts.iter().map(|part| read(&part.layout, budgeted, at + part.offset as usize)).collect()
}

/// An image, and the remaining budget for dynamic values, in bytes.
#[derive(Clone, Copy)]
struct BudgetedValue<'i> {
    buffer: AbiBuffer<'i>,
    left: &'i Cell<usize>,
}

impl BudgetedValue<'_> {
    fn take(self, bytes: usize) -> Result<(), MalformedBuffer> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(MalformedBuffer)?);
        Ok(())
    }
}

/// Returns the dynamic value at `at`.
fn read(layout: &AbiLayout, from: BudgetedValue<'_>, at: usize) -> Result<Val, MalformedBuffer> {
    let image = from.buffer;
    from.take(size_of::<Val>())?;
    let payload = at + layout.payload as usize;
    let side =
        |side: Option<&AbiLayout>| side.map(|side| read(side, from, payload).map(Box::new)).transpose();
    Ok(match &layout.kind {
        LayoutKind::Bool => Val::Bool(image.get(at)? != [0]),
        LayoutKind::Signed(8) => Val::S8(i8::from_le_bytes(image.get(at)?)),
        LayoutKind::Signed(16) => Val::S16(i16::from_le_bytes(image.get(at)?)),
        LayoutKind::Signed(32) => Val::S32(i32::from_le_bytes(image.get(at)?)),
        LayoutKind::Signed(_) => Val::S64(i64::from_le_bytes(image.get(at)?)),
        LayoutKind::Unsigned(8) => Val::U8(u8::from_le_bytes(image.get(at)?)),
        LayoutKind::Unsigned(16) => Val::U16(u16::from_le_bytes(image.get(at)?)),
        LayoutKind::Unsigned(32) => Val::U32(u32::from_le_bytes(image.get(at)?)),
        LayoutKind::Unsigned(_) => Val::U64(u64::from_le_bytes(image.get(at)?)),
        LayoutKind::Float(32) => Val::Float32(f32::from_le_bytes(image.get(at)?)),
        LayoutKind::Float(_) => Val::Float64(f64::from_le_bytes(image.get(at)?)),
        LayoutKind::Char => Val::Char(char::from_u32(image.sized(at, 4)?).ok_or(MalformedBuffer)?),
        LayoutKind::String => Val::String(image.text(at)?.to_owned()),
        LayoutKind::Bytes => {
            let bytes = image.bytes(at)?;
            from.take(bytes.len().saturating_mul(size_of::<Val>()))?;
            Val::List(bytes.iter().copied().map(Val::U8).collect())
        }
        LayoutKind::List(item) => {
            let (start, length) = image.span(at)?;
            let size = item.size as usize;
            Val::List(
                (0..length).map(|index| read(item, from, start + index * size)).collect::<Result<_, _>>()?,
            )
        }
        LayoutKind::Tuple(parts) => {
            let part = |(offset, part): &(u32, AbiLayout)| read(part, from, at + *offset as usize);
            Val::Tuple(parts.iter().map(part).collect::<Result<_, _>>()?)
        }
        LayoutKind::Record(parts) => {
            let mut fields = Vec::with_capacity(parts.len());
            for part in parts.iter() {
                from.take(size_of::<String>() + part.name.wit().len())?;
                let value = read(&part.layout, from, at + part.offset as usize)?;
                fields.push((part.name.wit().to_owned(), value));
            }
            Val::Record(fields)
        }
        LayoutKind::Option(item) => match image.get(at)? {
            [0] => Val::Option(None),
            _ => Val::Option(side(Some(item))?),
        },
        LayoutKind::Result(ok, err) => match image.get(at)? {
            [0] => Val::Result(Ok(side(ok.as_deref())?)),
            _ => Val::Result(Err(side(err.as_deref())?)),
        },
        LayoutKind::Variant(cases) => {
            let case = image.sized(at, discriminant(cases.len()))?;
            let case = cases.get(case as usize).ok_or(MalformedBuffer)?;
            Val::Variant(case.name.wit().to_owned(), side(case.payload.as_ref())?)
        }
        LayoutKind::Enum(names) => {
            let case = image.sized(at, layout.size)?;
            Val::Enum(names.get(case as usize).ok_or(MalformedBuffer)?.wit().to_owned())
        }
        LayoutKind::Flags(names) => {
            let bits = image.sized(at, layout.size)?;
            let set = (0_u32..).zip(names.iter()).filter(|(bit, _)| bits >> bit & 1 == 1);
            Val::Flags(set.map(|(_, name)| name.wit().to_owned()).collect())
        }
    })
}

/// Returns the bytes of the host's memory that a dynamic value takes.
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

/// Returns the image of a result.
pub(super) fn result(layout: &OperationLayout, value: &Val, base: u32) -> Result<Vec<u8>, EncodeError> {
    let mut writer = AbiBufferWriter::new(base);
    let at = writer.reserve(layout.result.size as usize, layout.result.align)?;
    write(&layout.result, value, &mut writer, at)?;
    Ok(writer.finish())
}

fn write(layout: &AbiLayout, value: &Val, to: &mut AbiBufferWriter, at: usize) -> Result<(), EncodeError> {
    let payload = at + layout.payload as usize;
    match (&layout.kind, value) {
        (LayoutKind::Bool, Val::Bool(value)) => to.put(at, [u8::from(*value)]),
        (LayoutKind::Signed(8), Val::S8(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Signed(16), Val::S16(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Signed(32), Val::S32(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Signed(64), Val::S64(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Unsigned(8), Val::U8(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Unsigned(16), Val::U16(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Unsigned(32), Val::U32(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Unsigned(64), Val::U64(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Float(32), Val::Float32(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Float(64), Val::Float64(number)) => to.put(at, number.to_le_bytes()),
        (LayoutKind::Char, Val::Char(c)) => to.put(at, u32::from(*c).to_le_bytes()),
        (LayoutKind::String, Val::String(text)) => {
            let start = to.append(text.as_bytes())?;
            to.put_span(at, start, text.len());
        }
        (LayoutKind::Bytes, Val::List(items)) => {
            let byte = |item: &Val| match item {
                Val::U8(byte) => Ok(*byte),
                _ => Err(EncodeError::Malformed),
            };
            let bytes = items.iter().map(byte).collect::<Result<Vec<_>, _>>()?;
            let start = to.append(&bytes)?;
            to.put_span(at, start, bytes.len());
        }
        (LayoutKind::List(item), Val::List(items)) => {
            let size = item.size as usize;
            let start = to.reserve(size.saturating_mul(items.len()), item.align)?;
            to.put_span(at, start, items.len());
            for (index, value) in items.iter().enumerate() {
                write(item, value, to, start + index * size)?;
            }
        }
        (LayoutKind::Tuple(parts), Val::Tuple(items)) if parts.len() == items.len() => {
            for ((offset, part), value) in parts.iter().zip(items) {
                write(part, value, to, at + *offset as usize)?;
            }
        }
        (LayoutKind::Record(parts), Val::Record(fields)) if parts.len() == fields.len() => {
            for (part, (_, value)) in parts.iter().zip(fields) {
                write(&part.layout, value, to, at + part.offset as usize)?;
            }
        }
        (LayoutKind::Option(_), Val::Option(None)) => {}
        (LayoutKind::Option(item), Val::Option(Some(value))) => {
            to.put(at, [1]);
            write(item, value, to, payload)?;
        }
        (LayoutKind::Result(ok, _), Val::Result(Ok(value))) => {
            write_payload(ok.as_deref(), value.as_deref(), to, payload)?;
        }
        (LayoutKind::Result(_, err), Val::Result(Err(value))) => {
            to.put(at, [1]);
            write_payload(err.as_deref(), value.as_deref(), to, payload)?;
        }
        (LayoutKind::Variant(cases), Val::Variant(name, value)) => {
            let mut cases_in_order = (0..).zip(cases.iter());
            let (index, case) =
                cases_in_order.find(|(_, case)| case.name.wit() == name).ok_or(EncodeError::Malformed)?;
            to.put_sized(at, discriminant(cases.len()), index);
            write_payload(case.payload.as_ref(), value.as_deref(), to, payload)?;
        }
        (LayoutKind::Enum(names), Val::Enum(name)) => to.put_sized(at, layout.size, position(names, name)?),
        (LayoutKind::Flags(names), Val::Flags(set)) => {
            let mut bits = 0;
            for name in set {
                bits |= 1_u32.checked_shl(position(names, name)?).unwrap_or(0);
            }
            to.put_sized(at, layout.size, bits);
        }
        _ => return Err(EncodeError::Malformed),
    }
    Ok(())
}

fn write_payload(
    layout: Option<&AbiLayout>,
    value: Option<&Val>,
    to: &mut AbiBufferWriter,
    at: usize,
) -> Result<(), EncodeError> {
    match (layout, value) {
        (None, None) => Ok(()),
        (Some(layout), Some(value)) => write(layout, value, to, at),
        _ => Err(EncodeError::Malformed),
    }
}

fn position(names: &[WitName], wit: &str) -> Result<u32, EncodeError> {
    (0..).zip(names).find(|(_, name)| name.wit() == wit).map(|(at, _)| at).ok_or(EncodeError::Malformed)
}
