//! The size of values, as far as schemas bound it.

use serde_json::Value;

use crate::document::{Document, Node};

/// The memory of a connector that asks for none, in MiB.
const USUAL: u64 = 64;

/// The most that a host gives, in MiB.
const CEILING: u64 = 1024;

/// The deepest level that is looked at.
const MAX_DEPTH: usize = 8;

/// Returns the memory in MiB for values of these schemas, if they say that they can be large.
pub(crate) fn memory(document: &Document, schemas: &[Node<'_>]) -> Option<u64> {
    let largest = schemas.iter().filter_map(|schema| bytes(document, schema, 0)).max()?;
    // A value is held as bytes, as JSON, and in the form of the interface.
    let needed = largest.saturating_mul(6).div_ceil(1024 * 1024).saturating_add(16);
    (needed > USUAL).then(|| needed.next_power_of_two().min(CEILING))
}

/// Returns the largest size in bytes of a value; none if the schema does not bound it.
fn bytes(document: &Document, schema: &Node<'_>, depth: usize) -> Option<u64> {
    if depth > MAX_DEPTH {
        return None;
    }
    let schema = document.follow(schema).ok()?;
    let amount = |key: &str| schema.value.get(key).and_then(Value::as_u64);
    if let Some(most) = amount("maxLength") {
        return Some(most);
    }
    if let (Some(most), Some(items)) = (amount("maxItems"), schema.get("items")) {
        return Some(most.saturating_mul(bytes(document, &items, depth + 1)?));
    }
    // A record is at least as large as its largest field.
    schema.get("properties")?.fields().filter_map(|(_, field)| bytes(document, &field, depth + 1)).max()
}
