//! JSON to an image: what a caller gives is checked against the types before a guest exists.

use serde_json::{Map, Value};

use super::argument_error::{ArgumentError, unknown_field, wanted, wanted_cases};
use super::flat::flatten;
use super::image::{Malformed, Writer};
use super::layout::{Case, Kind, Layout, OperationLayout, Part, SLOT, discriminant};
use super::scalars::{Float, float, one_char, signed, unsigned};
use crate::package::Name;
use crate::sandbox::bridge::BASE;

/// An operation's arguments as an image, checked against its types: the flat values, then the parameters
/// as a record, then what they point to.
pub(crate) struct Arguments {
    pub(super) image: Vec<u8>,
}

/// Turns the arguments object into the image of the parameters.
pub(super) fn arguments(layout: &OperationLayout, args: &Value) -> Result<Arguments, ArgumentError> {
    let mut writer = Writer::new(BASE);
    let slots = layout.flat_params() as usize;
    writer.reserve(layout.params_at(), 8)?;
    let params = &layout.params;
    let at = writer.reserve(params.size as usize, params.align)?;
    write(params, args, &mut writer, at)?;
    if slots > 0 {
        let mut flat = Vec::with_capacity(slots);
        // It was written by the same layout: reading it cannot fail.
        let _: Result<(), Malformed> = flatten(params, writer.read(), at, &mut flat);
        for (slot, value) in flat.into_iter().take(slots).enumerate() {
            writer.put(slot * SLOT, value.to_le_bytes());
        }
    }
    Ok(Arguments { image: writer.finish() })
}

fn write(layout: &Layout, value: &Value, to: &mut Writer, at: usize) -> Result<(), ArgumentError> {
    match (&layout.kind, value) {
        (Kind::String, Value::String(text)) => {
            let start = to.append(text.as_bytes())?;
            to.put_span(at, start, text.len());
        }
        (Kind::Record(parts, _), Value::Object(object)) => write_fields(parts, object, to, at)?,
        (Kind::List(item), Value::Array(items)) => {
            let size = item.size as usize;
            let start = to.reserve(size.saturating_mul(items.len()), item.align)?;
            to.put_span(at, start, items.len());
            for (index, value) in items.iter().enumerate() {
                write(item, value, to, start + index * size)
                    .map_err(|error| error.under(format!("[{index}]")))?;
            }
        }
        (Kind::Bool, Value::Bool(value)) => to.put(at, [u8::from(*value)]),
        (Kind::Char, Value::String(text)) => to.put(at, u32::from(one_char(text)?).to_le_bytes()),
        (Kind::Bytes, Value::String(text)) => {
            let (start, length) = to.append_base64(text)?;
            to.put_span(at, start, length);
        }
        (Kind::Signed(bits), value) => {
            let number = signed(*bits, value)?.to_le_bytes();
            put_number(to, at, layout.size, number);
        }
        (Kind::Unsigned(bits), value) => {
            let number = unsigned(*bits, value)?.to_le_bytes();
            put_number(to, at, layout.size, number);
        }
        (Kind::Float(bits), value) => match float(*bits, value)? {
            Float::Narrow(number) => to.put(at, number.to_le_bytes()),
            Float::Wide(number) => to.put(at, number.to_le_bytes()),
        },
        (Kind::Tuple(parts), Value::Array(items)) if items.len() == parts.len() => {
            for (index, ((offset, item), value)) in parts.iter().zip(items).enumerate() {
                write(item, value, to, at + *offset as usize)
                    .map_err(|error| error.under(format!("[{index}]")))?;
            }
        }
        (Kind::Option(inner), value) => {
            if let Some(value) = some(inner, value)? {
                to.put(at, [1]);
                write(inner, value, to, at + layout.payload as usize)?;
            }
        }
        (Kind::Result(ok, err), Value::Object(sides)) => {
            let (case, step, payload, value) = side(ok.as_deref(), err.as_deref(), sides)?;
            to.put(at, [case]);
            match payload {
                Some(payload) => write(payload, value, to, at + layout.payload as usize),
                None if value.is_null() => Ok(()),
                None => Err(ArgumentError::mismatch("null", value)),
            }
            .map_err(|error| error.under(step))?;
        }
        (Kind::Variant(cases), value) => write_variant(cases, layout.payload, value, to, at)?,
        (Kind::Enum(names), Value::String(text)) => {
            let case = u32::try_from(one_of(names, text)?).unwrap_or(u32::MAX);
            to.put_sized(at, layout.size, case);
        }
        (Kind::Flags(names), Value::Array(items)) => {
            to.put_sized(at, layout.size, flags(names, items)?);
        }
        (kind, value) => return Err(ArgumentError::mismatch(wanted(kind), value)),
    }
    Ok(())
}

/// The low bytes of a number that has been found to fit.
fn put_number(to: &mut Writer, at: usize, size: u32, number: [u8; 8]) {
    match (size, number) {
        (1, [a, ..]) => to.put(at, [a]),
        (2, [a, b, ..]) => to.put(at, [a, b]),
        (4, [a, b, c, d, ..]) => to.put(at, [a, b, c, d]),
        (_, number) => to.put(at, number),
    }
}

fn write_fields(
    parts: &[Part],
    object: &Map<String, Value>,
    to: &mut Writer,
    at: usize,
) -> Result<(), ArgumentError> {
    // Callers mostly keep the order of the type, and then nothing needs to be looked up.
    let mut in_order = object.iter().peekable();
    let mut found = 0;
    for Part { name, offset, layout } in parts {
        let value = match in_order.next_if(|(key, _)| *key == name.json()) {
            Some((_, value)) => Some(value),
            None => object.get(name.json()),
        };
        let at = at + *offset as usize;
        match (value, &layout.kind) {
            (Some(value), _) => {
                found += 1;
                write(layout, value, to, at)
            }
            (None, Kind::Option(_)) => Ok(()),
            (None, kind) => Err(ArgumentError::new(format!("missing; expected {}", wanted(kind)))),
        }
        .map_err(|error| error.under(format!(".{}", name.json())))?;
    }
    if found == object.len() {
        return Ok(());
    }
    let names = || parts.iter().map(|part| part.name.json());
    match object.keys().find(|key| names().all(|name| name != key.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(unknown_field(unknown, names())),
    }
}

/// `null` is none; an option directly inside an option is wrapped, so that both nones can be told apart.
fn some<'v>(inner: &Layout, value: &'v Value) -> Result<Option<&'v Value>, ArgumentError> {
    match (&inner.kind, value) {
        (_, Value::Null) => Ok(None),
        (Kind::Option(_), value) => match value.as_object().filter(|object| object.len() == 1) {
            Some(object) if object.contains_key("some") => Ok(object.get("some")),
            _ => Err(ArgumentError::mismatch("null or {\"some\": ..}", value)),
        },
        (_, value) => Ok(Some(value)),
    }
}

type Side<'l, 'v> = (u8, &'static str, Option<&'l Layout>, &'v Value);

fn side<'l, 'v>(
    ok: Option<&'l Layout>,
    err: Option<&'l Layout>,
    sides: &'v Map<String, Value>,
) -> Result<Side<'l, 'v>, ArgumentError> {
    let mut entries = sides.iter();
    match (entries.next(), entries.next()) {
        (Some((name, value)), None) if name == "ok" => Ok((0, ".ok", ok, value)),
        (Some((name, value)), None) if name == "err" => Ok((1, ".err", err, value)),
        _ => Err(ArgumentError::new("expected {\"ok\": ..} or {\"err\": ..}")),
    }
}

fn write_variant(
    cases: &[Case],
    payload_at: u32,
    value: &Value,
    to: &mut Writer,
    at: usize,
) -> Result<(), ArgumentError> {
    let (name, payload) = match value {
        Value::String(name) => (name, None),
        Value::Object(object) => match object.iter().next().filter(|_| object.len() == 1) {
            Some((name, payload)) => (name, Some(payload)),
            None => return Err(ArgumentError::mismatch(wanted_cases(cases), value)),
        },
        value => return Err(ArgumentError::mismatch(wanted_cases(cases), value)),
    };
    let Some((index, case)) = (0..).zip(cases).find(|(_, case)| case.name.json() == name) else {
        return Err(ArgumentError::new(format!("expected {}", wanted_cases(cases))));
    };
    to.put_sized(at, discriminant(cases.len()), index);
    let step = || format!(".{}", case.name.json());
    match (&case.payload, payload) {
        (None, None) => Ok(()),
        (Some(layout), Some(payload)) => {
            write(layout, payload, to, at + payload_at as usize).map_err(|error| error.under(step()))
        }
        (Some(layout), None) => {
            let wanted = wanted(&layout.kind);
            Err(ArgumentError::new(format!("missing payload; expected {wanted}")).under(step()))
        }
        (None, Some(_)) => {
            let name = case.name.json();
            Err(ArgumentError::new(format!("takes no payload; write it as \"{name}\"")).under(step()))
        }
    }
}

/// The bits of the flags that are named.
fn flags(names: &[Name], items: &[Value]) -> Result<u32, ArgumentError> {
    let mut bits = 0_u32;
    for (at, item) in items.iter().enumerate() {
        let flag = match item {
            Value::String(text) => one_of(names, text),
            other => Err(ArgumentError::mismatch("a string", other)),
        };
        let flag = flag.map_err(|error| error.under(format!("[{at}]")))?;
        let bit = u32::try_from(flag).ok().and_then(|flag| 1_u32.checked_shl(flag)).unwrap_or(0);
        if bits & bit != 0 {
            return Err(ArgumentError::new("named twice").under(format!("[{at}]")));
        }
        bits |= bit;
    }
    Ok(bits)
}

/// The position of a name.
fn one_of(names: &[Name], text: &str) -> Result<usize, ArgumentError> {
    names.iter().position(|name| name.json() == text).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(Name::json).collect();
        ArgumentError::new(format!("expected one of {}", known.join(", ")))
    })
}
