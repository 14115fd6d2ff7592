//! The generated example: it is what `cofferdam new --openapi` writes today.

use std::fs;
use std::path::PathBuf;

use cofferdam_test_support::golden::assert_committed;

use crate::new::{Author, ok};
use crate::services::fixture::tools;

/// The operations of the hand-written `github-issues`.
const OPERATIONS: [&str; 4] = ["issues/list-for-repo", "issues/get", "issues/create", "pulls/list"];

/// Files that the example has as every example, not as a project of its own.
const OWN: [&str; 2] = ["Cargo.toml", "openapi.toml"];

/// With `COFFERDAM_BLESS=1` it is written again.
#[test]
fn the_generated_example_is_up_to_date() {
    let Some(tools) = tools() else { return };
    let author = Author::new();
    let document = tools.dir().join("descriptions/github.json");
    let document = document.to_str().unwrap();
    let args =
        ["new", "github-openapi", "--owner", "cofferdam", "--credential", "bearer", "--openapi", document];
    ok(&author.run(&[&args[..], &["--operations"], &OPERATIONS[..], &["--format", "json"]].concat()));
    let made = author.work("github-openapi");
    for file in files(&made, "") {
        let is_for_editors = file.starts_with('.') || file == "Cargo.lock" || file == "README.md";
        if is_for_editors || OWN.contains(&file.as_str()) {
            continue;
        }
        assert_committed(
            &format!("examples/github-openapi/{file}"),
            &fs::read_to_string(made.join(&file)).unwrap(),
        );
    }
}

fn files(dir: &PathBuf, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            found.extend(files(&entry.path(), &format!("{name}/")));
        } else {
            found.push(name);
        }
    }
    found
}
