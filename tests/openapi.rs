//! `cofferdam new --openapi`: projects of documents build, pass their scenarios, are updated, and meet mocks of their services.

mod example;
mod hostile;
mod sample;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::cli::with_toolchain;
use crate::new::{Author, ok, refused};

/// A document with every style of parameters, every encoding of bodies, and a list in pages.
const DOCUMENT: &str = include_str!("openapi/styles.yaml");

fn author(document: &str) -> Author {
    let author = Author::new();
    fs::write(author.work("api.yaml"), document).unwrap();
    author
}

#[test]
fn a_project_builds_and_passes_its_scenarios() {
    let author = author(DOCUMENT);
    let made = author.new_project(&["shop", "--openapi", "api.yaml"]);
    assert_eq!(made["carried_over"], json!({"exact": 15, "with_json_text": 1, "refused": 0}), "{made}");
    let dir = author.work("shop");
    let built = author.command(&dir, &["build", "--format", "json", "--", "--locked"]).output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(!said.contains("warning"), "{said}");
    let built = ok(&built);
    assert_eq!(built["unused_imports"].as_array().unwrap().len(), 0, "{built}");
    let size = fs::metadata(built["path"].as_str().unwrap()).unwrap().len();
    assert!(size < 400 * 1024, "{size} bytes");
    let tested = author.command(&dir, &["test"]).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&tested.stdout), String::from_utf8_lossy(&tested.stderr));
    assert!(tested.status.success(), "{said}");
    let mut fmt = Command::new("cargo");
    with_toolchain(&mut fmt);
    let formatted = fmt.args(["fmt", "--check"]).current_dir(&dir).output().unwrap();
    assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stdout));
}

#[test]
fn a_check_writes_nothing() {
    let author = author(DOCUMENT);
    let args = ["new", "shop", "--owner", "acme", "--openapi", "api.yaml", "--check", "--format", "json"];
    let report = ok(&author.run(&args));
    assert_eq!(
        (&report["exact"], &report["with_json_text"], &report["refused"]),
        (&json!(15), &json!(1), &json!(0))
    );
    let one = &report["operations"][0];
    assert!(one["name"].is_string() && one["status"].is_string(), "{report}");
    assert!(!author.work("shop").exists());
}

#[test]
fn an_update_rewrites_generated_files_alone() {
    let author = author(DOCUMENT);
    author.new_project(&["shop", "--openapi", "api.yaml"]);
    let dir = author.work("shop");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let (manifest, source) = (read("connector.toml"), read("src/lib.rs"));
    fs::write(dir.join("src/lib.rs"), format!("{source}\n// mine\n")).unwrap();
    let newer = DOCUMENT
        .replace("/items/{id}/archive", "/items/{id}/close")
        .replace("archiveItem", "closeItem")
        .replace(
            "name: {type: string, minLength: 1}",
            "name: {type: string}\n        weight: {type: number}",
        );
    assert_ne!(newer, DOCUMENT);
    fs::write(author.work("api.yaml"), newer).unwrap();
    let updated = ok(&author.run(&["new", "shop", "--owner", "acme", "--update", "--format", "json"]));
    assert_eq!(updated["operations"]["added"], json!(["close-item"]));
    assert_eq!(updated["operations"]["removed"], json!(["archive-item"]));
    let changed = updated["types"]["changed"].as_array().unwrap();
    assert!(changed.contains(&json!("item")), "{updated}");
    assert_eq!(updated["manifest"], json!({"missing": ["close_item"], "stale": ["archive_item"]}));
    assert_eq!(updated["files_removed"], json!(["tests/archive_item.toml"]));
    assert_eq!(read("connector.toml"), manifest, "grants are the author's");
    assert!(read("src/lib.rs").ends_with("// mine\n"));
    assert!(read("src/generated/operations.rs").contains("close_item"));
    // A file that is not generated is not overwritten.
    fs::write(dir.join("wit/shop.wit"), "package acme:shop@0.1.0;\n").unwrap();
    let said = refused(&author.run(&["new", "shop", "--owner", "acme", "--update"]), 67);
    assert!(said.contains("not generated"), "{said}");
}

#[test]
fn a_document_comes_from_a_web_server() {
    let author = Author::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/openapi.yaml", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let length = DOCUMENT.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{DOCUMENT}"
            )
            .unwrap();
        }
    });
    let made = author.new_project(&["shop", "--openapi", &url, "--operations", "getItem"]);
    assert_eq!(made["carried_over"]["exact"], 1, "{made}");
    let settings = fs::read_to_string(author.work("shop/openapi.toml")).unwrap();
    assert!(settings.contains(&url), "{settings}");
    let args = ["new", "other", "--owner", "acme", "--openapi", "http://shop.example/openapi.yaml"];
    let said = refused(&author.run(&args), 65);
    assert!(said.contains("https"), "{said}");
}

#[test]
fn a_refused_document_leaves_nothing() {
    let author = author("swagger: '2.0'\n");
    let said = refused(&author.run(&["new", "shop", "--owner", "acme", "--openapi", "api.yaml"]), 65);
    assert!(said.contains("api.yaml#/swagger") && said.contains("swagger2openapi"), "{said}");
    assert!(!author.work("shop").exists());
    let args = ["new", "shop", "--owner", "acme", "--openapi", "api.yaml", "--lang", "python"];
    assert!(refused(&author.run(&args), 65).contains("Rust"));
}

/// Returns the arguments of the scenario in a generated file.
fn args_of(text: &str) -> Value {
    let table: toml::Table = toml::from_str(text).unwrap();
    let value = serde_json::to_value(&table["scenario"][0]["call"][0]["args"]).unwrap();
    with_nulls(value)
}

/// Puts `null` where a scenario has its placeholder.
fn with_nulls(value: Value) -> Value {
    match value {
        Value::String(text) if text == "{{null}}" => Value::Null,
        Value::Array(items) => items.into_iter().map(with_nulls).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, with_nulls(value))).collect(),
        other => other,
    }
}
