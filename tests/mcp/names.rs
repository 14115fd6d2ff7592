//! The names that agents are given: each means one thing, and nothing that is installed later changes it.

use std::time::{Duration, Instant};

use cofferdam_test_support::package::{manifest, pack, quiet};
use cofferdam_test_support::{Home, Signer};
use serde_json::json;

use super::client::{Client, cli};
use crate::COFFERDAM;
use crate::shared_host::run;

/// A home in which the connectors of two owners are trusted.
struct TwoOwners {
    home: Home,
    signer: Signer,
}

impl TwoOwners {
    fn new() -> Self {
        let (home, signer) = (Home::new(COFFERDAM), Signer::new());
        for owner in ["github://acme/*", "github://evil/*"] {
            home.trust(&signer.public(), owner);
        }
        Self { home, signer }
    }

    /// Installs a connector whose only operation is `run`.
    fn install(&self, name: &str, version: &str) {
        run(self.home.install(&pack(&quiet(), &manifest(name, version)), &self.signer)).unwrap();
    }

    fn remove(&self, name: &str) {
        cli(&self.home).run(&["remove", name]).ok();
    }
}

/// Waits until the tools are so; the tools.
#[track_caller]
fn until(client: &mut Client, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
    let from = Instant::now();
    loop {
        let tools = client.tools();
        if is_so(&tools) {
            return tools;
        }
        assert!(from.elapsed() < Duration::from_secs(60), "{tools:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_ambiguous_short_name_is_an_error() {
    let it = TwoOwners::new();
    it.install("github://acme/slack", "1.0.0");
    let list = ["mcp", "--operations", "slack.run", "--list-tools"];
    cli(&it.home).run(&list).ok();
    // Another owner's connector whose name reads like the operation, with operations that were not named.
    it.install("github://evil/slack.run", "1.0.0");
    for more in [&["--list-tools"][..], &["--pin"], &[]] {
        let args = [&["mcp", "--operations", "slack.run"][..], more].concat();
        let said = cli(&it.home).run(&args);
        said.fails(65).said("names more than one: github://acme/slack.run, github://evil/slack.run");
    }
    let full = ["mcp", "--operations", "github://acme/slack.run", "--list-tools", "--format", "json"];
    let listing = cli(&it.home).run(&full).json();
    assert_eq!(listing["tools"].as_array().unwrap().len(), 1, "{listing}");
    assert_eq!(listing["tools"][0]["runs"], "run of github://acme/slack@1.0.0", "{listing}");
    it.install("github://evil/slack", "1.0.0");
    let only = ["mcp", "--all-operations", "--only", "slack", "--list-tools"];
    cli(&it.home).run(&only).fails(65).said("github://acme/slack, github://evil/slack");
}

#[test]
fn an_installation_renames_and_adds_no_tool() {
    let it = TwoOwners::new();
    it.install("github://acme/slack", "1.0.0");
    let mut short = Client::greeted(&it.home, &["--operations", "slack.run"]);
    let mut every = Client::greeted(&it.home, &["--all-operations"]);
    assert_eq!(
        (short.tools(), every.tools()),
        (vec!["slack__run".to_owned()], vec!["slack__run".to_owned()])
    );
    it.install("github://evil/slack", "9.0.0");
    it.install("github://evil/slack.run", "1.0.0");
    let tools = until(&mut every, |tools| tools.len() == 3);
    assert_eq!(tools[0], "slack__run", "{tools:?}");
    assert!(tools.iter().any(|name| name.starts_with("slack__run_") && name.len() == 27), "{tools:?}");
    assert_eq!(short.tools(), ["slack__run"], "its word means what it meant");
    for client in [&mut short, &mut every] {
        let result = client.call("slack__run", &json!({}));
        let from = json!(["github://acme/slack@1.0.0"]);
        assert_eq!(result["structuredContent"]["data_from"], from, "{result}");
    }
    short.end();
    every.end();
    // It holds across restarts, and if the holder of the name is removed.
    let mut every = Client::greeted(&it.home, &["--all-operations"]);
    assert_eq!(every.tools(), tools);
    it.remove("github://acme/slack@1.0.0");
    let left = until(&mut every, |tools| tools.len() == 2);
    assert!(!left.contains(&"slack__run".to_owned()), "its name is not another's");
    it.install("github://acme/slack", "2.0.0");
    until(&mut every, |tools| tools.len() == 3);
    let result = every.call("slack__run", &json!({}));
    assert_eq!(result["structuredContent"]["data_from"], json!(["github://acme/slack@2.0.0"]), "{result}");
    every.end();
}

#[test]
fn an_upgrade_and_a_rollback_keep_the_names_of_tools() {
    let it = TwoOwners::new();
    it.install("github://acme/slack", "1.0.0");
    let offers = [
        &["--all-operations"][..],
        &["--operations", "github://acme/slack"],
        &["--operations", "github://acme/slack@1.0.0"],
    ];
    let mut clients = offers.map(|offer| Client::greeted(&it.home, offer));
    let from = |client: &mut Client| {
        let result = client.call("slack__run", &json!({}));
        result["structuredContent"]["data_from"][0].as_str().unwrap_or_default().to_owned()
    };
    let mut answers = |expected: [&str; 3]| {
        for (client, expected) in clients.iter_mut().zip(expected) {
            let (begun, expected) = (Instant::now(), format!("github://acme/slack@{expected}"));
            while from(client) != expected {
                assert!(begun.elapsed() < Duration::from_secs(60), "{expected}");
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(client.tools(), ["slack__run"]);
        }
    };
    answers(["1.0.0"; 3]);
    it.install("github://acme/slack", "2.0.0");
    answers(["2.0.0", "2.0.0", "1.0.0"]);
    cli(&it.home).run(&["rollback", "github://acme/slack"]).ok();
    answers(["1.0.0"; 3]);
    cli(&it.home).run(&["use", "github://acme/slack@2.0.0"]).ok();
    answers(["2.0.0", "2.0.0", "1.0.0"]);
    clients.into_iter().for_each(|client| drop(client.end()));
}
