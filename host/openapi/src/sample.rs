//! Samples of values: from the examples of a document, from its schemas, or from types.

use std::cell::Cell;

use serde_json::{Map, Number, Value, json};

use crate::document::{Document, Node};
use crate::names;
use crate::types::{CaseMark, Definition, Direction, JsonKind, Presence, Ty, TypeTable};

/// The deepest level at which optional fields are part of a sample.
const OPTIONAL_DEPTH: usize = 2;

/// The deepest level of a sample.
const MAX_DEPTH: usize = 12;

/// The most schemas that are looked at for a sample.
const MAX_SCHEMAS: usize = 2_000;

/// The most bytes of JSON in a sample.
const MAX_BYTES: usize = 6_000;

/// The longest text in a sample.
const MAX_TEXT: usize = 200;

/// A value as the service has it, and as the caller has it.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) wire: Value,
    pub(crate) wit: Value,
}

/// Returns a sample of a type that `schema` describes.
pub(crate) fn of(
    document: &Document,
    table: &TypeTable,
    ty: &Ty,
    schema: Option<&Node<'_>>,
    holders: &[Option<&Node<'_>>],
    direction: Direction,
) -> Sample {
    let mut candidates: Vec<Value> = Vec::new();
    for holder in holders.iter().flatten() {
        candidates.extend(examples(document, holder));
    }
    if let Some(schema) = schema {
        for optional in [OPTIONAL_DEPTH, 0] {
            let sampler = SchemaSampler { document, direction, optional, budget: Cell::new(MAX_SCHEMAS) };
            candidates.extend(sampler.sample(schema, 0));
        }
    }
    for candidate in candidates {
        let candidate = pruned(candidate, 0);
        if candidate.to_string().len() > MAX_BYTES {
            continue;
        }
        if let Some(wit) = to_wit(table, ty, &candidate)
            && let Some(wire) = to_wire(table, ty, &wit)
        {
            // What the service sends may have more than the type; what it gets is what the type says.
            let wire = if direction == Direction::Output { candidate } else { wire };
            return Sample { wire, wit };
        }
    }
    let wire = of_type(table, ty);
    let wit = to_wit(table, ty, &wire).unwrap_or(Value::Null);
    Sample { wire, wit }
}

/// Returns the examples at a place, in the order of preference.
fn examples(document: &Document, holder: &Node<'_>) -> Vec<Value> {
    let mut found: Vec<Value> = holder.value.get("example").cloned().into_iter().collect();
    for (_, example) in holder.get("examples").iter().flat_map(Node::fields) {
        if let Ok(example) = document.follow(&example)
            && let Some(value) = example.value.get("value")
        {
            found.push(value.clone());
        }
    }
    found
}

/// Makes samples of schemas.
struct SchemaSampler<'d> {
    document: &'d Document,
    direction: Direction,
    /// The level from which on only required fields are in the sample.
    optional: usize,
    /// The number of schemas that may still be looked at.
    budget: Cell<usize>,
}

impl SchemaSampler<'_> {
    /// Returns a sample that fits a schema as well as can be told.
    fn sample(&self, schema: &Node<'_>, depth: usize) -> Option<Value> {
        let Self { document, direction, optional, budget } = self;
        if depth > MAX_DEPTH || budget.get() == 0 {
            return None;
        }
        budget.set(budget.get() - 1);
        let schema = document.follow(schema).ok()?;
        let value = schema.value;
        for key in ["example", "default", "const"] {
            if let Some(example) = value.get(key).filter(|example| !example.is_null() || key == "const") {
                return Some(example.clone());
            }
        }
        if let Some(first) = value.get("examples").and_then(Value::as_array).and_then(|all| all.first()) {
            return Some(first.clone());
        }
        if let Some(first) = value.get("enum").and_then(Value::as_array).and_then(|all| all.first()) {
            return Some(first.clone());
        }
        let kind = match value.get("type") {
            Some(Value::String(one)) => Some(one.as_str()),
            Some(Value::Array(several)) => {
                several.iter().filter_map(Value::as_str).find(|one| *one != "null")
            }
            _ => None,
        };
        let mut object = Map::new();
        let mut is_object = kind == Some("object");
        for member in schema.get("allOf").iter().flat_map(Node::items) {
            match self.sample(&member, depth + 1)? {
                Value::Object(fields) => {
                    is_object = true;
                    object.extend(fields);
                }
                other => return Some(other),
            }
        }
        if let Some(properties) = schema.get("properties") {
            is_object = true;
            let required = value.get("required").and_then(Value::as_array);
            let hidden = if *direction == Direction::Input { "readOnly" } else { "writeOnly" };
            let is_taken = |name| required.is_some_and(|all| all.iter().any(|it| it == name));
            let mut is_empty = depth > 0 && !properties.fields().any(|(name, _)| is_taken(name));
            for (name, property) in properties.fields() {
                let is_required = is_taken(name);
                let resolved = document.follow(&property).ok()?;
                if property.flag(hidden) || resolved.flag(hidden) {
                    continue;
                }
                if !is_required && depth >= *optional {
                    // A form cannot carry an object without fields, so the sample has one of them.
                    if !(is_empty && is_scalar(&resolved)) {
                        continue;
                    }
                    is_empty = false;
                }
                match self.sample(&property, depth + 1) {
                    Some(value) => {
                        object.insert(name.to_owned(), value);
                    }
                    None if is_required => return None,
                    None => {}
                }
            }
        }
        if kind.is_none() || kind == Some("object") {
            for key in ["oneOf", "anyOf"] {
                let members: Vec<_> = schema.get(key).iter().flat_map(Node::items).collect();
                let first = members
                    .iter()
                    .find_map(|member| self.sample(member, depth + 1).filter(|value| !value.is_null()));
                match first {
                    Some(Value::Object(fields)) => {
                        is_object = true;
                        object.extend(fields);
                    }
                    Some(other) if !is_object => return Some(other),
                    _ => {}
                }
            }
        }
        if is_object {
            return Some(Value::Object(object));
        }
        let amount = |key: &str| value.get(key).and_then(Value::as_f64);
        Some(match kind {
            Some("boolean") => json!(true),
            Some("integer") => {
                let lowest =
                    amount("minimum").or(amount("exclusiveMinimum").map(|least| least + 1.0)).unwrap_or(1.0);
                let highest = amount("maximum").unwrap_or(f64::MAX);
                json!(lowest.max(1.0).min(highest).max(lowest).round() as i64)
            }
            Some("number") => {
                let lowest =
                    amount("minimum").or(amount("exclusiveMinimum").map(|least| least + 1.0)).unwrap_or(1.5);
                json!(lowest.max(1.5).min(amount("maximum").unwrap_or(f64::MAX)))
            }
            Some("array") => {
                let least = amount("minItems").unwrap_or(0.0);
                let item = schema.get("items").and_then(|items| self.sample(&items, depth + 1));
                let mut items: Vec<Value> = item.into_iter().collect();
                while (items.len() as f64) < least.min(10.0)
                    && let Some(first) = items.first().cloned()
                {
                    items.push(first);
                }
                Value::Array(items)
            }
            Some("null") => Value::Null,
            Some("string") => text(schema.text("format"), amount("minLength"), amount("maxLength")),
            _ if schema.get("items").is_some() => json!([]),
            _ if schema.text("format").is_some() => text(schema.text("format"), None, None),
            _ => json!({}),
        })
    }
}

/// True for a schema of values without parts.
fn is_scalar(schema: &Node<'_>) -> bool {
    matches!(schema.text("type"), Some("string" | "integer" | "number" | "boolean"))
}

fn text(format: Option<&str>, least: Option<f64>, most: Option<f64>) -> Value {
    let text = match format {
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("date") => "2026-01-31",
        Some("time") => "12:00:00Z",
        Some("email") => "ada@example.com",
        Some("uri" | "url") => "https://example.com/a",
        Some("uuid") => "0f8fad5b-d9cb-469f-a165-70867728950e",
        Some("ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("hostname") => "example.com",
        Some("byte") => "YWJj",
        _ => "text",
    };
    let mut text = text.to_owned();
    while (text.len() as f64) < least.unwrap_or(0.0).min(400.0) {
        text.push('x');
    }
    if let Some(most) = most
        && (text.len() as f64) > most
    {
        text.truncate(most as usize);
    }
    Value::String(text)
}

/// Keeps a sample small, and free of what scenarios take for placeholders.
fn pruned(value: Value, depth: usize) -> Value {
    match value {
        Value::Array(items) => {
            // A longer list may be what the schema asks for (minItems).
            let most = if depth > 1 { 2 } else { 3 };
            Value::Array(items.into_iter().take(most).map(|item| pruned(item, depth + 1)).collect())
        }
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(name, _)| name != "...")
                .map(|(name, value)| (name, pruned(value, depth + 1)))
                .collect(),
        ),
        Value::String(text) if text.chars().count() > MAX_TEXT => {
            Value::String(text.chars().take(MAX_TEXT).collect::<String>().replace("{{", "(("))
        }
        Value::String(text) => Value::String(text.replace("{{", "((")),
        other => other,
    }
}

/// Returns a value of a type, as the service has it.
fn of_type(table: &TypeTable, ty: &Ty) -> Value {
    match ty {
        Ty::Bool => json!(true),
        Ty::S32 | Ty::S64 | Ty::U32 | Ty::U64 => json!(1),
        Ty::F64 => json!(1.5),
        Ty::Text | Ty::Bytes => json!("text"),
        Ty::Json(_) => json!({}),
        Ty::List(inner) => json!([of_type(table, inner)]),
        Ty::Map(inner) => json!({ "name": of_type(table, inner) }),
        Ty::Nullable(_) => Value::Null,
        Ty::Named(id) => match table.definition(*id) {
            Some(Definition::Record(fields)) => {
                let required = fields.iter().filter(|field| field.presence == Presence::Required);
                Value::Object(required.map(|field| (field.wire.clone(), of_type(table, &field.ty))).collect())
            }
            Some(Definition::Enum(labels)) => labels.first().map_or(Value::Null, |label| json!(label.wire)),
            Some(Definition::Flags(labels)) => labels.iter().take(1).map(|label| json!(label.wire)).collect(),
            Some(Definition::Variant { tag, cases }) => {
                let Some(case) = cases.first() else { return Value::Null };
                let mut value = of_type(table, &case.ty);
                if let (Some(tag), CaseMark::Tags(tags), Value::Object(fields)) =
                    (tag, &case.mark, &mut value)
                {
                    fields.insert(tag.clone(), json!(tags.first()));
                }
                value
            }
            None => Value::Null,
        },
    }
}

/// Returns the JSON text of a value as the connector writes it: with sorted names.
fn json_text(value: &Value) -> String {
    sorted(value).to_string()
}

/// Returns a value with the names of its objects in the order in which the connector writes them.
pub(crate) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut pairs: Vec<_> = fields.iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(b.0));
            Value::Object(pairs.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

fn whole(value: &Value) -> Option<i128> {
    if let Some(number) = value.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = value.as_u64() {
        return Some(number.into());
    }
    let number = value.as_f64()?;
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i128)
}

fn integer(value: &Value, least: i128, most: i128) -> Option<Value> {
    let number = whole(value).filter(|number| (least..=most).contains(number))?;
    // The file of scenarios is TOML, whose numbers end here.
    i64::try_from(number).ok().map(Value::from)
}

/// Returns a value as the caller has it; none if it does not fit the type.
pub(crate) fn to_wit(table: &TypeTable, ty: &Ty, wire: &Value) -> Option<Value> {
    Some(match ty {
        Ty::Bool => Value::Bool(wire.as_bool()?),
        Ty::S32 => integer(wire, i32::MIN.into(), i32::MAX.into())?,
        Ty::S64 => integer(wire, i64::MIN.into(), i64::MAX.into())?,
        Ty::U32 => integer(wire, 0, u32::MAX.into())?,
        Ty::U64 => integer(wire, 0, u64::MAX.into())?,
        Ty::F64 => Value::Number(Number::from_f64(wire.as_f64()?)?),
        Ty::Text => Value::String(wire.as_str()?.to_owned()),
        Ty::Bytes => Value::String(base64(wire.as_str()?.as_bytes())),
        Ty::Json(_) => Value::String(json_text(wire)),
        Ty::List(inner) => {
            wire.as_array()?.iter().map(|item| to_wit(table, inner, item)).collect::<Option<_>>()?
        }
        Ty::Map(inner) => {
            let mut pairs: Vec<_> = wire.as_object()?.iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(b.0));
            let pair = |(name, value): (&String, &Value)| Some(json!([name, to_wit(table, inner, value)?]));
            pairs.into_iter().map(pair).collect::<Option<_>>()?
        }
        Ty::Nullable(_) if wire.is_null() => Value::Null,
        Ty::Nullable(inner) => to_wit(table, inner, wire)?,
        Ty::Named(id) => match table.definition(*id)? {
            Definition::Record(fields) => {
                let object = wire.as_object()?;
                let mut record = Map::new();
                for field in fields {
                    let value = object.get(&field.wire);
                    let wit = match (field.presence, value) {
                        (Presence::Required, Some(value)) => to_wit(table, &field.ty, value)?,
                        (Presence::Required, None) if matches!(field.ty, Ty::Nullable(_)) => Value::Null,
                        // A JSON text that is missing is null.
                        (Presence::Required, None) => return None,
                        (_, None) => Value::Null,
                        (Presence::Optional, Some(Value::Null)) => Value::Null,
                        (Presence::Optional, Some(value)) => to_wit(table, &field.ty, value)?,
                        (Presence::OptionalNullable, Some(Value::Null)) => json!({ "some": null }),
                        (Presence::OptionalNullable, Some(value)) => {
                            json!({ "some": to_wit(table, &field.ty, value)? })
                        }
                    };
                    record.insert(names::json(&field.name), wit);
                }
                Value::Object(record)
            }
            Definition::Enum(labels) => {
                let text = wire.as_str()?;
                Value::String(names::json(&labels.iter().find(|label| label.wire == text)?.name))
            }
            Definition::Flags(labels) => {
                let items = wire.as_array()?;
                if items.iter().any(|item| !labels.iter().any(|label| item == &label.wire)) {
                    return None;
                }
                let set = labels.iter().filter(|label| items.iter().any(|item| item == &label.wire));
                set.map(|label| Value::String(names::json(&label.name))).collect()
            }
            Definition::Variant { tag, cases } => {
                let case = cases.iter().find(|case| match (&case.mark, tag) {
                    (CaseMark::Tags(tags), Some(tag)) => wire
                        .get(tag)
                        .and_then(Value::as_str)
                        .is_some_and(|it| tags.iter().any(|tag| tag == it)),
                    (CaseMark::Kind(kind), _) => kind_of(wire) == Some(*kind),
                    // The case of a status: the caller of this function knows it.
                    (CaseMark::Tags(_), None) => false,
                })?;
                json!({ names::json(&case.name): to_wit(table, &case.ty, wire)? })
            }
        },
    })
}

fn kind_of(value: &Value) -> Option<JsonKind> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => JsonKind::Boolean,
        Value::Number(_) => JsonKind::Number,
        Value::String(_) => JsonKind::Text,
        Value::Array(_) => JsonKind::Array,
        Value::Object(_) => JsonKind::Object,
    })
}

/// Returns a value as the connector sends it.
pub(crate) fn to_wire(table: &TypeTable, ty: &Ty, wit: &Value) -> Option<Value> {
    Some(match ty {
        Ty::Json(_) => serde_json::from_str(wit.as_str()?).ok()?,
        Ty::List(inner) => {
            wit.as_array()?.iter().map(|item| to_wire(table, inner, item)).collect::<Option<_>>()?
        }
        Ty::Map(inner) => {
            let pair = |pair: &Value| {
                Some((pair.get(0)?.as_str()?.to_owned(), to_wire(table, inner, pair.get(1)?)?))
            };
            Value::Object(wit.as_array()?.iter().map(pair).collect::<Option<_>>()?)
        }
        Ty::Nullable(_) if wit.is_null() => Value::Null,
        Ty::Nullable(inner) => to_wire(table, inner, wit)?,
        Ty::Named(id) => match table.definition(*id)? {
            Definition::Record(fields) => {
                let mut object = Map::new();
                for field in fields {
                    let value = wit.get(names::json(&field.name))?;
                    let wire = match (field.presence, value) {
                        (Presence::Required, value) => to_wire(table, &field.ty, value)?,
                        (_, Value::Null) => continue,
                        (Presence::Optional, value) => to_wire(table, &field.ty, value)?,
                        (Presence::OptionalNullable, value) => match value.get("some")? {
                            Value::Null => Value::Null,
                            value => to_wire(table, &field.ty, value)?,
                        },
                    };
                    object.insert(field.wire.clone(), wire);
                }
                Value::Object(object)
            }
            Definition::Enum(labels) => {
                let name = wit.as_str()?;
                Value::String(labels.iter().find(|label| names::json(&label.name) == name)?.wire.clone())
            }
            Definition::Flags(labels) => {
                let set = wit.as_array()?;
                let wire = labels.iter().filter(|label| set.iter().any(|it| *it == names::json(&label.name)));
                wire.map(|label| Value::String(label.wire.clone())).collect()
            }
            Definition::Variant { tag, cases } => {
                let (name, payload) = wit.as_object()?.iter().next()?;
                let case = cases.iter().find(|case| names::json(&case.name) == *name)?;
                let mut value = to_wire(table, &case.ty, payload)?;
                if let (Some(tag), CaseMark::Tags(tags)) = (tag, &case.mark) {
                    let fields = value.as_object_mut()?;
                    if tags.len() == 1 || !fields.contains_key(tag) {
                        fields.insert(tag.clone(), json!(tags.first()));
                    }
                }
                value
            }
        },
        _ => wit.clone(),
    })
}

/// Encodes bytes as base64, as callers see them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let group = a << 16 | b << 8 | c;
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let index = usize::try_from(group >> shift & 63).unwrap_or(0);
            let letter = LETTERS.get(index).copied().unwrap_or(b'=');
            encoded.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_are_encoded_as_base64() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("text", "dGV4dA==")]
        {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }
}
