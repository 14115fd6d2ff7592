//! Numbers and characters from JSON: what fits is taken, and nothing is rounded to make it fit.

use serde_json::Value;

use super::argument_error::ArgumentError;

pub(super) fn signed(bits: u8, value: &Value) -> Result<i64, ArgumentError> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(format!("a whole number (s{bits})"), other)),
    };
    let fits = |number: &i64| match bits {
        8 => i8::try_from(*number).is_ok(),
        16 => i16::try_from(*number).is_ok(),
        32 => i32::try_from(*number).is_ok(),
        _ => true,
    };
    number
        .filter(fits)
        .ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits s{bits}")))
}

pub(super) fn unsigned(bits: u8, value: &Value) -> Result<u64, ArgumentError> {
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(format!("a whole number (u{bits})"), other)),
    };
    let fits = |number: &u64| bits == 64 || *number >> bits == 0;
    number
        .filter(fits)
        .ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits u{bits}")))
}

/// Text that is digits with at most a minus: `parse` alone would take a plus sign too.
fn whole(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// A number of either width.
pub(super) enum Float {
    Narrow(f32),
    Wide(f64),
}

pub(super) fn float(bits: u8, value: &Value) -> Result<Float, ArgumentError> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
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
        return Ok(Float::Wide(number));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked on the next line; f32 rounds by intent")]
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return Err(ArgumentError::new("expected a number that fits f32"));
    }
    Ok(Float::Narrow(narrow))
}

pub(super) fn one_char(text: &str) -> Result<char, ArgumentError> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c),
        _ => Err(ArgumentError::new("expected a string of exactly one character")),
    }
}
