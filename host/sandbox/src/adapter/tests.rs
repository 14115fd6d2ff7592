//! Tests of the adapter against wasmtime's own dynamic values: the same arguments both ways, over random
//! types.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use cofferdam_model::package::{ShapeField, ValueShape, WitName, operations_of};
use proptest::prelude::*;
use serde_json::{Value, json};
use wasm_encoder::{
    CanonicalFunctionSection, CanonicalOption, Component, ComponentAliasSection, ComponentExportKind,
    ComponentExportSection, ExportKind, InstanceSection, ModuleArg, RawSection,
};
use wasmtime::component::Linker;
use wasmtime::{Engine, Store};

use super::types::{AdapterTypes, TypeNaming};
use super::wrap::wrap;
use crate::engine;
use crate::engine::GuestDebugging;
use crate::memory::MemoryAccount;
use crate::operation_fn::OperationFn;
use crate::values::tests::typed;
use crate::values::{DecodedResult, FlatType, LayoutTable, OperationLayout};

fn field(name: &str, shape: ValueShape) -> ShapeField {
    ShapeField { name: WitName::from_wit(name), shape }
}

/// Returns a connector for values of `shape` with two operations. `echo` returns a list of its arguments;
/// `flat` reports the core values in which one arrives, with every allocation at one address so that the
/// order of allocations does not matter.
fn connector(shape: &ValueShape) -> Vec<u8> {
    let mut component = Component::new();
    let list = ValueShape::List(Arc::new(shape.clone()));
    let numbers = ValueShape::List(Arc::new(ValueShape::Unsigned(64)));
    let mut types = AdapterTypes::new(&mut component, 0, TypeNaming::Exported);
    let echo = types.function(&[field("it", list.clone())], Some(&list));
    let flat = types.function(&[field("it", shape.clone())], Some(&numbers));
    let signature =
        LayoutTable::default().function(&[field("it", shape.clone())], Some(&numbers)).signature();
    let text = module(signature.flat.as_deref());
    let module = wat::parse_str(&text).unwrap();
    component.section(&RawSection { id: 1, data: &module });
    let mut instances = InstanceSection::new();
    instances.instantiate(0, [("", ModuleArg::Instance(0)); 0]);
    component.section(&instances);
    let mut aliases = ComponentAliasSection::new();
    let mut alias = |kind, name| {
        aliases.alias(wasm_encoder::Alias::CoreInstanceExport { instance: 0, kind, name });
    };
    alias(ExportKind::Memory, "memory");
    ["realloc", "same", "echo", "flat"].into_iter().for_each(|name| alias(ExportKind::Func, name));
    component.section(&aliases);
    let options =
        |realloc| [CanonicalOption::UTF8, CanonicalOption::Memory(0), CanonicalOption::Realloc(realloc)];
    let mut lifted = CanonicalFunctionSection::new();
    lifted.lift(2, echo, options(0)).lift(3, flat, options(1));
    component.section(&lifted);
    let mut exports = ComponentExportSection::new();
    exports.export("echo", ComponentExportKind::Func, 0, None);
    exports.export("flat", ComponentExportKind::Func, 1, None);
    component.section(&exports);
    component.finish()
}

fn module(flat: Option<&[FlatType]>) -> String {
    let word = |flat: &FlatType| match flat {
        FlatType::I32 => "i32",
        FlatType::I64 => "i64",
        FlatType::F32 => "f32",
        FlatType::F64 => "f64",
    };
    let params: Vec<_> = flat.unwrap_or(&[FlatType::I32]).iter().map(word).collect();
    let stores: String = match flat {
        Some(_) => params
            .iter()
            .enumerate()
            .map(|(at, ty)| format!("({ty}.store (i32.const {}) (local.get {at}))", 64 + 8 * at))
            .collect(),
        None => "(i32.store8 (i32.const 64) (i32.load8_u (local.get 0)))".into(),
    };
    let (count, params) = (flat.map_or(1, <[FlatType]>::len), params.join(" "));
    format!(
        r#"(module
          (memory (export "memory") 64)
          (global $next (mut i32) (i32.const 4096))
          (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
            (local.set $at (i32.and
              (i32.sub (i32.add (global.get $next) (local.get 2)) (i32.const 1))
              (i32.sub (i32.const 0) (local.get 2))))
            (global.set $next (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
          (func (export "same") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
          (func (export "echo") (param i32 i32) (result i32)
            (i32.store (i32.const 8) (local.get 0))
            (i32.store (i32.const 12) (local.get 1))
            (i32.const 0))
          (func (export "flat") (param {params}) (result i32)
            {stores}
            (i32.store (i32.const 8) (i32.const 64))
            (i32.store (i32.const 12) (i32.const {count}))
            (i32.const 0)))"#
    )
}

/// A runner for the operations of a component, wrapped or not.
struct Runner {
    engine: Engine,
    runtime: tokio::runtime::Runtime,
}

impl Runner {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { engine: Engine::new(&engine::config(GuestDebugging::Off)).unwrap(), runtime }
    }

    fn call(&self, wrapped: Option<&[u8]>, connector: &[u8], op: &str, args: &Value) -> Value {
        let operations = operations_of(connector).unwrap();
        let compile = |bytes| wasmtime::component::Component::from_binary(&self.engine, bytes).unwrap();
        let (component, adapter) = (compile(connector), wrapped.map(compile));
        let at = operations.iter().position(|operation| operation.name().wit() == op).unwrap();
        let layout = layouts(connector).remove(at);
        let operation = match &adapter {
            Some(adapter) => OperationFn::adapted(adapter, at, layout),
            None => OperationFn::plain(&component, &operations[at], layout),
        };
        let operation = operation.unwrap();
        let component = adapter.as_ref().unwrap_or(&component);
        let args = operation.arguments(args).unwrap();
        let mut store = Store::new(&self.engine, ());
        store.set_fuel(1_000_000_000).unwrap();
        let returned = self.runtime.block_on(async {
            let instance = Linker::new(&self.engine).instantiate_async(&mut store, component).await.unwrap();
            operation.call(&mut store, &instance, &args, &MemoryAccount::new(1 << 30)).await.unwrap()
        });
        match returned.unwrap() {
            DecodedResult::Value(value) => value,
            DecodedResult::Failure(failure) => panic!("{failure}"),
        }
    }
}

fn layouts(connector: &[u8]) -> Vec<OperationLayout> {
    let mut layouts = LayoutTable::default();
    operations_of(connector).unwrap().iter().map(|operation| layouts.operation(operation)).collect()
}

fn compare(runner: &Runner, shape: &ValueShape, value: &Value) {
    let connector = connector(shape);
    let operations = operations_of(&connector).unwrap();
    let wrapped = wrap(&connector, &operations, &layouts(&connector)).unwrap();
    assert_eq!(wrap(&connector, &operations, &layouts(&connector)).unwrap(), wrapped);
    let list = json!({ "it": [value, value, value] });
    let adapted = runner.call(Some(&wrapped), &connector, "echo", &list);
    assert_eq!(adapted, list["it"]);
    assert_eq!(adapted, runner.call(None, &connector, "echo", &list));
    let one = json!({ "it": value });
    let adapted = runner.call(Some(&wrapped), &connector, "flat", &one);
    assert_eq!(adapted, runner.call(None, &connector, "flat", &one));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_adapter_matches_dynamic_values((shape, value) in typed()) {
        // The component model knows no record without fields.
        prop_assume!(!empty(&shape));
        compare(&Runner::new(), &shape, &value);
    }
}

fn empty(shape: &ValueShape) -> bool {
    match shape {
        ValueShape::List(item) | ValueShape::Option(item) => empty(item),
        ValueShape::Tuple(items) => items.iter().any(empty),
        ValueShape::Record(fields) => fields.is_empty() || fields.iter().any(|field| empty(&field.shape)),
        ValueShape::Variant(cases) => cases.iter().filter_map(|case| case.payload.as_ref()).any(empty),
        ValueShape::Result(ok, err) => [ok, err].into_iter().flatten().any(|side| empty(side)),
        _ => false,
    }
}

#[test]
fn many_parameters_are_passed_in_memory() {
    let runner = Runner::new();
    for count in [15, 16, 17, 40] {
        let shapes: Vec<_> = (0..count).map(|_| ValueShape::Unsigned(8)).collect();
        let values: Vec<_> = (0..count).map(|at| json!(at + 1)).collect();
        compare(&runner, &ValueShape::Tuple(shapes.into()), &json!(values));
    }
}

#[test]
fn cases_that_share_slots_keep_their_bits() {
    use cofferdam_model::package::ShapeCase;
    let case = |name: &str, payload| ShapeCase { name: WitName::from_wit(name), payload };
    let cases = [
        case("narrow", Some(ValueShape::Float(32))),
        case("small", Some(ValueShape::Signed(8))),
        case("wide", Some(ValueShape::Float(64))),
        case("text", Some(ValueShape::String)),
        case("long", Some(ValueShape::Signed(64))),
        case("none", None),
    ];
    let shape = ValueShape::Variant(cases.into());
    let runner = Runner::new();
    for value in [
        json!({"narrow": -1.5}),
        json!({"small": -1}),
        json!({"wide": 2.5}),
        json!({"text": "x"}),
        json!({"long": -2}),
        json!("none"),
    ] {
        compare(&runner, &shape, &value);
    }
}

#[test]
fn a_component_with_late_imports_is_not_wrapped() {
    let late = wat::parse_str(
        r#"(component (core module $m) (core instance (instantiate $m)) (import "wasi:io/poll@0.2.0" (instance)))"#,
    );
    assert_eq!(wrap(&late.unwrap(), &[], &[]), Err("defines functions or instances before its last import"));
}
