//! JSON to component values: what a caller gives is checked against the types before a guest exists.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use wasmtime::component::Val;

use crate::package::{Case, Field, Name, Shape};

/// An argument that does not fit its type: where, and what was expected. It never repeats the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentError {
    /// Steps from the inside out.
    path: Vec<String>,
    expected: String,
}

impl ArgumentError {
    fn new(expected: impl Into<String>) -> Self {
        Self { path: Vec::new(), expected: expected.into() }
    }

    fn mismatch(expected: impl fmt::Display, got: &Value) -> Self {
        Self::new(format!("expected {expected}, got {}", kind(got)))
    }

    fn under(mut self, step: impl Into<String>) -> Self {
        self.path.push(step.into());
        self
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("args")?;
        self.path.iter().rev().try_for_each(|step| f.write_str(step))?;
        write!(f, ": {}", self.expected)
    }
}

/// Turns the arguments object into the values of the parameters, in order.
pub(crate) fn lower_arguments(params: &[Field], args: Value) -> Result<Vec<Val>, ArgumentError> {
    let fields = lower_fields(params, args)?;
    Ok(fields.into_iter().map(|(_, value)| value).collect())
}

fn lower(shape: &Shape, value: Value) -> Result<Val, ArgumentError> {
    Ok(match (shape, value) {
        (Shape::Bool, Value::Bool(value)) => Val::Bool(value),
        (Shape::String, Value::String(text)) => Val::String(text),
        (Shape::Char, Value::String(text)) => Val::Char(one_char(&text)?),
        (Shape::Bytes, Value::String(text)) => bytes(&text)?,
        (Shape::Signed(bits), value) => signed(*bits, &value)?,
        (Shape::Unsigned(bits), value) => unsigned(*bits, &value)?,
        (Shape::Float(bits), value) => float(*bits, &value)?,
        (Shape::List(item), Value::Array(items)) => Val::List(lower_items(items, |_| item)?),
        (Shape::Tuple(shapes), Value::Array(items)) if items.len() == shapes.len() => {
            Val::Tuple(lower_items(items, |at| shapes.get(at).unwrap_or(&Shape::Bool))?)
        }
        (Shape::Option(inner), value) => Val::Option(lower_option(inner, value)?),
        (Shape::Result(ok, err), Value::Object(sides)) => lower_result(ok.as_ref(), err.as_ref(), sides)?,
        (Shape::Record(fields), value @ Value::Object(_)) => {
            let fields = lower_fields(fields, value)?;
            Val::Record(fields.into_iter().map(|(name, value)| (name.wit().to_owned(), value)).collect())
        }
        (Shape::Variant(cases), value) => lower_variant(cases, value)?,
        (Shape::Enum(names), Value::String(text)) => Val::Enum(one_of(names, &text)?.wit().to_owned()),
        (Shape::Flags(names), Value::Array(items)) => lower_flags(names, items)?,
        (shape, value) => return Err(ArgumentError::mismatch(wanted(shape), &value)),
    })
}

fn lower_items<'s>(items: Vec<Value>, shape: impl Fn(usize) -> &'s Shape) -> Result<Vec<Val>, ArgumentError> {
    let lower_at = |(at, item)| lower(shape(at), item).map_err(|error| error.under(format!("[{at}]")));
    items.into_iter().enumerate().map(lower_at).collect()
}

fn lower_fields(fields: &[Field], value: Value) -> Result<Vec<(&Name, Val)>, ArgumentError> {
    let Value::Object(mut object) = value else {
        return Err(ArgumentError::mismatch("an object", &value));
    };
    let mut lowered = Vec::with_capacity(fields.len());
    for Field { name, shape } in fields {
        let value = match (object.swap_remove(name.json()), shape) {
            (Some(value), _) => lower(shape, value),
            (None, Shape::Option(_)) => Ok(Val::Option(None)),
            (None, _) => Err(ArgumentError::new(format!("missing; expected {}", wanted(shape)))),
        };
        lowered.push((name, value.map_err(|error| error.under(format!(".{}", name.json())))?));
    }
    match object.keys().next() {
        None => Ok(lowered),
        Some(unknown) => {
            let names = fields.iter().map(|field| field.name.json());
            let near = crate::spelling::nearest(unknown, names.clone())
                .map(|near| format!("; did you mean `{near}`?"));
            let known = if fields.is_empty() { "none".into() } else { names.collect::<Vec<_>>().join(", ") };
            let unknown = crate::failure::safe_line(unknown, 64);
            Err(ArgumentError::new(format!(
                "there is no such field{} The fields are: {known}",
                near.unwrap_or(".".into())
            ))
            .under(format!(".{unknown}")))
        }
    }
}

/// `null` is none; an option directly inside an option is wrapped, so that both nones can be told apart.
fn lower_option(inner: &Shape, value: Value) -> Result<Option<Box<Val>>, ArgumentError> {
    let value = match (inner, value) {
        (_, Value::Null) => return Ok(None),
        (Shape::Option(_), Value::Object(mut object)) if object.len() == 1 && object.contains_key("some") => {
            object.swap_remove("some").unwrap_or_default()
        }
        (Shape::Option(_), value) => return Err(ArgumentError::mismatch("null or {\"some\": ..}", &value)),
        (_, value) => value,
    };
    Ok(Some(Box::new(lower(inner, value)?)))
}

fn lower_result(
    ok: Option<&Arc<Shape>>,
    err: Option<&Arc<Shape>>,
    sides: Map<String, Value>,
) -> Result<Val, ArgumentError> {
    let mut sides = sides.into_iter();
    let (side, value) = match (sides.next(), sides.next()) {
        (Some(side), None) => side,
        _ => return Err(ArgumentError::new("expected {\"ok\": ..} or {\"err\": ..}")),
    };
    let payload = |shape: Option<&Arc<Shape>>, step: &str| match (shape, value) {
        (None, Value::Null) => Ok(None),
        (None, value) => Err(ArgumentError::mismatch("null", &value).under(step)),
        (Some(shape), value) => lower(shape, value).map(|v| Some(Box::new(v))).map_err(|e| e.under(step)),
    };
    match side.as_str() {
        "ok" => Ok(Val::Result(Ok(payload(ok, ".ok")?))),
        "err" => Ok(Val::Result(Err(payload(err, ".err")?))),
        _ => Err(ArgumentError::new("expected {\"ok\": ..} or {\"err\": ..}")),
    }
}

fn lower_variant(cases: &[Case], value: Value) -> Result<Val, ArgumentError> {
    let (name, payload) = match value {
        Value::String(name) => (name, None),
        Value::Object(object) if object.len() == 1 => match object.into_iter().next() {
            Some((name, payload)) => (name, Some(payload)),
            None => return Err(ArgumentError::new(wanted_cases(cases))),
        },
        value => return Err(ArgumentError::mismatch(wanted_cases(cases), &value)),
    };
    let Some(case) = cases.iter().find(|case| case.name.json() == name) else {
        return Err(ArgumentError::new(format!("expected {}", wanted_cases(cases))));
    };
    let step = || format!(".{}", case.name.json());
    let payload = match (&case.payload, payload) {
        (None, None) => None,
        (Some(shape), Some(payload)) => {
            Some(Box::new(lower(shape, payload).map_err(|error| error.under(step()))?))
        }
        (Some(shape), None) => {
            return Err(
                ArgumentError::new(format!("missing payload; expected {}", wanted(shape))).under(step())
            );
        }
        (None, Some(_)) => {
            return Err(ArgumentError::new(format!(
                "takes no payload; write it as \"{}\"",
                case.name.json()
            ))
            .under(step()));
        }
    };
    Ok(Val::Variant(case.name.wit().to_owned(), payload))
}

fn lower_flags(names: &[Name], items: Vec<Value>) -> Result<Val, ArgumentError> {
    let mut flags: Vec<String> = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let flag = match &item {
            Value::String(text) => one_of(names, text),
            other => Err(ArgumentError::mismatch("a string", other)),
        };
        let flag = flag.map_err(|error| error.under(format!("[{at}]")))?.wit();
        if flags.iter().any(|known| known == flag) {
            return Err(ArgumentError::new("named twice").under(format!("[{at}]")));
        }
        flags.push(flag.to_owned());
    }
    Ok(Val::Flags(flags))
}

fn signed(bits: u8, value: &Value) -> Result<Val, ArgumentError> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(format!("a whole number (s{bits})"), other)),
    };
    let fits = match (bits, number) {
        (8, Some(n)) => i8::try_from(n).ok().map(Val::S8),
        (16, Some(n)) => i16::try_from(n).ok().map(Val::S16),
        (32, Some(n)) => i32::try_from(n).ok().map(Val::S32),
        (_, Some(n)) => Some(Val::S64(n)),
        (_, None) => None,
    };
    fits.ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits s{bits}")))
}

fn unsigned(bits: u8, value: &Value) -> Result<Val, ArgumentError> {
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(format!("a whole number (u{bits})"), other)),
    };
    let fits = match (bits, number) {
        (8, Some(n)) => u8::try_from(n).ok().map(Val::U8),
        (16, Some(n)) => u16::try_from(n).ok().map(Val::U16),
        (32, Some(n)) => u32::try_from(n).ok().map(Val::U32),
        (_, Some(n)) => Some(Val::U64(n)),
        (_, None) => None,
    };
    fits.ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits u{bits}")))
}

/// Text that is digits with at most a minus: `parse` alone would take a plus sign too.
fn whole(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

fn float(bits: u8, value: &Value) -> Result<Val, ArgumentError> {
    let number = match value {
        Value::Number(number) => Number::as_f64(number),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    };
    let wrong = || ArgumentError::mismatch("a number, \"NaN\", \"Infinity\" or \"-Infinity\"", value);
    let number = number.ok_or_else(wrong)?;
    if bits == 64 {
        return Ok(Val::Float64(number));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked on the next line; f32 rounds by intent")]
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return Err(ArgumentError::new("expected a number that fits f32"));
    }
    Ok(Val::Float32(narrow))
}

fn bytes(text: &str) -> Result<Val, ArgumentError> {
    let bytes =
        STANDARD.decode(text).map_err(|_| ArgumentError::new("expected base64 text (RFC 4648, padded)"))?;
    Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
}

fn one_char(text: &str) -> Result<char, ArgumentError> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c),
        _ => Err(ArgumentError::new("expected a string of exactly one character")),
    }
}

fn one_of<'n>(names: &'n [Name], text: &str) -> Result<&'n Name, ArgumentError> {
    names.iter().find(|name| name.json() == text).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(Name::json).collect();
        ArgumentError::new(format!("expected one of {}", known.join(", ")))
    })
}

/// What a shape wants, in one phrase without its inner fields.
fn wanted(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "true or false".into(),
        Shape::String => "a string".into(),
        Shape::Char => "a string of exactly one character".into(),
        Shape::Bytes => "base64 text".into(),
        Shape::Signed(bits) => format!("a whole number (s{bits})"),
        Shape::Unsigned(bits) => format!("a whole number (u{bits})"),
        Shape::Float(_) => "a number".into(),
        Shape::List(_) => "an array".into(),
        Shape::Flags(_) => "an array of flag names".into(),
        Shape::Tuple(items) => format!("an array of {}", items.len()),
        Shape::Option(inner) => format!("null or {}", wanted(inner)),
        Shape::Result(..) => "{\"ok\": ..} or {\"err\": ..}".into(),
        Shape::Record(_) => "an object".into(),
        Shape::Variant(cases) => wanted_cases(cases),
        Shape::Enum(names) => {
            format!("one of {}", names.iter().map(Name::json).collect::<Vec<_>>().join(", "))
        }
    }
}

fn wanted_cases(cases: &[Case]) -> String {
    let case = |case: &Case| match case.payload {
        Some(_) => format!("{{\"{}\": ..}}", case.name.json()),
        None => format!("\"{}\"", case.name.json()),
    };
    format!("one of {}", cases.iter().map(case).collect::<Vec<_>>().join(", "))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
