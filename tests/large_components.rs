//! Components above the size up to which both forms are compiled: every operation is called in the wrapped form.

use std::fs;

use cofferdam_test_support::package;
use serde_json::{Value, json};

use crate::cli::desk;

const HELLO: &str = "github://cofferdam/hello";

#[test]
fn a_large_component_runs_all_operations() {
    let desk = desk();
    let component = package::padded(&package::guest("hello"), 1_200_000);
    fs::write(desk.path("hello.wasm"), component).unwrap();
    fs::write(desk.path("connector.toml"), package::guest_manifest("hello")).unwrap();
    let packed = desk.run("pack hello.wasm --manifest connector.toml -o packed.wasm --format json").json();
    assert!(packed["size"].as_u64().unwrap() > 1024 * 1024, "{packed}");
    desk.install("packed.wasm --allow-unsigned").ok();
    for (op, args, value) in [
        ("reverse", r#"{"bytes":"AQID"}"#, json!("AwIB")),
        ("divide", r#"{"dividend":7,"divisor":2}"#, json!([3, 1])),
        ("nothing", "{}", json!(null)),
    ] {
        let ran = desk.run(&format!("call {HELLO} {op} {args} --allow-unsigned"));
        assert_eq!(ran.json(), value, "{op}");
    }
    let failed = desk.run(&format!(r#"call {HELLO} divide {{"dividend":7,"divisor":0}} --allow-unsigned"#));
    failed.fails(70).said("input_invalid");
}

/// A component with an import that the host has, in another type.
fn of_another_type() -> Vec<u8> {
    package::component(
        r#"(import "wasi:random/random@0.2.0" (instance $random (export "get-random-u64" (func (result string)))))
           (core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#,
    )
}

#[test]
fn a_load_error_shows_its_cause_and_no_id() {
    let desk = desk();
    let bytes = package::pack(&of_another_type(), &package::manifest("github://acme/other", "1.0.0"));
    fs::write(desk.path("other.wasm"), bytes).unwrap();
    let refused = desk.install("other.wasm --allow-unsigned");
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let causes: Vec<_> = refused.stderr.lines().filter(|line| line.starts_with("cause: ")).collect();
    assert!(causes.iter().any(|cause| cause.contains("get-random-u64")), "{}", refused.stderr);
    assert!(refused.stderr.contains("load_failed"), "{}", refused.stderr);
    let error = refused.stderr.lines().skip_while(|line| !line.starts_with("error: "));
    assert!(error.clone().count() > 2);
    assert!(
        !error.clone().any(|line| line.contains("audit-")),
        "no install is in the audit log: {}",
        refused.stderr
    );
    let refused = desk.install("other.wasm --allow-unsigned --format json");
    let envelope: Value = serde_json::from_str(refused.stderr.lines().last().unwrap()).unwrap();
    let error = &envelope["error"];
    assert_eq!((&error["details"]["code"], &error["audit_id"]), (&json!("load_failed"), &Value::Null));
}

#[test]
fn a_refused_install_names_no_audit_id() {
    let desk = desk();
    desk.quiet();
    let refused = desk.install("quiet.wasm").fails(81);
    assert!(!refused.stderr.contains("audit-"), "{}", refused.stderr);
    let refused = desk.install("quiet.wasm -v").fails(81);
    assert!(!refused.stderr.lines().any(|line| line.contains("record: audit-")), "{}", refused.stderr);
}
