//! Numbers and characters from JSON: what fits is taken, and nothing is rounded to make it fit.

use super::argument_error::ArgumentError;
use super::layout::Kind;

/// A JSON value as it is met: all of it, or that an array or an object starts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token<'t> {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'t str),
    Array,
    Object,
}

impl Token<'_> {
    /// What it is, in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Token::Null => "null",
            Token::Bool(_) => "a boolean",
            Token::Signed(_) | Token::Unsigned(_) | Token::Float(_) => "a number",
            Token::Text(_) => "a string",
            Token::Array => "an array",
            Token::Object => "an object",
        }
    }
}

/// An integer of so many bits.
pub(super) fn signed(bits: u8, token: Token<'_>) -> Result<i64, ArgumentError> {
    let number = match token {
        Token::Signed(number) => Some(number),
        Token::Unsigned(number) => i64::try_from(number).ok(),
        Token::Float(_) => None,
        Token::Text(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(&Kind::Signed(bits), other)),
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

/// An integer of so many bits, and without a sign.
pub(super) fn unsigned(bits: u8, token: Token<'_>) -> Result<u64, ArgumentError> {
    let number = match token {
        Token::Unsigned(number) => Some(number),
        Token::Signed(number) => u64::try_from(number).ok(),
        Token::Float(_) => None,
        Token::Text(text) if bits == 64 => whole(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(&Kind::Unsigned(bits), other)),
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

#[expect(
    clippy::cast_precision_loss,
    reason = "JSON has one kind of number: an integer is the nearest float"
)]
pub(super) fn float(bits: u8, token: Token<'_>) -> Result<Float, ArgumentError> {
    let number = match token {
        Token::Float(number) => Some(number),
        Token::Signed(number) => Some(number as f64),
        Token::Unsigned(number) => Some(number as f64),
        Token::Text("NaN") => Some(f64::NAN),
        Token::Text("Infinity") => Some(f64::INFINITY),
        Token::Text("-Infinity") => Some(f64::NEG_INFINITY),
        _ => None,
    };
    let wrong = || ArgumentError::got("a number, \"NaN\", \"Infinity\" or \"-Infinity\"", token);
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
