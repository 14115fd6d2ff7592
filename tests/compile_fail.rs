//! Nobody outside the crate can make a failure or a class of their choice, or change one, or read a secret.
//!
//! Each snippet is compiled by `rustc` against the very library that these tests are linked with, and
//! has to fail with its error; the first has to compile, so that the others fail for their own reason.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What compiles: reading a failure.
const READS: &str = "pub fn read(f: &Failure) -> (FailureClass, FailureBoundary, &str, bool) {
    (f.class(), f.boundary(), f.message(), f.retriable())
}";

/// What does not: the error's code, and the code.
const REFUSED: [(&str, &str); 31] = [
    ("E0451", "pub fn make() -> Failure { Failure { inner: todo!() } }"),
    // The rights of the host's own crates are not in the facade.
    ("E0432", "use cofferdam::privileged::MakeFailure;"),
    ("E0624", "pub fn make() { let _ = Failure::new; }"),
    ("E0624", "pub fn make() { let _ = Failure::capability_denied; }"),
    ("E0624", "pub fn make() { let _ = Failure::network_error; }"),
    ("E0624", "pub fn make() { let _ = Failure::hash_mismatch; }"),
    ("E0624", "pub fn make(f: Failure) -> Failure { f.with_operator_note(\"\") }"),
    ("E0277", "pub fn make() -> Failure { Default::default() }"),
    ("E0277", "pub fn read() -> Failure { serde_json::from_str(\"\").unwrap() }"),
    ("E0277", "pub fn read() -> FailureClass { serde_json::from_str(\"\").unwrap() }"),
    ("E0277", "pub fn read() -> FailureClass { \"hash_mismatch\".parse().unwrap() }"),
    ("E0599", "pub fn reserved() -> FailureClass { FailureClass::ApprovalDenied }"),
    ("E0616", "pub fn soften(f: &mut Failure) { f.inner.retriable = true; }"),
    ("E0596", "pub fn soften(f: &mut Failure) { f.details().clear(); }"),
    ("E0423", "pub fn id() -> AuditId { AuditId(String::new()) }"),
    // No call without limits: they cannot be made but by resolving, have no default and no "none", and a
    // request for them says an amount or leaves it to the next in rank.
    (
        "E0451",
        "pub fn make() -> Limits { Limits { fuel: 0, wall_time: todo!(), attempt_time: todo!(), memory: 0 } }",
    ),
    ("E0277", "pub fn make() -> Limits { Default::default() }"),
    ("E0599", "pub fn make() -> Limits { Limits::unlimited() }"),
    ("E0616", "pub fn lift(l: &mut Limits) { l.fuel = u64::MAX; }"),
    (
        "E0451",
        "pub fn ask() -> LimitRequest { LimitRequest { fuel: Some(0), wall_time: None, memory: None } }",
    ),
    ("E0451", "pub fn raise() -> LimitCeilings { LimitCeilings { fuel: u64::MAX, ..Default::default() } }"),
    ("E0308", "pub fn call(c: Call) -> Call { c.limits(None) }"),
    // A secret cannot be shown, copied, kept or read.
    ("E0277", "pub fn show(s: &Secret) -> String { format!(\"{s:?}\") }"),
    ("E0277", "pub fn show(s: &Secret) -> String { format!(\"{s}\") }"),
    ("E0277", "pub fn show(s: &Secret) -> String { serde_json::to_string(s).unwrap() }"),
    ("E0277", "pub fn read() -> Secret { serde_json::from_str(\"\").unwrap() }"),
    ("E0308", "pub fn copy(s: &Secret) -> Secret { s.clone() }"),
    ("E0624", "pub fn read(s: &Secret) -> &str { s.expose() }"),
    ("E0616", "pub fn read(s: &Secret) -> &str { &s.0 }"),
    ("E0369", "pub fn same(s: &Secret) -> bool { s == s }"),
    ("E0277", "pub fn show(s: &Scanner) -> String { format!(\"{s:?}\") }"),
];

/// The directory of the test binary, where cargo puts the libraries it is linked with.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The newest library of the crate `name` that is not newer than this binary.
fn library(name: &str) -> PathBuf {
    // Another build may be taking files away while this looks.
    let built = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let this = built(&std::env::current_exe().unwrap());
    let files = fs::read_dir(libraries()).unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let older = |path: &PathBuf| built(path).is_some_and(|time| Some(time) <= this);
    files.filter(is_it).filter(older).max_by_key(built).unwrap_or_else(|| panic!("no library of {name}"))
}

/// Compiles `code` as a library; the codes and texts of its errors.
fn errors(name: &str, code: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join(format!("{name}.rs"));
    let uses = "use cofferdam_core::limits::{LimitCeilings, LimitRequest, Limits};\n\
                use cofferdam_core::secret::{Scanner, Secret};\n\
                use cofferdam::{AuditId, FailureBoundary, Call, Failure, FailureClass};\n";
    fs::write(&source, format!("{uses}{code}\n")).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args([
        "--edition",
        "2024",
        "--crate-type",
        "lib",
        "--emit",
        "metadata",
        "--error-format",
        "short",
        "-Aunused",
    ]);
    command.arg("--out-dir").arg(dir.path()).arg("-L").arg(libraries());
    command.arg("-L").arg(format!("dependency={}", libraries().display()));
    for library_name in ["cofferdam", "cofferdam_core", "serde_json"] {
        command.arg("--extern").arg(format!("{library_name}={}", library(library_name).display()));
    }
    let output =
        command.arg(source).current_dir(cofferdam_test_support::package::repository()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<_> = text.lines().filter(|line| line.contains(": error[")).map(str::to_owned).collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{text}");
    errors
}

#[test]
fn a_failure_cannot_be_made_or_changed_outside() {
    assert_eq!(errors("reads", READS), Vec::<String>::new());
    for (code, snippet) in REFUSED {
        let errors = errors("refused", snippet);
        assert!(errors.len() == 1 && errors[0].contains(code), "{snippet}\nexpected {code}, got {errors:#?}");
    }
}
