//! The guest, and JSON text for its operations.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::types::{Item, Kind};

/// Gives back the list that it is given without looking at it.
pub(crate) const GUEST: &str = r#"
(type $kind-def (enum "issue" "task"))
(export $kind "kind" (type $kind-def))
(type $item-def (record
  (field "id" u64) (field "name" string) (field "title" string) (field "score" float64) (field "active" bool)
  (field "count" u32) (field "note" (option string)) (field "kind" $kind)))
(export $item "item" (type $item-def))
(core module $m
  (memory (export "memory") 256)
  (global $next (mut i32) (i32.const 64))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and
      (i32.sub (i32.add (global.get $next) (local.get 2)) (i32.const 1))
      (i32.sub (i32.const 0) (local.get 2))))
    (global.set $next (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func (export "echo") (param i32 i32) (result i32)
    (i32.store (i32.const 8) (local.get 0))
    (i32.store (i32.const 12) (local.get 1))
    (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(alias core export $i "realloc" (core func $realloc))
(func (export "bytes") (param "it" (list u8)) (result (result (list u8) (error $failure)))
  (canon lift (core func $i "echo") (memory $memory) (realloc $realloc)))
(func (export "texts") (param "it" (list string)) (result (result (list string) (error $failure)))
  (canon lift (core func $i "echo") (memory $memory) (realloc $realloc)))
(func (export "items") (param "it" (list $item)) (result (result (list $item) (error $failure)))
  (canon lift (core func $i "echo") (memory $memory) (realloc $realloc)))
"#;

/// JSON text of about `size` bytes for an operation.
pub(crate) fn payload(op: &str, size: usize) -> String {
    let item = |at: usize| Item {
        id: at as u64 * 7919,
        name: format!("item-{at}"),
        title: "a short title, of some words".into(),
        score: at as f64 * 0.25,
        active: at.is_multiple_of(2),
        count: 17,
        note: at.is_multiple_of(3).then(|| "noted".into()),
        kind: if at.is_multiple_of(2) { Kind::Issue } else { Kind::Task },
    };
    match op {
        "items" => {
            let count = (size / 140).max(1);
            serde_json::to_string(&(0..count).map(item).collect::<Vec<_>>()).unwrap()
        }
        "texts" => {
            let text = |at: usize| format!("text number {at}, as short as tags and names are");
            serde_json::to_string(&(0..(size / 55).max(1)).map(text).collect::<Vec<_>>()).unwrap()
        }
        _ => {
            let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
            serde_json::to_string(&STANDARD.encode(bytes)).unwrap()
        }
    }
}
