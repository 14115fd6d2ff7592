//! Tests of arbitrary JSON against arbitrary types: a value of the type or one printable line, never a panic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use cofferdam_core::failure::sanitize_line;
use cofferdam_model::package::{ShapeCase, ShapeField, ValueShape, WitName};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use serde_json::Value;

use super::tests::round_trip;

fn names(count: usize) -> Arc<[WitName]> {
    (0..count).map(|at| WitName::from_wit(&format!("case-{at}"))).collect()
}

fn shape() -> impl Strategy<Value = ValueShape> {
    let width = || prop::sample::select(vec![8_u8, 16, 32, 64]);
    let leaf = prop_oneof![
        Just(ValueShape::Bool),
        width().prop_map(ValueShape::Signed),
        width().prop_map(ValueShape::Unsigned),
        prop::sample::select(vec![32_u8, 64]).prop_map(ValueShape::Float),
        Just(ValueShape::Char),
        Just(ValueShape::String),
        Just(ValueShape::Bytes),
        (1..40_usize).prop_map(|count| ValueShape::Enum(names(count))),
        (1..=32_usize).prop_map(|count| ValueShape::Flags(names(count))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|item| ValueShape::List(Arc::new(item))),
            inner.clone().prop_map(|item| ValueShape::Option(Arc::new(item))),
            several().prop_map(|items| ValueShape::Tuple(items.into())),
            (prop::option::of(inner.clone()), prop::option::of(inner.clone()))
                .prop_map(|(ok, err)| ValueShape::Result(ok.map(Arc::new), err.map(Arc::new))),
            several().prop_map(|items| {
                let fields = items.into_iter().enumerate();
                let field =
                    |(at, shape)| ShapeField { name: WitName::from_wit(&format!("case-{at}")), shape };
                ValueShape::Record(fields.map(field).collect())
            }),
            prop::collection::vec(prop::option::of(inner.clone()), 1..4).prop_map(|items| {
                let cases = items.into_iter().enumerate();
                let case =
                    |(at, payload)| ShapeCase { name: WitName::from_wit(&format!("case-{at}")), payload };
                ValueShape::Variant(cases.map(case).collect())
            }),
        ]
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = || {
        prop::sample::select(vec!["case_0", "case_1", "case-0", "some", "ok", "err", "NaN", "-1", "AAEC", ""])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-300..300_i16).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let name = prop_oneof![4 => word().prop_map(str::to_owned), 1 => any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[test]
fn any_json_is_converted_or_refused_in_one_line() {
    let config = ProptestConfig {
        cases: 4_000,
        rng_seed: RngSeed::Fixed(0x00c0_ffee),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&(shape(), any_json()), |(shape, value)| {
        match round_trip(&shape, &value) {
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with("args.it"), "{text}");
                prop_assert_eq!(sanitize_line(&text, 2_000), text);
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
