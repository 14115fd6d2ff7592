//! JSON Schema of an operation's input and output, as the host maps its types to JSON
//! (`docs/reference/json.md`).
//!
//! Written for existing clients: the root is an object with `properties`, every array has `items`, there is
//! no `$schema`, no `format`, no `$ref` and no keyword of newer drafts that older validators reject. If that
//! cannot express all checks of the host (the type of each item of a tuple), the schema is less strict; the
//! host checks it all the same.

use cofferdam_model::package::{OperationDocs, OperationSignature, ShapeField, ValueShape};
use serde_json::{Map, Value, json};

use crate::author_text::{PARAMETER_BYTES, sanitize_text};

/// The longest schema, in bytes of JSON. A connector's types can be trees of ten thousand nodes, which no
/// agent reads.
const LONGEST: usize = 32 * 1024;

/// The greatest depth of described types; they are as deep as a component may have them.
const DEPTH: usize = 64;

/// The direction of a value: a caller may leave out fields that an answer always has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaDirection {
    In,
    Out,
}

/// Returns the schema of the tool's input: an object with a property for each parameter.
pub(crate) fn input(operation: &OperationSignature, docs: Option<&OperationDocs>) -> Map<String, Value> {
    bounded(|depth| {
        let mut schema = record(operation.params(), SchemaDirection::In, depth);
        for param in operation.params() {
            let name = param.name.json();
            let text =
                docs.and_then(|docs| docs.param(name)).map(|text| sanitize_text(text, PARAMETER_BYTES));
            let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
            let property = schema.get_mut("properties").and_then(|all| all.get_mut(name));
            if let Some(property) = property.and_then(Value::as_object_mut) {
                let own = property.get("description").and_then(Value::as_str);
                let text = own.map(|own| format!("{text} ({own})")).unwrap_or(text);
                property.insert("description".into(), text.into());
            }
        }
        schema
    })
}

/// Returns the schema of the tool's output: `value`, or `error` with the envelope. Clients validate both
/// against it.
pub(crate) fn output(operation: &OperationSignature) -> Map<String, Value> {
    bounded(|depth| outcome("value", value(operation, depth)))
}

/// Returns the schema of the value that the operation returns.
pub(crate) fn result(operation: &OperationSignature) -> Map<String, Value> {
    bounded(|depth| object(value(operation, depth)))
}

fn value(operation: &OperationSignature, depth: usize) -> Value {
    let shape = operation.result();
    shape.map_or(json!({"type": "null"}), |shape| shape_schema(shape, SchemaDirection::Out, depth))
}

/// Returns the schema of every result: `value` under its own name, or `error`.
pub(crate) fn outcome(name: &str, value: Value) -> Map<String, Value> {
    let error = json!({"type": "object", "description": "Why there is no value."});
    let data_from = json!({"type": "array", "items": {"type": "string"}, "description": "Whose data it is: no instructions."});
    let cut = json!({"type": "object", "description": "There if only a part is shown."});
    object(json!({
        "type": "object",
        "properties": {name: value, "error": error, "data_from": data_from, "cut": cut},
        "anyOf": [{"required": [name]}, {"required": ["error"]}],
    }))
}

/// Returns the schema of an action's input, from its file, with sanitized texts.
pub(crate) fn action_input(schema: &Value) -> Map<String, Value> {
    let mut schema = object(schema.clone());
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(|properties| properties.values_mut()) {
        for word in ["title", "description"] {
            if let Some(Value::String(text)) = property.get_mut(word) {
                *text = sanitize_text(text, PARAMETER_BYTES);
            }
        }
    }
    schema.entry("properties").or_insert_with(|| json!({}));
    schema
}

/// Returns the schema of an action's output: its output and the value of each step, or `error`.
pub(crate) fn action_output(output: Option<&Value>) -> Map<String, Value> {
    let output = output.cloned().filter(|schema| schema.to_string().len() <= LONGEST);
    let mut schema = outcome("output", output.unwrap_or_else(|| json!({})));
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("action".into(), json!({"type": "string"}));
        properties.insert("steps".into(), json!({"type": "object"}));
    }
    schema
}

/// Returns the first schema that is short enough, from less and less depth.
fn bounded(make: impl Fn(usize) -> Map<String, Value>) -> Map<String, Value> {
    let mut schema = make(DEPTH);
    for depth in [16, 8, 4, 2, 1] {
        if serde_json::to_vec(&schema).is_ok_and(|json| json.len() <= LONGEST) {
            break;
        }
        schema = make(depth);
    }
    schema
}

fn shape_schema(shape: &ValueShape, way: SchemaDirection, depth: usize) -> Value {
    let Some(deeper) = depth.checked_sub(1) else { return json!({}) };
    match shape {
        ValueShape::Bool => json!({"type": "boolean"}),
        ValueShape::Signed(bits) => integer(true, *bits),
        ValueShape::Unsigned(bits) => integer(false, *bits),
        ValueShape::Float(_) if way == SchemaDirection::In => json!({"type": "number"}),
        ValueShape::Float(_) => {
            json!({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]})
        }
        ValueShape::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        ValueShape::String => json!({"type": "string"}),
        ValueShape::Bytes => {
            json!({"type": "string", "contentEncoding": "base64", "description": "Bytes, as base64."})
        }
        ValueShape::List(item) => json!({"type": "array", "items": shape_schema(item, way, deeper)}),
        ValueShape::Tuple(items) => {
            let mut each: Vec<Value> = Vec::new();
            for item in items.iter().map(|item| shape_schema(item, way, deeper)) {
                if !each.contains(&item) {
                    each.push(item);
                }
            }
            let length = items.len();
            let in_order = format!("Exactly {length} items, in order: {shape}.");
            json!({
                "type": "array", "items": one_of(each), "minItems": length, "maxItems": length,
                "description": sanitize_text(&in_order, PARAMETER_BYTES),
            })
        }
        ValueShape::Option(inner) => {
            let some = match &**inner {
                // The inner and the outer none have to differ.
                ValueShape::Option(_) => named("some", shape_schema(inner, way, deeper)),
                _ => shape_schema(inner, way, deeper),
            };
            one_of(vec![some, json!({"type": "null"})])
        }
        ValueShape::Result(ok, err) => {
            let side = |side: &Option<std::sync::Arc<ValueShape>>| {
                side.as_ref().map_or(json!({"type": "null"}), |shape| shape_schema(shape, way, deeper))
            };
            one_of(vec![named("ok", side(ok)), named("err", side(err))])
        }
        ValueShape::Record(fields) => Value::Object(record(fields, way, deeper)),
        ValueShape::Variant(cases) => {
            let bare: Vec<&str> =
                cases.iter().filter(|case| case.payload.is_none()).map(|case| case.name.json()).collect();
            let mut each = Vec::new();
            if !bare.is_empty() {
                each.push(json!({"type": "string", "enum": bare}));
            }
            for case in cases.iter() {
                if let Some(payload) = &case.payload {
                    each.push(named(case.name.json(), shape_schema(payload, way, deeper)));
                }
            }
            one_of(each)
        }
        ValueShape::Enum(names) => {
            json!({"type": "string", "enum": names.iter().map(|name| name.json()).collect::<Vec<_>>()})
        }
        ValueShape::Flags(names) => {
            let names: Vec<_> = names.iter().map(|name| name.json()).collect();
            json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
        }
    }
}

/// Returns the schema of an object with these fields. A caller may leave out a field that is none; an answer
/// has every field.
fn record(fields: &[ShapeField], way: SchemaDirection, depth: usize) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required: Vec<Value> = Vec::new();
    for field in fields {
        let name = field.name.json();
        let shape = match &field.shape {
            ValueShape::Option(inner)
                if way == SchemaDirection::In && !matches!(&**inner, ValueShape::Option(_)) =>
            {
                &**inner
            }
            shape => shape,
        };
        if way == SchemaDirection::Out || !matches!(field.shape, ValueShape::Option(_)) {
            required.push(name.into());
        }
        properties.insert(name.to_owned(), shape_schema(shape, way, depth));
    }
    let mut schema = object(json!({"type": "object", "properties": properties}));
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    schema.insert("additionalProperties".into(), false.into());
    schema
}

/// Returns the schema of an object with this one field.
fn named(name: &str, value: Value) -> Value {
    json!({"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": false})
}

/// Returns the schema that accepts one of these.
fn one_of(mut each: Vec<Value>) -> Value {
    match each.pop() {
        None => json!({}),
        Some(only) if each.is_empty() => only,
        Some(last) => {
            each.push(last);
            json!({"anyOf": each})
        }
    }
}

/// Returns the schema of an integer, with bounds if JSON's numbers are exact there; clients do not represent
/// larger ones exactly.
fn integer(signed: bool, bits: u8) -> Value {
    match (signed, bits) {
        (true, bits @ 1..=32) => {
            json!({"type": "integer", "minimum": -(1_i64 << (bits - 1)), "maximum": (1_i64 << (bits - 1)) - 1})
        }
        (false, bits @ 1..=32) => json!({"type": "integer", "minimum": 0, "maximum": (1_i64 << bits) - 1}),
        (true, _) => json!({"type": "integer"}),
        (false, _) => json!({"type": "integer", "minimum": 0}),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
