//! Keys at the command line: the replayed value, and its origin.

use std::fs;

use cofferdam_test_support::{Cli, Home, Signer};
use serde_json::{Value, json};

use super::count;
use crate::COFFERDAM;
use crate::shared_host::{run, shared_host};

pub(super) fn desk() -> (Home, Cli) {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let probe = shared_host().packages.iter().find(|(name, _)| *name == "probe").unwrap();
    run(home.install(&probe.1, &signer)).unwrap();
    let config = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(home.path().join("config.toml"), config).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    (home, cli)
}

pub(super) fn post(path: &str, more: &[&str]) -> Vec<String> {
    let url = format!("url={}", shared_host().upstream.url(path));
    let call = ["call", "github://cofferdam/probe", "post", "--arg", &url, "--arg", "body=b"];
    call.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
}

#[test]
fn a_repeated_command_replays_and_reports_it() {
    let (_home, cli) = desk();
    let path = "/text/command?key";
    let first = cli.run(&post(path, &["--idempotency-key", "order-1"]));
    let again = cli.run(&post(path, &["--idempotency-key", "order-1", "--if-running", "refuse"]));
    assert_eq!(again.stdout, first.stdout);
    assert!(!first.stderr.contains("replayed"), "{}", first.stderr);
    assert!(again.stderr.contains("replayed: the outcome of audit-"), "{}", again.stderr);
    let json = cli.run(&post(path, &["--idempotency-key", "order-1", "--usage", "--format", "json"])).json();
    assert!(json["replayed"].as_str().unwrap().starts_with("audit-"), "{json}");
    assert_eq!((&json["report"]["replayed"], &json["report"]["attempts"]), (&json["replayed"], &json!([])));
    let tool = cli.run(&post(path, &["--idempotency-key", "order-1", "--as-tool-result"])).json();
    assert!(tool["content"].as_str().unwrap().contains("\nreplayed: the outcome of audit-"), "{tool}");
    assert_eq!(count(path), 1);
    cli.run(&post(&format!("{path}2"), &["--idempotency-key", "order-1"])).fails(67).said("another call");
    cli.run(&post(path, &["--if-running", "refuse"])).fails(2).said("--idempotency-key");

    let path = "/status/404?command";
    let failing = |more: &[&str]| {
        let ran =
            cli.run(&post(path, &[&["--idempotency-key", "order-2", "--format", "json"], more].concat()));
        let ran = ran.fails(76);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    let first = failing(&[]);
    assert_eq!(failing(&[]), first);
    assert_eq!(failing(&["--usage"])["error"], first["error"]);
    assert_eq!(count(path), 1);
}
