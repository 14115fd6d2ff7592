//! Numbers and characters from JSON: values that fit are accepted, and never rounded to fit.

use super::argument_error::ArgumentError;
use super::layout::LayoutKind;

/// A JSON value as it is read: a complete scalar, or the start of an array or an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScalarToken<'t> {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'t str),
    Array,
    Object,
}

impl ScalarToken<'_> {
    /// Describes the value in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            ScalarToken::Null => "null",
            ScalarToken::Bool(_) => "a boolean",
            ScalarToken::Signed(_) | ScalarToken::Unsigned(_) | ScalarToken::Float(_) => "a number",
            ScalarToken::Text(_) => "a string",
            ScalarToken::Array => "an array",
            ScalarToken::Object => "an object",
        }
    }
}

/// Returns an integer of so many bits.
pub(super) fn signed(bits: u8, token: ScalarToken<'_>) -> Result<i64, ArgumentError> {
    let number = match token {
        ScalarToken::Signed(number) => Some(number),
        ScalarToken::Unsigned(number) => i64::try_from(number).ok(),
        ScalarToken::Float(_) => None,
        ScalarToken::Text(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(&LayoutKind::Signed(bits), other)),
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

/// Returns an unsigned integer of so many bits.
pub(super) fn unsigned(bits: u8, token: ScalarToken<'_>) -> Result<u64, ArgumentError> {
    let number = match token {
        ScalarToken::Unsigned(number) => Some(number),
        ScalarToken::Signed(number) => u64::try_from(number).ok(),
        ScalarToken::Float(_) => None,
        ScalarToken::Text(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(&LayoutKind::Unsigned(bits), other)),
    };
    let fits = |number: &u64| bits == 64 || *number >> bits == 0;
    number
        .filter(fits)
        .ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits u{bits}")))
}

/// Returns text that consists of digits with at most a minus: `parse` alone would also accept a plus sign.
fn whole(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// A number of either width.
pub(super) enum FloatValue {
    Narrow(f32),
    Wide(f64),
}

#[expect(
    clippy::cast_precision_loss,
    reason = "JSON has one kind of number: an integer is the nearest float"
)]
pub(super) fn float(bits: u8, token: ScalarToken<'_>) -> Result<FloatValue, ArgumentError> {
    let number = match token {
        ScalarToken::Float(number) => Some(number),
        ScalarToken::Signed(number) => Some(number as f64),
        ScalarToken::Unsigned(number) => Some(number as f64),
        ScalarToken::Text("NaN") => Some(f64::NAN),
        ScalarToken::Text("Infinity") => Some(f64::INFINITY),
        ScalarToken::Text("-Infinity") => Some(f64::NEG_INFINITY),
        _ => None,
    };
    let wrong = || ArgumentError::got("a number, \"NaN\", \"Infinity\" or \"-Infinity\"", token);
    let number = number.ok_or_else(wrong)?;
    if bits == 64 {
        return Ok(FloatValue::Wide(number));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked on the next line; f32 rounds by intent")]
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return Err(ArgumentError::new("expected a number that fits f32"));
    }
    Ok(FloatValue::Narrow(narrow))
}

pub(super) fn one_char(text: &str) -> Result<char, ArgumentError> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c),
        _ => Err(ArgumentError::new("expected a string of exactly one character")),
    }
}
