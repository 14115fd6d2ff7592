//! The shape of the sources: one place knows each outside thing, and files say their job.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_test_support::package::repository;

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

/// Only the files of `host` below `allowed` contain any of `words`.
#[track_caller]
fn only(allowed: &[&str], words: &[&str]) {
    let mut wrong = Vec::new();
    for path in sources("host") {
        let inside = path.strip_prefix(repository().join("host")).unwrap().to_string_lossy().into_owned();
        let is_product =
            !["benches/", "examples/", "cli/benches/"].iter().any(|other| inside.starts_with(other));
        let is_test = inside.ends_with("tests.rs") || inside.contains("/tests/") || inside == "failpoints.rs";
        if is_test || !is_product || allowed.iter().any(|allowed| inside.starts_with(allowed)) {
            continue;
        }
        let code = code(&fs::read_to_string(&path).unwrap());
        for word in words.iter().filter(|word| code.contains(**word)) {
            wrong.push(format!("{inside}: {word}"));
        }
    }
    assert!(wrong.is_empty(), "only {allowed:?} may: {wrong:#?}");
}

#[test]
fn only_the_command_line_knows_the_terminal_and_the_environment() {
    let words = [
        "std::env::var",
        "env::var(",
        "env::var_os",
        "env::args",
        "println!(",
        "eprintln!(",
        "print!(",
        "process::exit",
    ];
    only(&["cli/"], &words);
}

#[test]
fn only_the_server_listens() {
    only(&["server/src/server/"], &["TcpListener", "UnixListener"]);
}

#[test]
fn a_call_gets_its_time_from_the_clock_it_is_given() {
    // Those below measure their own waits, or keep connections; nothing of a call is decided by it.
    only(
        &[
            "core/src/clock/",
            "cli/",
            "egress/src/egress/",
            "model/src/registry/",
            "egress/src/resilience/breaker/turn.rs",
            "server/",
        ],
        &["Instant::now()"],
    );
}

#[test]
fn only_the_failure_folder_makes_failures() {
    only(&["core/src/failure/"], &["Failure::new("]);
}

#[test]
fn every_file_says_its_one_job_on_its_first_line() {
    let mut wrong = Vec::new();
    for dir in ["host", "guest-sdk", "tests", "examples"] {
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
