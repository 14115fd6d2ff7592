//! Packages for tests: guests built from source, and components written as WebAssembly text.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_model::package::{ConnectorDocs, embed, operations_of};

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let support = Path::new(env!("CARGO_MANIFEST_DIR"));
    support.ancestors().nth(2).unwrap_or(support).to_owned()
}

/// The component of the example guest `name`, built if need be.
///
/// # Panics
/// It cannot be built; the message says why and what to do.
#[must_use]
pub fn guest(name: &str) -> Vec<u8> {
    let path = crate::guests::component(name).unwrap_or_else(|error| panic!("{error}"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The manifest of the example guest `name`, verbatim.
///
/// # Panics
/// There is none.
#[must_use]
pub fn guest_manifest(name: &str) -> String {
    let path = repository().join("examples").join(name).join("connector.toml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The manifest with other hosts everywhere, like an author's edit to reach another server.
#[must_use]
pub fn with_hosts(manifest: &str, hosts: &[String]) -> String {
    let line = format!("hosts = {hosts:?}");
    let mut lines: Vec<String> = Vec::new();
    let mut skipping = false;
    for old in manifest.lines() {
        let named = !skipping && old.trim_start().starts_with("hosts");
        if named {
            lines.push(line.clone());
        } else if !skipping {
            lines.push(old.to_owned());
        }
        skipping = (named || skipping) && !old.contains(']');
    }
    if !lines.contains(&line) {
        lines.extend(["[capabilities.network]".to_owned(), line]);
    }
    lines.join("\n") + "\n"
}

/// The example guest `name` as a package: its component, its manifest with `hosts` instead of its own if there
/// are any, and the documentation in its WIT.
///
/// # Panics
/// It cannot be built or packed.
#[must_use]
pub fn guest_package(name: &str, hosts: &[String]) -> Vec<u8> {
    example_package(&guest(name), name, hosts)
}

/// The same of a component that something else built from the example `name`.
///
/// # Panics
/// It cannot be packed.
#[must_use]
pub fn example_package(component: &[u8], name: &str, hosts: &[String]) -> Vec<u8> {
    let mut manifest = guest_manifest(name);
    if !hosts.is_empty() {
        manifest = with_hosts(&manifest, hosts);
    }
    let wit = repository().join("examples").join(name).join("wit").join(format!("{name}.wit"));
    let text = fs::read_to_string(&wit).unwrap_or_else(|error| panic!("{}: {error}", wit.display()));
    let operations = operations_of(component).unwrap_or_else(|error| panic!("{error}"));
    let docs = ConnectorDocs::from_wit(&[(format!("{name}.wit"), text)], &operations);
    let docs = docs.unwrap_or_else(|error| panic!("{error}"));
    embed(component, &manifest, &docs).unwrap_or_else(|error| panic!("{error}"))
}

/// A package of `component` with `manifest` and no docs.
///
/// # Panics
/// The component cannot be packed.
#[must_use]
pub fn pack(component: &[u8], manifest: &str) -> Vec<u8> {
    embed(component, manifest, &ConnectorDocs::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The same, unchecked: our tool cannot pack some bombs, and a foreign package looks like this.
#[must_use]
pub fn pack_unchecked(component: &[u8], manifest: &str) -> Vec<u8> {
    use wasm_encoder::ComponentSection;
    let mut bytes = component.to_vec();
    for (name, content) in [("cofferdam:manifest", manifest), ("cofferdam:docs", "{}")] {
        let section = wasm_encoder::CustomSection { name: name.into(), data: content.as_bytes().into() };
        section.append_to_component(&mut bytes);
    }
    bytes
}

/// The component with `bytes` more bytes, which do nothing.
#[must_use]
pub fn padded(component: &[u8], bytes: usize) -> Vec<u8> {
    use wasm_encoder::ComponentSection;
    let mut padded = component.to_vec();
    let padding = vec![0x5a; bytes];
    wasm_encoder::CustomSection { name: "padding".into(), data: padding.into() }
        .append_to_component(&mut padded);
    padded
}

/// The smallest manifest.
#[must_use]
pub fn manifest(name: &str, version: &str) -> String {
    format!("[connector]\nname = \"{name}\"\nversion = \"{version}\"\n")
}

/// The types every operation's result needs, as component text: `$failure` is the contract's failure.
const FAILURE: &str = r#"
  (type $text (option string))
  (type $phase-def (enum "dns" "connect" "tls" "send" "response"))
  (export $phase "network-phase" (type $phase-def))
  (type $upstream-def (record
    (field "status" u16) (field "code" $text) (field "retry-after-ms" (option u64)) (field "detail" $text)))
  (export $upstream "upstream-error" (type $upstream-def))
  (type $network-def (record (field "phase" (option $phase)) (field "detail" $text)))
  (export $network "network-error" (type $network-def))
  (type $input-def (record (field "field" $text) (field "message" string) (field "detail" $text)))
  (export $input "input-error" (type $input-def))
  (type $operation-def (record
    (field "code" $text) (field "message" string) (field "transient" bool) (field "detail" $text)))
  (export $operation "operation-error" (type $operation-def))
  (type $failure-def (variant
    (case "upstream" $upstream) (case "network" $network)
    (case "invalid-input" $input) (case "failed" $operation)))
  (export $failure "failure" (type $failure-def))
"#;

/// The adapter that makes the core module `$m` a connector with one operation, `run() -> result<_, failure>`.
const RUN: &str = r#"
  (core instance $i (instantiate $m))
  (alias core export $i "memory" (core memory $memory))
  (func (export "run") (result (result (error $failure)))
    (canon lift (core func $i "run") (memory $memory)))
"#;

/// A component from the text of its body, which may use the type `$failure`. A body that lifts nothing itself
/// defines a core module `$m`, whose export `run` becomes the only operation.
///
/// # Panics
/// The text is not a component's.
#[must_use]
pub fn component(body: &str) -> Vec<u8> {
    let run = if body.contains("canon lift") { "" } else { RUN };
    let text = format!("(component {FAILURE}\n{body}\n{run})");
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// A component whose only operation, `run`, does nothing, successfully.
#[must_use]
pub fn quiet() -> Vec<u8> {
    component(
        r#"(core module $m (memory (export "memory") 1) (func (export "run") (result i32) (i32.const 0)))"#,
    )
}

/// The names of the files in `tests/hostile`, without `.wat`.
///
/// # Panics
/// The directory cannot be read.
#[must_use]
pub fn hostile_names() -> Vec<String> {
    let files = fs::read_dir(repository().join("tests/hostile")).expect("tests/hostile");
    let names = files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".wat").map(str::to_owned)).collect();
    names.sort();
    names
}

/// The text of `tests/hostile/<name>.wat`.
///
/// # Panics
/// There is no such file.
#[must_use]
pub fn hostile_text(name: &str) -> String {
    let path = repository().join("tests/hostile").join(format!("{name}.wat"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
