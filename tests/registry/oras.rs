//! Other tools for Wasm artifacts: the Python SDK of ORAS and act-build push what this host pulls, and pull what it pushes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use cofferdam_test_support::package::repository;
use cofferdam_test_support::services::Tools;
use serde_json::json;

use super::server::{Access, Registry, tools};
use super::{Desk, digest};

/// Runs the script for the SDK, and returns its output.
#[track_caller]
fn oras(tools: &Tools, dir: &Path, args: &[&str]) -> String {
    let script = repository().join("tests/services/tools/oras_copy.py");
    succeeded(
        Command::new(tools.python("python"))
            .arg(script)
            .args(args)
            .env("HOME", dir)
            .current_dir(dir)
            .output(),
    )
}

#[track_caller]
fn succeeded(output: std::io::Result<Output>) -> String {
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn oras_pulls_what_is_published() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    desk.run(&format!("publish quiet-1.0.0.wasm {}", registry.reference(":1.0.0"))).ok();
    let out = desk.dir("out");
    let reference = format!("{}/acme/quiet:1.0.0", registry.name());
    let files = oras(&tools, desk.home.path(), &["pull", &reference, out.to_str().unwrap()]);
    assert!(files.trim_end().ends_with("out/quiet-1.0.0.wasm"), "{files}");
    assert_eq!(fs::read(out.join("quiet-1.0.0.wasm")).unwrap(), package);
}

#[test]
fn a_push_by_oras_is_pulled_and_signed() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    fs::write(desk.path("config.json"), "{}").unwrap();
    let reference = format!("{}/acme/quiet:1.0.0", registry.name());
    oras(&tools, desk.home.path(), &["push", &reference, "quiet-1.0.0.wasm", "config.json"]);
    desk.dir("out");
    let reference = registry.reference(":1.0.0");
    desk.run(&format!("pull {reference} -o out")).fails(81).said("no signature");
    let pulled = desk.run(&format!("pull {reference} -o out --allow-unsigned --format json")).json();
    assert_eq!(pulled["hash"], digest(&package));
    // The same package is there already: publishing attaches the signature to it.
    let published = desk.run(&format!("publish quiet-1.0.0.wasm {reference} --format json")).json();
    assert_eq!(
        (&published["already_published"], &published["already_signed"]),
        (&json!(true), &json!(false))
    );
    desk.installs(&reference).ok();
}

#[test]
fn act_build_and_publish_push_the_same_layer() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    let publish = format!("publish quiet-1.0.0.wasm {} --format json", registry.reference(":1.0.0"));
    let published = desk.run(&publish).json();
    // It moves the tag to a manifest of its own around the layer that is there.
    let mut command = Command::new(tools.python("act-build"));
    command.args(["push", "quiet-1.0.0.wasm", &format!("{}/acme/quiet:1.0.0", registry.name())]);
    succeeded(command.env("HOME", desk.home.path()).current_dir(desk.home.path()).output());
    let inspected = desk.run(&format!("inspect {} --format json", registry.reference(":1.0.0"))).json();
    assert_eq!(
        (&inspected["hash"], &inspected["signature"]["status"]),
        (&json!(digest(&package)), &json!("unsigned"))
    );
    let again = desk.run(&publish).json();
    assert_eq!((&again["already_published"], &again["already_signed"]), (&json!(true), &json!(false)));
    assert_ne!(again["reference"], published["reference"]);
    desk.installs(&registry.reference(":1.0.0")).ok();
}
