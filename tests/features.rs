//! The dependencies of an embedder, and of a command without features.

use std::process::Command;

use cofferdam_test_support::package::repository;

/// The packages that `cargo build -p PACKAGE` compiles, one a line, each with its features.
fn built(package: &str) -> String {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "-p", package, "-e", "normal", "--prefix", "none"])
        .args(["-f", "{p} [{f}]"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[track_caller]
fn lacks(built: &str, packages: &[&str]) {
    for package in packages {
        let name = format!("{package} v");
        assert!(!built.lines().any(|line| line.starts_with(&name)), "{package} is built");
    }
}

#[test]
fn an_embedder_compiles_no_terminal_and_no_server() {
    let built = built("cofferdam");
    assert!(built.lines().any(|line| line.starts_with("wasmtime v")), "{built}");
    let terminal = ["clap", "indicatif", "comfy-table", "rpassword", "clap_mangen", "anstream"];
    lacks(&built, &terminal);
    lacks(&built, &["axum", "rmcp", "schemars", "tower-http", "tracing-subscriber", "prometheus-client"]);
}

#[test]
fn the_default_build_has_servers_and_no_telemetry() {
    let built = built("cofferdam-cli");
    assert!(built.lines().any(|line| line.starts_with("rmcp v")), "{built}");
    lacks(&built, &["opentelemetry", "prometheus-client", "tracing-opentelemetry"]);
}
