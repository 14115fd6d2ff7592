//! WebAssembly proposals that are off: a component that uses one is refused at install, by its name.

use cofferdam::{Error, HostErrorKind, InstallOptions};
use cofferdam_test_support::{Home, InstallAccepted as _, package};

use crate::COFFERDAM;
use crate::envelope::check_host_error;
use crate::shared_host::run;

/// The core module's items, its function's first instructions, and the name in the refusal.
const CORE: [(&str, &str, &str, &str); 23] = [
    ("shared memory", "(memory 1 1 shared)", "", "threads"),
    ("atomics", "", "(drop (i32.atomic.load (i32.const 0)))", "threads"),
    ("atomic fence", "", "atomic.fence", "threads"),
    ("a memory of 64 bits", "(memory i64 1)", "", "memory64"),
    ("a table of 64 bits", "(table i64 1 funcref)", "", "memory64"),
    ("two memories", "(memory 1) (memory 1)", "", "multiple memories"),
    ("structs", "(type $s (struct (field i32)))", "", "gc"),
    ("small integers as references", "", "(drop (ref.i31 (i32.const 0)))", "gc"),
    ("recursive types", "(rec (type $a (func)) (type $b (func)))", "", "gc"),
    ("external references", "(table 1 externref)", "", "gc"),
    ("typed references", "(type $f (func)) (func (param (ref $f)))", "", "function-references"),
    ("calls by reference", "(type $f (func))", "(call_ref $f (ref.null $f))", "function references"),
    ("tags", "(tag)", "", "exceptions"),
    ("throwing", "", "(block (try_table (catch_all 0)))", "exceptions"),
    ("old exceptions", "", "try catch_all end", "legacy_exceptions"),
    ("tail calls", "(func $g (result i32) (i32.const 0))", "(return_call $g)", "tail calls"),
    ("relaxed vectors", "", "(drop (i32x4.relaxed_trunc_f32x4_s (v128.const i64x2 0 0)))", "relaxed SIMD"),
    ("continuations", "(type $f (func)) (type $c (cont $f))", "", "stack-switching"),
    ("pages of one byte", "(memory 1 (pagesize 1))", "", "custom-page-sizes"),
    (
        "sums of 128 bits",
        "",
        "(i64.add128 (i64.const 1) (i64.const 0) (i64.const 1) (i64.const 0)) drop drop",
        "wide arithmetic",
    ),
    ("giving memory back", "", "(memory.discard (i32.const 0) (i32.const 0))", "memory control"),
    ("shared types", "(type (shared (func)))", "", "shared-everything-threads"),
    ("shared globals", "(global (shared mut i32) (i32.const 0))", "", "shared-everything-threads"),
];

/// The component's items, and the name in the refusal.
const COMPONENT: [(&str, &str, &str); 9] = [
    ("asynchronous functions", "(type (func async (result u32)))", "component-model async"),
    ("streams", "(type (stream u8))", "component-model async"),
    ("futures", "(type (future u8))", "component-model async"),
    ("waiting", "(core func (canon waitable-set.new))", "component-model async"),
    ("yielding", "(core func (canon thread.yield))", "component-model"),
    ("error contexts", "(type error-context)", "component-model error-context"),
    ("lists of a fixed length", "(type (list u8 4))", "component-model fixed-length-lists"),
    ("maps", "(type (map string u32))", "component-model map"),
    ("nested names", r#"(import "a:b:c/d" (instance))"#, "a:b:c/d"),
];

#[test]
fn disabled_wasm_features_are_refused_by_name() {
    let home = Home::new(COFFERDAM);
    let host = home.host();
    let core = CORE.iter().map(|(what, items, code, names)| {
        let memory = if items.contains("(memory") { "" } else { "(memory 1)" };
        let module = format!(
            r#"(core module $odd {memory} {items} (func (export "odd") (result i32) {code} (i32.const 0)))"#
        );
        (*what, module, *names)
    });
    let component = COMPONENT.iter().map(|(what, items, names)| (*what, (*items).to_owned(), *names));
    let quiet =
        r#"(core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#;
    let mut wrong = Vec::new();
    for (what, text, names) in core.chain(component) {
        let bytes = package::component(&format!("{text}\n{quiet}"));
        let bytes = package::pack(&bytes, &package::manifest("local://acme/odd", "1.0.0"));
        let before = home.snapshot().without("host.key");
        match run(host.install_accepted(bytes, None, InstallOptions::default().allow_unsigned())) {
            Err(Error::Host(error)) => {
                check_host_error(&error);
                let text = error.to_string();
                // The compiler's validator has its own words for instructions.
                let says = text.contains("not enabled") || text.contains(" required for ");
                if error.kind() != HostErrorKind::Validation || !says || !text.contains(names) {
                    wrong.push(format!("{what}: expected `{names}` and `not enabled` in: {text}"));
                }
            }
            other => wrong.push(format!("{what}: {other:?}")),
        }
        assert_eq!(home.snapshot().without("host.key"), before, "{what}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn features_that_toolchains_emit_are_enabled() {
    let home = Home::new(COFFERDAM);
    let host = home.host();
    let module = r#"(core module $m (memory (export "memory") 1) (table 1 funcref)
        (global $sp (mut i32) (i32.add (i32.const 4) (i32.const -4)))
        (func $two (result i32 i64) (i32.const 1) (i64.const 2))
        (func (export "run") (result i32)
          (global.set $sp (i32.extend8_s (i32.const 200)))
          (drop (i32.trunc_sat_f64_s (f64.const nan)))
          (call $two) drop drop
          (memory.fill (i32.const 0) (i32.const 1) (i32.const 8))
          (table.set 0 (i32.const 0) (ref.func $two))
          (drop (i8x16.add (v128.const i64x2 1 2) (v128.const i64x2 1 2)))
          (i32.const 0))
        (elem declare func $two))"#;
    let bytes = package::pack(&package::component(module), &package::manifest("local://acme/even", "1.0.0"));
    run(host.install_accepted(bytes, None, InstallOptions::default().allow_unsigned())).unwrap();
}
