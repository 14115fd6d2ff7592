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
        let is_test = inside.ends_with("tests.rs")
            || inside.contains("/tests/")
            || inside.contains("_tests/")
            || inside == "failpoints.rs";
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
fn only_the_cli_uses_the_terminal_and_environment() {
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
    // In development, local services stand in for real ones. The doctor connects to itself, to see whether that works. The
    // guard of registry traffic is a proxy of this process for itself.
    only(
        &["server/src/server/", "dev/", "cli/src/commands/doctor/", "distribution/src/guard.rs"],
        &["TcpListener", "UnixListener"],
    );
}

#[test]
fn calls_read_time_from_the_given_clock() {
    // Those below measure their own waits, or keep connections; nothing of a call is decided by it.
    only(
        &[
            "core/src/clock/",
            "cli/",
            "distribution/",
            "egress/src/egress/",
            "model/src/registry/",
            "server/",
            "audit/src/index/",
        ],
        &["Instant::now()"],
    );
}

#[test]
fn only_the_failure_module_creates_failures() {
    only(&["core/src/failure/"], &["Failure::new("]);
}

#[test]
fn every_file_begins_with_its_purpose() {
    let mut wrong = Vec::new();
    for dir in ["host", "guest-sdk", "tests", "examples"] {
        for path in sources(dir) {
            let text = fs::read_to_string(&path).unwrap();
            let first = text.lines().next().unwrap_or_default();
            // The crate's front page has it.
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

/// The paragraphs of the doc comments of a file, without code: the line of each, and its text.
fn doc_paragraphs(text: &str) -> Vec<(usize, String)> {
    let (mut paragraphs, mut is_open, mut in_code) = (Vec::<(usize, String)>::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim);
        in_code = doc.is_some_and(|doc| in_code != doc.starts_with("```"));
        match doc {
            Some(doc) if !doc.is_empty() && !in_code && !doc.starts_with("```") => {
                if is_open && let Some((_, paragraph)) = paragraphs.last_mut() {
                    *paragraph += " ";
                    *paragraph += doc;
                } else {
                    paragraphs.push((number + 1, doc.to_owned()));
                }
                is_open = true;
            }
            _ => is_open = false,
        }
    }
    paragraphs
}

/// A doc comment begins with a verb or a noun ("Returns ...", "A permit ..."), never with a clause without a subject.
#[test]
fn doc_comments_begin_with_a_verb_or_a_noun() {
    let headless = ["What", "Who", "Whoever", "Whose", "Whatever", "How", "Where", "Whether"];
    let mut wrong = Vec::new();
    for path in ["host", "guest-sdk"].into_iter().flat_map(sources) {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(repository()).unwrap().display().to_string();
        for (line, paragraph) in doc_paragraphs(&text) {
            let first = paragraph.split([' ', ',', '\'']).next().unwrap_or_default();
            if headless.contains(&first) {
                wrong.push(format!("{name}:{line}: {}", paragraph.chars().take(80).collect::<String>()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} doc comments begin with a headless clause: {wrong:#?}", wrong.len());
}
