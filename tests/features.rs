//! What is built when nobody asks for more: none of the features that the tests have.

use std::process::Command;

use cofferdam_test_support::package::repository;

/// The host and what it is built of, each with its features, as `cargo build -p cofferdam` has them.
fn built() -> String {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "-p", "cofferdam", "-e", "normal", "--prefix", "none"])
        .args(["-f", "{p} [{f}]"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn nothing_is_built_that_was_not_asked_for() {
    let built = built();
    let host = built.lines().find(|line| line.starts_with("cofferdam v")).unwrap();
    assert!(host.ends_with("[default,server]"), "{host}");
    for optional in ["opentelemetry", "prometheus-client", "tracing-opentelemetry"] {
        assert!(!built.lines().any(|line| line.starts_with(optional)), "{optional} is built by default");
    }
}
