//! The reference of the audit log, made from the types of its events: a JSON Schema of its lines, and a page.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::fmt::Write as _;
use std::path::Path;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::json;

use super::*;

/// An event by its name: what happened, and the schema of the facts.
struct EventSchema {
    name: &'static str,
    when: &'static str,
    payload: Value,
}

/// Returns the schema of the payload that this event is made of.
pub(super) fn payload_schema<P: schemars::JsonSchema>(
    generator: &mut SchemaGenerator,
    _event: fn(P) -> RecordedEvent<'static>,
) -> schemars::Schema {
    generator.subschema_for::<P>()
}

/// Removes the values that readers take for facts that a newer or older version left out.
fn without_defaults(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.remove("default");
        fields.values_mut().for_each(|field| *field = without_defaults(field.take()));
    }
    schema
}

/// Returns the JSON Schema of a line, and the events in it.
fn schema() -> (Value, Vec<EventSchema>) {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let events: Vec<_> = payload_schemas(&mut generator)
        .into_iter()
        .map(|(name, when, payload)| EventSchema { name, when, payload: payload.into() })
        .collect();
    let mut parts = without_defaults(generator.take_definitions(true).into());
    let payloads: Vec<_> = events
        .iter()
        .map(|EventSchema { name, payload, .. }| {
            json!({
                "if": {"properties": {"type": {"const": name}}},
                "then": {"properties": {"payload": payload}},
            })
        })
        .collect();
    parts["Event"] = json!({
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "date-time", "description": "When it happened."},
            "payload": {"type": "object", "description": "The facts."},
            "seq": {
                "type": "integer", "minimum": 1,
                "description": "The number of the event within its call, without gaps. An event of the log has none.",
            },
            "type": {"type": "string", "description": "The name of the event."},
        },
        "required": ["at", "payload", "type"],
        "allOf": payloads,
    });
    let number =
        |minimum: u32, what: &str| json!({"type": "integer", "minimum": minimum, "description": what});
    let hash = |what: &str| json!({"type": "string", "pattern": "^[0-9a-f]{64}$", "description": what});
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of the audit log",
        "description": "An entry in a journal or an export: events of a call, or an event of the log itself. The \
            facts of a line itself are fixed for `v` 2; programs must accept further events, and further facts in \
            them. An export also has lines `export`, `journal` and `checkpoint`, which are no entries.",
        "type": "object",
        "properties": {
            "audit_id": {"type": "string", "description": "The call."},
            "events": {
                "type": "array", "items": {"$ref": "#/$defs/Event", "required": ["seq"]},
                "description": "Events of the call.",
            },
            "log": {"$ref": "#/$defs/Event", "description": "The event of the log itself."},
            "n": number(1, "The number of the entry in its journal."),
            "prev": hash("The SHA-256 of the line before it, without its line break; zeros in the first line of a journal."),
            "resumes": {"type": "string", "description": "The interrupted call that the call resumes."},
            "sealed": {
                "type": "object",
                "properties": {
                    "bytes": number(0, "The length in bytes."),
                    "offset": number(0, "The position of its first byte in the file."),
                    "sha256": hash("The SHA-256 of the sealed bytes."),
                },
                "required": ["bytes", "offset", "sha256"],
                "description": "The place of the sealed request or outcome in the file beside the segment.",
            },
            "v": {"type": "integer", "const": 2, "description": "The version of the form of lines."},
        },
        "required": ["n", "prev", "v"],
        "oneOf": [{"required": ["audit_id", "events"]}, {"required": ["log"]}],
        "additionalProperties": false,
        "$defs": parts,
    });
    (schema, events)
}

/// Returns the name of the part that a schema refers to.
fn part(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

/// Returns the type of a fact, in words.
fn kind(schema: &Value) -> String {
    if let Some(part) = part(schema) {
        return match part {
            "CanonicalJson" => "object".to_owned(),
            part => format!("[{part}](#{})", part.to_lowercase()),
        };
    }
    if let Some(of) = schema["anyOf"].as_array() {
        return kind(&of[0]);
    }
    let name = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match name.unwrap_or_default() {
        "string" => "text".to_owned(),
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        name => name.to_owned(),
    }
}

fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

/// Adds the table of the facts of an object, or of the values of a text.
fn facts(page: &mut String, schema: &Value) {
    let facts = schema["properties"].as_object().filter(|facts| !facts.is_empty());
    let Some(facts) = facts else {
        let Some(values) = schema["oneOf"].as_array() else { return page.push_str("\nIt has no facts.\n") };
        page.push_str("\n| value | meaning |\n|---|---|\n");
        for value in values {
            writeln!(page, "| `{}` | {} |", value["const"].as_str().unwrap(), description(value)).unwrap();
        }
        return;
    };
    page.push_str("\n| fact | type | content |\n|---|---|---|\n");
    let always = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, fact) in facts {
        let if_any = if always.contains(&json!(name)) { "" } else { ", if any" };
        writeln!(page, "| `{name}` | {}{if_any} | {} |", kind(fact), description(fact)).unwrap();
    }
}

fn page(schema: &Value, events: &[EventSchema]) -> String {
    let mut page = "# Audit log\n\n\
        For programs that read journals and exports: the lines and all their facts. [Events](events.md) says when events are\n\
        written, and the [guide](../guides/audit-log.md) what the log proves. This page and the\n\
        [JSON Schema](audit-log.schema.json) are made from the types of the host.\n\n\
        A line is canonical JSON (RFC 8785): an entry with events of a call, or with one event of the log itself. Facts that\n\
        do not apply are left out. The facts of a line itself are fixed for `v` 2; programs must accept further\n\
        events, and further facts in them. An export also has lines `export`, `journal` and `checkpoint`, which are\n\
        no entries: see [Form](../guides/verify-the-log.md#form).\n\n## A line\n"
        .to_owned();
    facts(&mut page, schema);
    page.push_str("\n### sealed\n");
    facts(&mut page, &schema["properties"]["sealed"]);
    page.push_str("\n### Event\n");
    facts(&mut page, &schema["$defs"]["Event"]);
    let of_log = events.iter().position(|event| event.name == "segment_begun").unwrap();
    let mut of_events = vec!["Event"];
    for (title, events) in [("Events of a call", &events[..of_log]), ("Events of the log", &events[of_log..])]
    {
        write!(page, "\n## {title}\n").unwrap();
        for event in events {
            write!(page, "\n### {}\n\n{}\n", event.name, event.when).unwrap();
            let part = part(&event.payload).unwrap();
            of_events.push(part);
            facts(&mut page, &schema["$defs"][part]);
        }
    }
    page.push_str("\n## Parts of events\n");
    for (name, part) in schema["$defs"].as_object().unwrap() {
        if !of_events.contains(&name.as_str()) && name != "CanonicalJson" {
            write!(page, "\n### {name}\n\n{}\n", description(part)).unwrap();
            facts(&mut page, part);
        }
    }
    page
}

#[test]
fn the_reference_is_the_committed_one() {
    let (schema, events) = schema();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, text) in [
        ("audit-log.schema.json", serde_json::to_string_pretty(&schema).unwrap() + "\n"),
        ("audit-log.md", page(&schema, &events)),
    ] {
        let file = reference.join(name);
        if std::env::var_os("COFFERDAM_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == text,
            "run `COFFERDAM_BLESS=1 cargo test --workspace reference`, and commit docs/reference/{name}"
        );
    }
}

/// Checks that a sample has every fact of this part of the schema, and of the parts in it.
fn has_every_fact(parts: &Value, schema: &Value, sample: &Value, at: &str) {
    if let Some(name) = part(schema) {
        return has_every_fact(parts, &parts[name], sample, at);
    }
    if let Some(of) = schema["anyOf"].as_array() {
        return has_every_fact(parts, &of[0], sample, at);
    }
    for item in sample.as_array().into_iter().flatten() {
        has_every_fact(parts, &schema["items"], item, at);
    }
    for (name, fact) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        assert!(!sample[name].is_null(), "the sample has no {at}");
        has_every_fact(parts, fact, &sample[name], &at);
    }
}

/// A fact that is in no sample might be written in another place than that of canonical JSON.
#[test]
fn samples_have_every_fact() {
    let (schema, events) = schema();
    let samples = super::tests::samples();
    assert_eq!(samples.len(), events.len());
    for (event, (name, sample)) in events.iter().zip(&samples) {
        assert_eq!(event.name, *name);
        has_every_fact(&schema["$defs"], &event.payload, sample, name);
    }
}
