//! Component values to JSON: what a guest returned, under the names that callers use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use wasmtime::component::Val;

use crate::package::{Name, Shape};

/// A value that is not of the shape its type promises: a fault of the host or of the runtime, since
/// wasmtime lifted it by the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The JSON of a value.
pub(crate) fn lift(shape: &Shape, value: Val) -> Result<Value, Malformed> {
    Ok(match (shape, value) {
        (Shape::Bool, Val::Bool(value)) => Value::Bool(value),
        (Shape::String, Val::String(text)) => Value::String(text),
        (Shape::Char, Val::Char(c)) => Value::String(c.into()),
        (Shape::Bytes, Val::List(items)) => Value::String(STANDARD.encode(lift_bytes(items)?)),
        (Shape::Signed(_), value) => lift_signed(&value)?,
        (Shape::Unsigned(_), value) => lift_unsigned(&value)?,
        (Shape::Float(_), Val::Float64(number)) => lift_float(number, number),
        // The shortest decimal that is this f32, not the f64 next to it.
        (Shape::Float(_), Val::Float32(number)) => {
            lift_float(f64::from(number), number.to_string().parse().unwrap_or(f64::from(number)))
        }
        (Shape::List(item), Val::List(items)) => {
            Value::Array(items.into_iter().map(|value| lift(item, value)).collect::<Result<_, _>>()?)
        }
        (Shape::Tuple(shapes), Val::Tuple(items)) if shapes.len() == items.len() => {
            let lifted = shapes.iter().zip(items).map(|(shape, value)| lift(shape, value));
            Value::Array(lifted.collect::<Result<_, _>>()?)
        }
        (Shape::Option(_), Val::Option(None)) => Value::Null,
        (Shape::Option(inner), Val::Option(Some(value))) => match &**inner {
            nested @ Shape::Option(_) => single("some", lift(nested, *value)?),
            inner => lift(inner, *value)?,
        },
        (Shape::Result(ok, _), Val::Result(Ok(value))) => single("ok", lift_payload(ok.as_deref(), value)?),
        (Shape::Result(_, err), Val::Result(Err(value))) => single("err", lift_payload(err.as_deref(), value)?),
        (Shape::Record(fields), Val::Record(values)) if fields.len() == values.len() => {
            let mut object = Map::with_capacity(fields.len());
            for (field, (_, value)) in fields.iter().zip(values) {
                object.insert(field.name.json().to_owned(), lift(&field.shape, value)?);
            }
            Value::Object(object)
        }
        (Shape::Variant(cases), Val::Variant(name, payload)) => {
            let case = cases.iter().find(|case| case.name.wit() == name).ok_or(Malformed)?;
            match &case.payload {
                Some(shape) => single(case.name.json(), lift_payload(Some(shape), payload)?),
                None => Value::String(case.name.json().to_owned()),
            }
        }
        (Shape::Enum(names), Val::Enum(name)) => lift_name(names, &name)?,
        (Shape::Flags(names), Val::Flags(flags)) => {
            Value::Array(flags.iter().map(|flag| lift_name(names, flag)).collect::<Result<_, _>>()?)
        }
        _ => return Err(Malformed),
    })
}

fn single(key: &str, value: Value) -> Value {
    let mut object = Map::with_capacity(1);
    object.insert(key.to_owned(), value);
    Value::Object(object)
}

fn lift_payload(shape: Option<&Shape>, value: Option<Box<Val>>) -> Result<Value, Malformed> {
    match (shape, value) {
        (None, None) => Ok(Value::Null),
        (Some(shape), Some(value)) => lift(shape, *value),
        _ => Err(Malformed),
    }
}

fn lift_name(names: &[Name], wit: &str) -> Result<Value, Malformed> {
    let name = names.iter().find(|name| name.wit() == wit).ok_or(Malformed)?;
    Ok(Value::String(name.json().to_owned()))
}

fn lift_bytes(items: Vec<Val>) -> Result<Vec<u8>, Malformed> {
    let byte = |item| match item {
        Val::U8(byte) => Ok(byte),
        _ => Err(Malformed),
    };
    items.into_iter().map(byte).collect()
}

fn lift_signed(value: &Val) -> Result<Value, Malformed> {
    match *value {
        Val::S8(n) => Ok(n.into()),
        Val::S16(n) => Ok(n.into()),
        Val::S32(n) => Ok(n.into()),
        Val::S64(n) => Ok(n.into()),
        _ => Err(Malformed),
    }
}

fn lift_unsigned(value: &Val) -> Result<Value, Malformed> {
    match *value {
        Val::U8(n) => Ok(n.into()),
        Val::U16(n) => Ok(n.into()),
        Val::U32(n) => Ok(n.into()),
        Val::U64(n) => Ok(n.into()),
        _ => Err(Malformed),
    }
}

fn lift_float(number: f64, shown: f64) -> Value {
    match Number::from_f64(shown) {
        Some(shown) => Value::Number(shown),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}
