//! The methods of HTTP: the ones that every connector may send, and the ones that a manifest adds.

use cofferdam_core::document::{InvalidValue, SpannedItem, quoted};
use http::Method;

/// The methods that every connector may send, in the order in which they are shown.
pub const EVERYONES_METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];

/// Most characters of a method that a manifest names.
const MAX_CHARS: usize = 32;

/// Returns whether no connector may send `method`: CONNECT opens a tunnel past the gate, TRACE (and TRACK, its other
/// name) makes the server return what the host added to the request.
pub fn is_forbidden_method(method: &str) -> bool {
    ["CONNECT", "TRACE", "TRACK"].iter().any(|forbidden| method.eq_ignore_ascii_case(forbidden))
}

/// Returns whether a manifest may write `text` as a method: upper case and `-`, as every registered method is.
pub fn is_method_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_uppercase() || b == b'-';
    text.len() <= MAX_CHARS && text.starts_with(|c: char| c.is_ascii_uppercase()) && text.bytes().all(inner)
}

/// Reads one entry of `methods`; `before` are the entries above it.
pub(super) fn extra_method(text: &SpannedItem<'_, &str>, before: &[Method]) -> Option<Method> {
    let method = text.parse(|text| read(text))?;
    if before.contains(&method) {
        let message = format!("\"{method}\" stands in the list twice");
        text.refuse(InvalidValue::new(message, "remove one of the two"));
        return None;
    }
    Some(method)
}

fn read(text: &str) -> Result<Method, InvalidValue> {
    if is_forbidden_method(text) {
        let message = format!("{} is a method that no connector may send", quoted(text));
        return Err(InvalidValue::new(message, "remove it"));
    }
    if EVERYONES_METHODS.contains(&text) {
        let message = format!("every connector may send {text}");
        return Err(InvalidValue::new(message, "remove it; the list is for other methods"));
    }
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| is_method_name(text));
    method.ok_or_else(|| {
        let message = format!("{} is not the name of a method", quoted(text));
        let upper = text.to_ascii_uppercase();
        let fix = match EVERYONES_METHODS.contains(&upper.as_str()) {
            true => format!("remove it: every connector may send {upper}"),
            false if is_method_name(&upper) => format!("write it as \"{upper}\""),
            false => format!("write up to {MAX_CHARS} upper-case letters and `-`, like \"PROPFIND\""),
        };
        InvalidValue::new(message, fix)
    })
}
