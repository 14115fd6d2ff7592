//! Tests of JSON text: it gives the result of the same `Value`, in both directions and also if it is refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::cell::Cell;
use std::sync::Arc;

use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_model::package::{ShapeCase, ValueShape, WitName};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decode::{self, ResultFormat};
use super::tests::{field, names, option, typed};
use super::{DecodeError, DecodedResult, LayoutTable, OperationLayout};

fn layout(shape: &ValueShape) -> OperationLayout {
    LayoutTable::default().function(&[field("it", shape.clone())], Some(shape))
}

fn image_of(layout: &OperationLayout, text: &str) -> Result<Vec<u8>, String> {
    let arguments = layout.arguments_from_text(text).map_err(|error| error.to_string())?;
    Ok(arguments.abi_buffer().to_vec())
}

/// Parses text like callers that parse the text themselves.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn refused(shape: &ValueShape, it: &str) -> String {
    image_of(&layout(shape), &format!("{{\"it\":{it}}}")).unwrap_err()
}

/// Returns the result of a guest that returns its argument.
fn given_back<A: ResultFormat>(layout: &OperationLayout, args: &Value) -> Result<A, DecodeError> {
    let value = layout.parameters(&layout.arguments(args).unwrap()).unwrap().pop().unwrap();
    let result = wasmtime::component::Val::Result(Ok(Some(Box::new(value))));
    match layout.decode_dynamic(&result, &Cell::new(usize::MAX))? {
        DecodedResult::Value(value) => Ok(value),
        DecodedResult::Failure(failure) => panic!("{failure}"),
    }
}

proptest! {
    #[test]
    fn text_arguments_equal_value_arguments((shape, value) in typed()) {
        let (layout, args) = (layout(&shape), json!({ "it": value }));
        for text in [args.to_string(), format!("\n{args:#}\t ")] {
            let by_value = layout.arguments(&read(&text)).unwrap().abi_buffer().to_vec();
            prop_assert_eq!(image_of(&layout, &text), Ok(by_value));
        }
    }

    #[test]
    fn text_output_equals_value_output((shape, value) in typed()) {
        let (layout, args) = (layout(&shape), json!({ "it": value }));
        let text = given_back::<String>(&layout, &args).unwrap();
        prop_assert_eq!(text, given_back::<Value>(&layout, &args).unwrap().to_string());
    }

    #[test]
    fn text_and_values_are_refused_alike((shape, _) in typed(), (_, value) in typed()) {
        let (layout, text) = (layout(&shape), json!({ "it": value }).to_string());
        let by_value = layout.arguments(&read(&text)).map_err(|error| error.to_string());
        let by_value = by_value.map(|arguments| arguments.abi_buffer().to_vec());
        prop_assert_eq!(image_of(&layout, &text), by_value);
    }

    #[test]
    fn truncated_or_trailing_text_is_refused((shape, value) in typed()) {
        let (layout, text) = (layout(&shape), json!({ "it": value }).to_string());
        for (end, _) in text.char_indices() {
            let error = image_of(&layout, &text[..end]).unwrap_err();
            prop_assert!(error.starts_with("args"), "{}", error);
        }
        for more in ["{}", ",", "1", "]", "\u{a0}"] {
            let error = image_of(&layout, &format!("{text} {more}")).unwrap_err();
            prop_assert!(error.contains("not JSON: trailing characters"), "{}", error);
        }
    }

    #[test]
    fn any_buffer_decodes_alike_as_text_and_value(
        (shape, _) in typed(),
        mut image in prop::collection::vec(prop_oneof![2 => 0_u8..16, 1 => any::<u8>()], 0..96),
    ) {
        let layout = layout(&shape);
        if let Some(case) = image.first_mut() {
            *case = 0;
        }
        let room = || Cell::new(usize::MAX);
        let text = decode::decode_result::<String>(&layout, &image, 0, &room());
        match (text, decode::decode_result::<Value>(&layout, &image, 0, &room())) {
            (Ok(DecodedResult::Value(text)), Ok(DecodedResult::Value(value))) => prop_assert_eq!(text, value.to_string()),
            (Err(DecodeError::Malformed), Err(DecodeError::Malformed)) => {}
            // Each has its own limit, and may hit it first.
            (Err(DecodeError::TooLong(_)), _) | (_, Err(DecodeError::TooLong(_) | DecodeError::TooLarge)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_duplicate_field_is_refused() {
    let shape =
        ValueShape::Record([field("a", option(ValueShape::Bool)), field("b", ValueShape::Bool)].into());
    assert_eq!(refused(&shape, r#"{"a":null,"b":true,"a":true}"#), "args.it.a: given twice");
    assert_eq!(refused(&shape, r#"{"b":true,"\u0062":true}"#), "args.it.b: given twice");
    assert_eq!(image_of(&layout(&shape), r#"{"it":{"b":true},"it":1}"#).unwrap_err(), "args.it: given twice");
    let many: Vec<_> = (0..70).map(|at| field(&format!("f{at}"), option(ValueShape::Bool))).collect();
    let many = ValueShape::Record(many.into());
    assert_eq!(
        refused(&many, r#"{"f69":true,"f63":true,"f64":true,"f69":true}"#),
        "args.it.f69: given twice"
    );
    assert_eq!(refused(&many, r#"{"f63":true,"f63":null}"#), "args.it.f63: given twice");
}

#[test]
fn cases_sides_and_wrapped_options_have_one_entry() {
    let case = ShapeCase { name: WitName::from_wit("a"), payload: Some(ValueShape::Bool) };
    let variant = ValueShape::Variant([case].into());
    let wrapped = option(option(ValueShape::Bool));
    let result = ValueShape::Result(Some(Arc::new(ValueShape::Bool)), None);
    for (shape, key) in [(variant, "a"), (wrapped, "some"), (result, "ok")] {
        assert!(image_of(&layout(&shape), &format!(r#"{{"it":{{"{key}":true}}}}"#)).is_ok());
        for more in [format!("\"{key}\":true"), "\"x\":1".to_owned()] {
            let error = refused(&shape, &format!("{{\"{key}\":true,{more}}}"));
            assert!(error.starts_with("args.it: expected "), "{error}");
        }
        assert!(refused(&shape, "{}").starts_with("args.it: expected "));
    }
}

#[test]
fn malformed_json_is_refused_with_its_place() {
    let shape = ValueShape::List(Arc::new(ValueShape::Float(64)));
    assert_eq!(refused(&shape, "[1,]"), "args: not JSON: trailing comma at line 1 column 10");
    for wrong in ["[01]", "[1e999]", "[NaN]", "[+1]", "[.5]", "\"\u{1}\"", "[\"\\ud800\"]", "/**/[]", "'x'"] {
        let error = refused(&shape, wrong);
        assert!(error.starts_with("args: not JSON: "), "{wrong}: {error}");
    }
    assert_eq!(image_of(&layout(&shape), "[]"), Err("args: expected an object, got an array".into()));
    assert_eq!(
        image_of(&layout(&shape), ""),
        Err("args: not JSON: EOF while parsing a value at line 1 column 0".into())
    );
}

#[test]
fn deeply_nested_text_is_refused() {
    let mut shape = ValueShape::Bool;
    for _ in 0..300 {
        shape = ValueShape::List(Arc::new(shape));
    }
    let deep = "[".repeat(100_000);
    let error = refused(&shape, &deep);
    assert!(error.starts_with("args: not JSON: recursion limit exceeded"), "{error}");
    let tuple = ValueShape::Tuple([ValueShape::Bool].into());
    assert!(refused(&tuple, &format!("[true,{deep}]")).starts_with("args: not JSON: "));
}

#[test]
fn flags_are_read_wherever_they_are_in_their_bytes() {
    let all: Vec<String> = (0..32).map(|at| format!("f{at}")).collect();
    let flags = ValueShape::Flags(names(&all.iter().map(String::as_str).collect::<Vec<_>>()));
    let some = json!(["f0", "f7", "f8", "f31"]);
    assert_eq!(given_back(&layout(&flags), &json!({ "it": some })), Ok(some));
    assert_eq!(refused(&flags, r#"["f31","f8","f31"]"#), "args.it[2]: named twice");
    assert_eq!(refused(&flags, "[1]"), "args.it[0]: expected a string, got a number");
    assert_eq!(refused(&flags, "[[]]"), "args.it[0]: expected a string, got an array");
}

#[test]
fn result_text_is_bounded_by_the_limit() {
    let layout = layout(&ValueShape::String);
    for (letter, width) in [("x", 1), ("\u{1}", 6)] {
        let args = |letters: usize| json!({ "it": letter.repeat(letters) });
        let most = (PAYLOAD_BYTES - 2) / width;
        assert_eq!(given_back::<String>(&layout, &args(most)).unwrap().len(), most * width + 2);
        assert_eq!(
            given_back::<String>(&layout, &args(most + 1)),
            Err(DecodeError::TooLong(PAYLOAD_BYTES as u64 + 1))
        );
        let size = (most as u64 + 1) * width as u64 + 2;
        assert_eq!(given_back::<Value>(&layout, &args(most + 1)), Err(DecodeError::TooLong(size)));
    }
}
