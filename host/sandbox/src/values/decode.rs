//! Images to JSON: the guest's result, under the names that callers use, as text or as a value.

use std::cell::Cell;
use std::io;

use cofferdam_core::limits;
use cofferdam_core::secret::{Scanner, SecretMatch};
use serde::Serialize;
use serde_json::{Map, Value};

use super::abi_buffer::{AbiBuffer, MalformedBuffer};
use super::layout::{AbiLayout, LayoutKind, OperationLayout};
use super::serialize::SerializedValue;

/// The result of an operation.
#[derive(Debug, PartialEq)]
pub(crate) enum DecodedResult<A> {
    /// Its value; `null` where its type has none.
    Value(A),
    /// The contract's `failure`, as JSON.
    Failure(Value),
}

/// The reason why an image does not become JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// See [`Malformed`].
    Malformed,
    /// The value would take more of the host's memory than the limit.
    TooLarge,
    /// It would take more of the host's memory than the attempt has left.
    NoRoom,
    /// Its JSON text exceeds the limit: it has at least this many bytes.
    TooLong(u64),
}

impl From<MalformedBuffer> for DecodeError {
    fn from(MalformedBuffer: MalformedBuffer) -> Self {
        Self::Malformed
    }
}

/// Decodes the result of a call from the image that lies at `base`, within `room` bytes of the host's memory.
pub(super) fn decode_result<A: ResultFormat>(
    layout: &OperationLayout,
    image: &[u8],
    base: u32,
    room: &Cell<usize>,
) -> Result<DecodedResult<A>, DecodeError> {
    let result = &layout.result;
    let LayoutKind::Result(ok, err) = &result.kind else { return Err(DecodeError::Malformed) };
    let image = AbiBuffer::new(image, base);
    let payload = |layout| ResultPayload { layout, at: result.payload as usize, buffer: image, room };
    match image.get(0)? {
        [0] => Ok(DecodedResult::Value(A::read(payload(ok.as_deref()))?)),
        [1] => Ok(DecodedResult::Failure(payload(err.as_deref()).value()?)),
        _ => Err(DecodeError::Malformed),
    }
}

/// The form in which a caller gets a result.
pub trait ResultFormat: Sized + Send {
    /// Reads it, within the limits of a result.
    fn read(payload: ResultPayload<'_>) -> Result<Self, DecodeError>;

    /// Returns the first secret in its JSON text.
    fn find_secret(&self, scanner: &Scanner) -> Option<SecretMatch>;

    /// Returns the length of its list `errors`.
    fn failed_items(&self) -> u64;

    /// Appends its compact JSON text to `text`.
    fn append_to(&self, text: &mut Vec<u8>);

    /// Parses it from such a text.
    fn from_json(text: &[u8]) -> Option<Self>;
}

impl ResultFormat for Value {
    fn read(payload: ResultPayload<'_>) -> Result<Self, DecodeError> {
        let value = payload.value()?;
        match over(&value, limits::PAYLOAD_BYTES as u64) {
            None => Ok(value),
            Some(size) => Err(DecodeError::TooLong(size)),
        }
    }

    fn find_secret(&self, scanner: &Scanner) -> Option<SecretMatch> {
        scanner.find_in_json(self)
    }

    fn failed_items(&self) -> u64 {
        self.get("errors").and_then(Value::as_array).map_or(0, |errors| errors.len() as u64)
    }

    fn append_to(&self, text: &mut Vec<u8>) {
        // The keys are texts and the memory grows, so this cannot fail.
        let _ = serde_json::to_writer(text, self);
    }

    fn from_json(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

/// JSON text, compact.
impl ResultFormat for String {
    fn read(payload: ResultPayload<'_>) -> Result<Self, DecodeError> {
        payload.text()
    }

    fn find_secret(&self, scanner: &Scanner) -> Option<SecretMatch> {
        scanner.find(self.as_bytes())
    }

    fn failed_items(&self) -> u64 {
        /// A deserializer that skips everything else, and keeps nothing.
        #[derive(serde::Deserialize)]
        struct PartialResult {
            errors: Vec<serde::de::IgnoredAny>,
        }
        serde_json::from_str::<PartialResult>(self).map_or(0, |partial| partial.errors.len() as u64)
    }

    fn append_to(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(self.as_bytes());
    }

    fn from_json(text: &[u8]) -> Option<Self> {
        std::str::from_utf8(text).ok().map(str::to_owned)
    }
}

/// A side of a result in an image; without a layout it is `null`.
#[derive(Clone, Copy)]
pub struct ResultPayload<'i> {
    layout: Option<&'i AbiLayout>,
    at: usize,
    buffer: AbiBuffer<'i>,
    room: &'i Cell<usize>,
}

impl ResultPayload<'_> {
    /// Decodes into a value of at most [`limits::RESULT_BYTES`] of the host's memory.
    fn value(self) -> Result<Value, DecodeError> {
        let most = self.room.get().min(limits::RESULT_BYTES);
        let budget = Cell::new(Some(most));
        let written = self.write(&budget, serde_json::value::Serializer);
        let taken = most.saturating_sub(budget.get().unwrap_or(0));
        self.room.set(self.room.get().saturating_sub(taken));
        written.map_err(|()| match budget.get() {
            None if most < limits::RESULT_BYTES => DecodeError::NoRoom,
            None => DecodeError::TooLarge,
            Some(_) => DecodeError::Malformed,
        })
    }

    /// Encodes as JSON text of at most [`limits::PAYLOAD_BYTES`]. Growing it may take three times its length
    /// for a moment.
    fn text(self) -> Result<String, DecodeError> {
        let most = (self.room.get() / 3).min(limits::PAYLOAD_BYTES);
        let mut text = BoundedWriter { text: Vec::new(), most, over: false };
        text.text.reserve(self.buffer.len().min(most));
        let written = self.write(&Cell::new(Some(usize::MAX)), &mut serde_json::Serializer::new(&mut text));
        self.room.set(self.room.get().saturating_sub(text.text.capacity()));
        match written {
            _ if text.over && most < limits::PAYLOAD_BYTES => Err(DecodeError::NoRoom),
            _ if text.over => Err(DecodeError::TooLong(limits::PAYLOAD_BYTES as u64 + 1)),
            Ok(()) => String::from_utf8(text.text).map_err(|_| DecodeError::Malformed),
            Err(()) => Err(DecodeError::Malformed),
        }
    }

    fn write<S: serde::Serializer>(self, budget: &Cell<Option<usize>>, to: S) -> Result<S::Ok, ()> {
        let written = SerializedValue { layout: self.layout, at: self.at, buffer: self.buffer, budget };
        written.serialize(to).map_err(drop)
    }
}

/// Text that stops growing at its limit.
struct BoundedWriter {
    text: Vec<u8>,
    most: usize,
    over: bool,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.most.saturating_sub(self.text.len()) {
            self.over = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the length of the compact text of `value`, if it is more than `limit`. Writing the text to count
/// it costs as much as sending it, so cheap upper bounds come first.
pub(super) fn over(value: &Value, limit: u64) -> Option<u64> {
    let fits = |text| at_most(value, &mut limit.clone(), text);
    if fits(all_escaped) || fits(escaped) {
        return None;
    }
    Some(exact(value)).filter(|size| *size > limit)
}

/// Returns the length of the text of an object, if it is more than `limit`.
pub(super) fn fields_over(fields: &Map<String, Value>, limit: u64) -> Option<u64> {
    let fits = |text| fields_at_most(fields, &mut limit.clone(), text);
    if fits(all_escaped) || fits(escaped) {
        return None;
    }
    Some(exact(fields)).filter(|size| *size > limit)
}

/// Subtracts at least the length of the text from `left`; returns false if `left` may not suffice.
fn at_most(value: &Value, left: &mut u64, text: fn(&str) -> u64) -> bool {
    let mut take = |bytes: u64| left.checked_sub(bytes).map(|rest| *left = rest).is_some();
    match value {
        Value::Null | Value::Bool(_) => take(6),
        // The longest of an integer and a float: 24 bytes, and a comma.
        Value::Number(_) => take(25),
        Value::String(string) => take(text(string)),
        Value::Array(items) => take(3) && items.iter().all(|item| at_most(item, left, text)),
        Value::Object(fields) => fields_at_most(fields, left, text),
    }
}

fn fields_at_most(fields: &Map<String, Value>, left: &mut u64, text: fn(&str) -> u64) -> bool {
    let mut take = |bytes: u64| left.checked_sub(bytes).map(|rest| *left = rest).is_some();
    take(3)
        && fields.iter().all(|(key, value)| match left.checked_sub(text(key)) {
            Some(rest) => {
                *left = rest;
                at_most(value, left, text)
            }
            None => false,
        })
}

/// Returns the length in quotes, with a comma or a colon, and every byte escaped.
fn all_escaped(text: &str) -> u64 {
    6 * text.len() as u64 + 3
}

/// Returns the length with only those bytes escaped that need it.
fn escaped(text: &str) -> u64 {
    let escaped = text.bytes().filter(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\').count();
    text.len() as u64 + 5 * escaped as u64 + 3
}

fn exact(value: &impl Serialize) -> u64 {
    struct SizeCount(u64);
    impl std::io::Write for SizeCount {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len() as u64);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = SizeCount(0);
    // Writing a `Value` to a writer that never fails cannot fail.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use serde_json::json;

    use super::*;

    #[test]
    fn size_limits_are_exact() {
        let values = [
            json!(null),
            json!([true, false, -1.5e-300, u64::MAX, i64::MIN]),
            json!({"a": "\u{1}\u{1f}\"\\\n🦀", "b\n": {"c": []}}),
            json!(["x".repeat(100), {}]),
        ];
        for value in values {
            let size = serde_json::to_string(&value).unwrap().len() as u64;
            assert_eq!(over(&value, size), None, "{value}");
            assert_eq!(over(&value, size - 1), Some(size), "{value}");
            for text in [all_escaped, escaped] {
                assert!(!at_most(&value, &mut (size - 1), text), "{value}");
            }
        }
    }
}
