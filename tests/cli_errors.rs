//! User errors at the command line and their messages: arguments, a lost index, a mistake in a manifest.

use std::fs;

use cofferdam_test_support::package;

use crate::cli::{desk, example_cli};

#[test]
fn mistyped_arguments_are_refused_with_a_correction() {
    let cli = example_cli();
    let greet = |args: &[&str]| cli.run(&[&["call", "github://cofferdam/hello", "greet"], args].concat());
    greet(&["--arg", "name=5"]).fails(65).said(r#"--arg 'name="5"'"#);
    assert_eq!(greet(&["--arg", r#"name="5""#]).json()["text"], "Good day, 5.");
    greet(&[r#"{"name": "Ada", "name": "Bob"}"#]).fails(65).said("`name` stands twice");
    let twice = greet(&[r#"{"name": "Ada"}"#, "--arg", "name=Bob"]).fails(65);
    twice.said("`name` is given twice");
}

#[test]
fn a_lost_index_is_reported() {
    let desk = desk();
    desk.quiet();
    desk.install("quiet.wasm --allow-unsigned").ok();
    fs::remove_file(desk.path("packages/index.json")).unwrap();
    desk.run("call github://acme/quiet run --allow-unsigned").fails(66).said("verify --rebuild-index");
    let listed = desk.run("list");
    assert!(listed.stderr.contains("verify --rebuild-index"), "{listed:?}");
    desk.run("verify --rebuild-index").fails(81).said("index was rebuilt");
    desk.run("call github://acme/quiet run --allow-unsigned").ok();
}

#[test]
fn manifest_errors_are_named_with_their_line() {
    let desk = desk();
    fs::write(desk.path("quiet.wasm"), package::quiet()).unwrap();
    let manifest = package::manifest("github://acme/quiet", "1.0.0")
        + "\n[connector.idempotency.operations]\nrnu = \"not_idempotent\"\n";
    fs::write(desk.path("connector.toml"), manifest).unwrap();
    let ran = desk.run("pack quiet.wasm --manifest connector.toml -o packed.wasm").fails(65);
    assert!(ran.stderr.contains("connector.toml:6") && ran.stderr.contains("`run`"), "{}", ran.stderr);
    let manifest =
        package::manifest("github://acme/quiet", "1.0.0") + "\n[limits]\nfuel = 5\nmemory = \"2GiB\"\n";
    fs::write(desk.path("connector.toml"), &manifest).unwrap();
    let ran = desk.run("pack quiet.wasm --manifest connector.toml -o packed.wasm").fails(65);
    assert!(ran.stderr.contains("connector.toml:7: limits.memory: "), "{}", ran.stderr);
    fs::write(desk.path("big.wasm"), package::pack(&package::quiet(), &manifest)).unwrap();
    desk.install("big.wasm --allow-unsigned").fails(65).said("connector.toml:7: limits.memory: ");
}
