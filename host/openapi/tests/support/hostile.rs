//! Documents of hostile strings.
#![allow(clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A mark that must not be an identifier anywhere.
pub(crate) const MARK: &str = "injected_mark";

/// Pieces that end comments, strings and fences in one of the languages, or change how text is read.
pub(crate) const PIECES: [&str; 34] = [
    "*/",
    "/*",
    "//",
    "///",
    "//!",
    "\"",
    "\\",
    "'",
    "#",
    "\"#",
    "r#\"",
    "```",
    "~~~",
    "\"\"\"",
    "'''",
    "]]",
    "}",
    "{",
    "{{any}}",
    "{{regex:(}}",
    "${x}",
    "\n",
    "\r",
    "\r\n",
    "\0",
    "\u{1b}[31m",
    "\u{202e}",
    "\u{2066}",
    "\u{2028}",
    "\u{feff}",
    "fn injected_mark() {}",
    "\n}\ninjected-mark: func();\n",
    "\"\ninjected_mark = 1\n",
    "#[doc = injected_mark]",
];

pub(crate) fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        proptest::sample::select(PIECES.to_vec()).prop_map(ToOwned::to_owned),
        "\\PC{0,6}",
        any::<char>().prop_map(|it| it.to_string()),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// The number of texts of one part of a document.
pub(crate) const TEXTS: usize = 26;

/// Returns a document in which every text of its author is hostile: two operations and their types for each list of
/// texts.
pub(crate) fn document(all: &[Vec<String>]) -> Value {
    let general = |at: usize| all.first().and_then(|texts| texts.get(at)).cloned();
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    for (number, texts) in all.iter().enumerate() {
        let text = |at: usize| texts[at % texts.len()].clone();
        let (tagged, thing) = (format!("Tagged{number}"), format!("Thing{number}"));
        let of_thing = json!({"schema": {"$ref": format!("#/components/schemas/{thing}")}});
        schemas.insert(
            text(3),
            json!({"type": "object", "description": text(4), "required": [text(5)], "properties": {
                text(5): {"type": "string", "description": text(6), "example": text(7)},
                text(8): {"enum": [text(9), text(10), "x"], "description": text(11)},
            }}),
        );
        schemas.insert(
            tagged.clone(),
            json!({"oneOf": [
                {"type": "object", "required": ["t", "a"], "properties": {"t": {"const": text(12)}, "a": {"type": "string"}}},
                {"type": "object", "required": ["t"], "properties": {
                    "t": {"const": format!("{}2", text(12))}, text(13): {"type": "boolean"}}},
            ], "description": text(14)}),
        );
        schemas.insert(
            thing,
            json!({"type": "object", "description": text(4), "properties": {
                text(5): {"type": "string", "description": text(6)},
                text(8): {"enum": [text(9), text(10), "x"]},
                "tagged": {"$ref": format!("#/components/schemas/{tagged}")},
                "map": {"type": "object", "additionalProperties": {"type": "string"}, "description": text(15)},
            }}),
        );
        let post = json!({
            "operationId": text(16), "summary": text(17), "description": text(18),
            "parameters": [
                {"name": "id", "in": "path", "required": true, "description": text(19), "schema": {"type": "string"}},
                {"name": text(20), "in": "query", "required": true, "description": text(21),
                    "schema": {"type": "string", "example": text(22)}},
            ],
            "requestBody": {"required": true, "description": text(23), "content": {"application/json": {
                "schema": of_thing["schema"], "example": {text(5): text(24)}}}},
            "responses": {"200": {"description": text(25), "content": {"application/json": of_thing}}},
        });
        let put = json!({
            "operationId": format!("upload{number}"), "description": text(18),
            "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object", "properties": {
                text(5): {"type": "string", "format": "binary", "description": text(6)}, "other": {"type": "string"}}}}}},
            "responses": {"200": {"content": {"text/plain": {}}}},
        });
        paths.insert(format!("/things{number}/{{id}}"), json!({"post": post, "put": put}));
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": general(0), "version": general(1), "description": general(2)},
        "servers": [{"url": "https://api.example.com/v1"}],
        "security": [{"key": []}],
        "components": {
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
            "schemas": schemas,
        },
        "paths": paths,
    })
}
