//! The shape of the sources: imports go down, one place knows each outside thing, files say their job.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_test_support::package::repository;

/// The sources of the crates.
const CRATES: [&str; 3] = ["host/src", "host/core/src", "host/model/src"];

/// The floor of each folder of `host/src`. A file imports from lower floors or from its own folder; what is in a crate
/// of its own, the compiler holds.
const FLOORS: &[(&str, u8)] = &[
    ("explain", 1),
    ("egress", 2),
    ("vault", 2),
    ("resilience", 2),
    ("audit", 2),
    ("metrics", 2),
    ("sandbox", 3),
    ("credentials", 3),
    ("call", 4),
    ("agent", 5),
    ("flow", 5),
    ("host", 6),
    ("server", 6),
    ("http_api", 7),
    ("mcp", 7),
    ("cli", 8),
    ("lib", 9),
    ("main", 9),
];

/// Imports within one floor that are meant.
const SIDEWAYS: [(&str, &str); 1] = [
    // What an agent is told of an action is what its runner reports.
    ("agent", "flow"),
];

/// Every `.rs` file below a directory of the repository.
fn sources(dir: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&repository().join(dir), &mut found);
    found.sort();
    found
}

/// The code of a file: without comments and without what follows `#[cfg(test)]` at its end.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The folder, or the file at the top, that a source of the host is in.
fn folder(path: &Path) -> String {
    let inside = path.strip_prefix(repository().join("host/src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn floor(folder: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == folder).map(|(_, floor)| *floor)
}

/// The modules of the crate that a source names: `crate::x`, also in `use crate::{x::A, y::B}`.
fn imports(code: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = Vec::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            None => found.push(name(after)),
            Some(list) => {
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => found.push(name(&std::mem::take(&mut item))),
                        _ => {}
                    }
                    if c != ',' || depth > 0 {
                        item.push(c);
                    }
                }
                found.push(name(&item));
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn imports_only_go_down() {
    let mut wrong = Vec::new();
    for path in sources("host/src") {
        let from = folder(&path);
        let Some(own) = floor(&from) else { panic!("{} has no floor: add it to the table", path.display()) };
        for to in imports(&code(&fs::read_to_string(&path).unwrap())) {
            // What the crate re-exports at its top is for embedders; folders name folders.
            let Some(below) = floor(&to) else {
                let reexport = to.starts_with(char::is_uppercase) || to == "compile_worker";
                if own < 8 || !reexport {
                    wrong.push(format!("{}: crate::{to} is no folder", path.display()));
                }
                continue;
            };
            let meant = SIDEWAYS.contains(&(&from, &to));
            if from != to && below >= own && !meant {
                wrong.push(format!("{}: floor {own} imports {to}, floor {below}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_scan_for_imports_sees_every_form() {
    let code =
        "use crate::a::X;\nuse crate::{b, c::{D, E}, f::G};\nlet x = crate::h::y();\npub(crate) fn z() {}";
    assert_eq!(imports(code), ["a", "b", "c", "f", "h"]);
}

/// Only the files below `allowed` contain any of `words`.
#[track_caller]
fn only(allowed: &[&str], words: &[&str]) {
    let mut wrong = Vec::new();
    for (root, path) in CRATES.iter().flat_map(|root| sources(root).into_iter().map(move |path| (root, path)))
    {
        let inside = path.strip_prefix(repository().join(root)).unwrap().to_string_lossy().into_owned();
        let is_test = inside.ends_with("tests.rs") || inside.contains("/tests/");
        if is_test || allowed.iter().any(|allowed| inside.starts_with(allowed)) {
            continue;
        }
        let code = code(&fs::read_to_string(&path).unwrap());
        for word in words.iter().filter(|word| code.contains(**word)) {
            wrong.push(format!("{root}/{inside}: {word}"));
        }
    }
    assert!(wrong.is_empty(), "only {allowed:?} may: {wrong:#?}");
}

#[test]
fn only_the_sandbox_knows_the_runtime() {
    only(&["sandbox/"], &["wasmtime::", "wasmtime_wasi", "wasmtime_wasi_http"]);
}

#[test]
fn only_the_command_line_knows_the_terminal_and_the_environment() {
    let words =
        ["std::env::var", "env::var(", "env::var_os", "env::args", "println!(", "eprintln!(", "print!("];
    only(&["cli/", "main.rs"], &words);
    only(&["cli/", "main.rs"], &["clap::", "indicatif::", "anstream::", "comfy_table::", "process::exit"]);
}

#[test]
fn only_the_server_listens() {
    only(&["server/"], &["TcpListener", "UnixListener"]);
}

#[test]
fn a_call_gets_its_time_from_the_clock_it_is_given() {
    // Those below measure their own waits, or keep connections; nothing of a call is decided by it.
    only(
        &[
            "clock/",
            "cli/",
            "egress/",
            "registry/",
            "resilience/breaker/turn.rs",
            "server/slow.rs",
            "server/places.rs",
            "mcp/stdio.rs",
            "mcp/sessions.rs",
            "mcp/reply.rs",
        ],
        &["Instant::now()"],
    );
}

#[test]
fn only_the_failure_folder_makes_failures() {
    only(&["failure/"], &["Failure::new("]);
}

#[test]
fn every_file_says_its_one_job_on_its_first_line() {
    let mut wrong = Vec::new();
    for dir in [
        "host/src",
        "host/core",
        "host/model",
        "host/examples",
        "host/benches",
        "guest-sdk",
        "tests",
        "examples",
    ] {
        for path in sources(dir) {
            let text = fs::read_to_string(&path).unwrap();
            let first = text.lines().next().unwrap_or_default();
            // The crate's front page says it for the crate.
            if first.starts_with("#![doc = include_str!(") {
                continue;
            }
            let job = first.strip_prefix("//! ").unwrap_or_default();
            if job.len() < 10 {
                wrong.push(format!("{}: {first}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_file_grows_past_reading() {
    let mut wrong = Vec::new();
    for dir in ["host/src", "host/core", "host/model", "host/examples", "guest-sdk", "tests"] {
        for path in sources(dir) {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            if lines > 500 {
                wrong.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
