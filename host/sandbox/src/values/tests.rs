//! Tests of the mapping: a table of refused values, and random shapes and values that must round trip.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use cofferdam_model::package::{ShapeCase, ShapeField, ValueShape, WitName};
use proptest::prelude::*;
use serde_json::{Value, json};
use wasmtime::component::Val;

use super::{ArgumentError, DecodedResult, EncodedArguments, LayoutTable, OperationLayout};

pub(super) fn field(name: &str, shape: ValueShape) -> ShapeField {
    ShapeField { name: WitName::from_wit(name), shape }
}

pub(super) fn option(shape: ValueShape) -> ValueShape {
    ValueShape::Option(Arc::new(shape))
}

pub(super) fn names(names: &[&str]) -> Arc<[WitName]> {
    names.iter().map(|name| WitName::from_wit(name)).collect()
}

/// `func(it: shape) -> result<shape, failure>`, and the arguments for it.
fn arguments(
    shape: &ValueShape,
    value: &Value,
) -> (OperationLayout, Result<EncodedArguments, ArgumentError>) {
    let layout = LayoutTable::default().function(&[field("it", shape.clone())], Some(shape));
    let arguments = layout.arguments(&json!({ "it": value }));
    (layout, arguments)
}

/// Converts from JSON to an image, to dynamic values, to an image, to JSON.
fn round(shape: &ValueShape, value: &Value) -> Value {
    round_trip(shape, value).unwrap()
}

/// Converts like `round`, for values that may not be of the type.
pub(super) fn round_trip(shape: &ValueShape, value: &Value) -> Result<Value, ArgumentError> {
    let (layout, arguments) = arguments(shape, value);
    let value = layout.parameters(&arguments?).unwrap().pop().unwrap();
    let room = std::cell::Cell::new(usize::MAX);
    match layout.decode_dynamic(&Val::Result(Ok(Some(Box::new(value)))), &room).unwrap() {
        DecodedResult::Value(value) => Ok(value),
        DecodedResult::Failure(failure) => panic!("{failure}"),
    }
}

fn refused(shape: ValueShape, value: Value) -> String {
    match arguments(&shape, &value).1 {
        Ok(_) => panic!("{value} is accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn errors_name_the_path_and_the_expected_type() {
    let block = ValueShape::Record([field("kind", ValueShape::Enum(names(&["plain-text", "image"])))].into());
    let message = ValueShape::Record([field("blocks", ValueShape::List(Arc::new(block)))].into());
    let value = json!({"blocks": [{"kind": "image"}, {"kind": "image"}, {"kind": "video"}]});
    assert_eq!(refused(message.clone(), value), "args.it.blocks[2].kind: expected one of plain_text, image");
    assert_eq!(refused(message.clone(), json!({})), "args.it.blocks: missing; expected an array");
    assert_eq!(
        refused(message.clone(), json!({"blocks": [], "block": 1})),
        "args.it.block: there is no such field; did you mean `blocks`? The fields are: blocks"
    );
    assert_eq!(refused(message, json!([])), "args.it: expected an object, got an array");
}

#[test]
fn unfitting_numbers_are_refused_not_rounded() {
    for (shape, value) in [
        (ValueShape::Unsigned(8), json!(256)),
        (ValueShape::Unsigned(8), json!(-1)),
        (ValueShape::Signed(8), json!(128)),
        (ValueShape::Unsigned(32), json!(1.5)),
        (ValueShape::Unsigned(32), json!("1")),
        (ValueShape::Signed(64), json!(9_223_372_036_854_775_808_u64)),
        (ValueShape::Unsigned(64), json!("18446744073709551616")),
        (ValueShape::Unsigned(64), json!("+1")),
        (ValueShape::Unsigned(64), json!("")),
        (ValueShape::Float(32), json!(1e300)),
        (ValueShape::Float(64), json!("1")),
        (ValueShape::Char, json!("ab")),
        (ValueShape::Char, json!("")),
        (ValueShape::Bytes, json!("not base64!")),
        (ValueShape::Bool, json!("true")),
    ] {
        assert!(refused(shape, value).starts_with("args.it: expected"));
    }
}

#[test]
fn both_spellings_of_none_are_distinguished() {
    let nested = option(option(ValueShape::String));
    for value in [json!(null), json!({"some": null}), json!({"some": "x"})] {
        assert_eq!(round(&nested, &value), value);
    }
    assert!(refused(nested, json!("x")).contains("some"));
}

#[test]
fn variants_results_and_flags_have_one_spelling_each() {
    let cases = [
        ShapeCase { name: WitName::from_wit("all-of-it"), payload: None },
        ShapeCase { name: WitName::from_wit("some-of-it"), payload: Some(ValueShape::Unsigned(8)) },
    ];
    let variant = ValueShape::Variant(cases.into());
    for value in [json!("all_of_it"), json!({"some_of_it": 3})] {
        assert_eq!(round(&variant, &value), value);
    }
    for wrong in [json!({"all_of_it": null}), json!("some_of_it"), json!("none"), json!({}), json!(1)] {
        refused(variant.clone(), wrong);
    }
    let flags = ValueShape::Flags(names(&["read", "write-all"]));
    assert_eq!(round(&flags, &json!(["write_all"])), json!(["write_all"]));
    refused(flags.clone(), json!(["read", "read"]));
    refused(flags, json!(["execute"]));
    let result = ValueShape::Result(None, Some(Arc::new(ValueShape::String)));
    assert_eq!(round(&result, &json!({"ok": null})), json!({"ok": null}));
    assert_eq!(round(&result, &json!({"err": "x"})), json!({"err": "x"}));
    refused(result, json!({"ok": 1}));
}

#[test]
fn a_64_bit_integer_may_come_as_text() {
    assert_eq!(round(&ValueShape::Unsigned(64), &json!("18446744073709551615")), json!(u64::MAX));
}

/// Generates a shape together with a JSON value of it, in the spelling that results have.
pub(crate) fn typed() -> impl Strategy<Value = (ValueShape, Value)> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(|v| (ValueShape::Bool, json!(v))),
        any::<i8>().prop_map(|v| (ValueShape::Signed(8), json!(v))),
        any::<i64>().prop_map(|v| (ValueShape::Signed(64), json!(v))),
        any::<u16>().prop_map(|v| (ValueShape::Unsigned(16), json!(v))),
        any::<u64>().prop_map(|v| (ValueShape::Unsigned(64), json!(v))),
        any::<f64>().prop_filter("JSON", |v| v.is_finite()).prop_map(|v| (ValueShape::Float(64), json!(v))),
        Just((ValueShape::Float(32), json!("-Infinity"))),
        any::<char>().prop_map(|v| (ValueShape::Char, json!(v))),
        any::<String>().prop_map(|v| (ValueShape::String, json!(v))),
        Just((ValueShape::Bytes, json!("AAEC"))),
        Just((ValueShape::Enum(names(&["a-b", "c"])), json!("a_b"))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|(shape, value)| match shape {
                nested @ ValueShape::Option(_) => (option(nested), json!({ "some": value })),
                shape => (option(shape), value),
            }),
            inner.clone().prop_map(|(shape, _)| (option(shape), Value::Null)),
            inner
                .clone()
                .prop_map(|(shape, value)| (ValueShape::List(Arc::new(shape)), json!([value, value]))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| {
                let (shapes, values): (Vec<_>, Vec<_>) = items.into_iter().unzip();
                (ValueShape::Tuple(shapes.into()), Value::Array(values))
            }),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| {
                let (fields, values) = items
                    .into_iter()
                    .enumerate()
                    .map(|(at, (shape, value))| {
                        (field(&format!("f-{at}"), shape), (format!("f_{at}"), value))
                    })
                    .unzip::<_, _, Vec<_>, serde_json::Map<_, _>>();
                (ValueShape::Record(fields.into()), Value::Object(values))
            }),
            inner.clone().prop_map(|(shape, value)| {
                let cases = [
                    ShapeCase { name: WitName::from_wit("no-ne"), payload: None },
                    ShapeCase { name: WitName::from_wit("so-me"), payload: Some(shape) },
                ];
                (ValueShape::Variant(cases.into()), json!({ "so_me": value }))
            }),
            inner.prop_map(|(shape, value)| {
                (ValueShape::Result(Some(Arc::new(shape)), None), json!({ "ok": value }))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn values_round_trip((shape, value) in typed()) {
        prop_assert_eq!(round(&shape, &value), value);
    }

    #[test]
    fn arbitrary_json_never_panics((shape, _) in typed(), (_, value) in typed()) {
        drop(arguments(&shape, &value));
    }
}
