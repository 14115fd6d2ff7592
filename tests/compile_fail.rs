//! Code outside the crate cannot create or change a failure or a class, or read a secret.
//!
//! Each snippet is compiled by `rustc` against the very library that these tests are linked with, and
//! has to fail with its error; the first has to compile, so that the others fail for their own reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Code that compiles: reading a failure.
const READS: &str = "pub fn read(f: &Failure) -> (FailureClass, FailureBoundary, &str, bool) {
    (f.class(), f.boundary(), f.message(), f.retriable())
}";

/// Code that does not compile: the error's code, and the source.
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
    // No call without limits: they can only be created by resolving, have no default and no "none", and a
    // request for them gives an amount or leaves it to the next in rank.
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
    // A secret cannot be printed, copied, stored or read.
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

/// The libraries of the crate `name` that are not newer than this binary, the newest first. There are several if
/// other selections of packages were built with other features.
fn built_libraries(name: &str) -> Vec<PathBuf> {
    // Another build may be taking files away while this looks.
    let built = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let this = built(&std::env::current_exe().unwrap());
    let files = fs::read_dir(libraries()).unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let older = |path: &PathBuf| built(path).is_some_and(|time| Some(time) <= this);
    let mut found: Vec<_> = files.filter(is_it).filter(older).collect();
    found.sort_by_key(|path| std::cmp::Reverse(built(path)));
    assert!(!found.is_empty(), "no library of {name}");
    found
}

/// Compiles `code` after the imports of the snippets.
fn errors(name: &str, code: &str) -> Vec<String> {
    let uses = "use cofferdam_core::limits::{LimitCeilings, LimitRequest, Limits};\n\
                use cofferdam_core::secret::{Scanner, Secret};\n\
                use cofferdam::{AuditId, FailureBoundary, Call, Failure, FailureClass};\n";
    compile(name, &format!("{uses}{code}\n"))
}

/// Compiles `code` as a library, and returns the codes and texts of its errors.
pub(crate) fn compile(name: &str, code: &str) -> Vec<String> {
    /// The build of serde_json that the host's crates use.
    static SERDE_JSON: LazyLock<PathBuf> = LazyLock::new(|| {
        let probe = "pub fn new(of: cofferdam::ConnectorRef, args: serde_json::Value) -> cofferdam::Call {
            cofferdam::Call::new(of, \"\", args)
        }";
        let mut builds = built_libraries("serde_json").into_iter();
        builds.find(|build| compile_with(build, "probe", probe).is_empty()).unwrap()
    });
    compile_with(&SERDE_JSON, name, code)
}

fn compile_with(serde_json: &Path, name: &str, code: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join(format!("{name}.rs"));
    fs::write(&source, code).unwrap();
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
    let newest = |name: &str| built_libraries(name).swap_remove(0);
    let libraries = [("cofferdam", newest("cofferdam")), ("cofferdam_core", newest("cofferdam_core"))];
    for (library_name, path) in libraries.into_iter().chain([("serde_json", serde_json.to_owned())]) {
        command.arg("--extern").arg(format!("{library_name}={}", path.display()));
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
