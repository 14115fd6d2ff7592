//! The length of a value's JSON text, measured only if it could matter.

use serde::Serialize;
use serde_json::{Map, Value};

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
    fn the_limit_is_exact_and_the_bounds_are_bounds() {
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
