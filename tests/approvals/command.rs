//! The command line: a call that waits, its listing, and its answers.

use std::fs;

use cofferdam_test_support::Cli;
use serde_json::{Value, json};

use super::{Desk, POSTS_ASK, count};
use crate::COFFERDAM;
use crate::shared_host::shared_host;

fn cli(desk: &Desk) -> Cli {
    let network = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(desk.home.path().join("config.toml"), network + POSTS_ASK).unwrap();
    Cli::new(COFFERDAM, desk.home.path())
}

fn post(path: &str, more: &[&str]) -> Vec<String> {
    let url = format!("url={}", shared_host().upstream.url(path));
    let call = ["call", "github://cofferdam/probe", "post", "--arg", &url, "--arg", "body=b"];
    call.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
}

/// The approval that the call waits for.
fn asked(cli: &Cli, path: &str) -> String {
    let ran = cli.run(&post(path, &["--format", "json"])).fails(95);
    let error: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(error["error"]["code"], "approval_required", "{error}");
    error["error"]["details"]["approval"].as_str().unwrap().to_owned()
}

#[test]
fn a_call_is_approved_by_a_command_and_runs_once() {
    let (desk, path) = (Desk::new(), "/text/approval-command?approval");
    let cli = cli(&desk);
    assert_eq!(cli.run(&["approvals", "list", "--format", "json"]).json(), json!([]));
    let id = asked(&cli, path);
    let listed = cli.run(&["approvals", "list", "--format", "json"]).json();
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&json!(id), &json!("waiting")));
    assert!(cli.run(&["approvals", "list"]).ok().contains(&id));
    // Ids of the same moment begin with the same digits: this is long enough.
    let prefix = &id["approval-".len()..][..23];
    let shown = cli.run(&["approvals", "show", prefix]).ok();
    for words in ["waiting", "destructive", "probe@0.1.0 post", path, "no agent", "package      sha256:"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let approved =
        cli.run(&["approvals", "approve", &id, "--reason", "ticket 17", "--format", "json"]).json();
    assert_eq!((&approved["state"], &approved["reason"]), (&json!("approved"), &json!("ticket 17")));
    cli.run(&["approvals", "approve", &id]).fails(67).said("approved already by uid");
    assert_eq!(count(path), 0);
    cli.run(&post(path, &[])).ok();
    assert_ne!(asked(&cli, path), id);
    assert_eq!(count(path), 1);
    let all = cli.run(&["approvals", "list", "--all", "--format", "json"]).json();
    let states: Vec<_> = all.as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["used", "waiting"]);
    let changes = cli.run(&["audit", "changes", "--format", "json"]).ok();
    assert!(changes.contains("\"approve\"") && changes.contains("ticket 17"), "{changes}");
    cli.run(&["audit", "verify"]).ok();
}

#[test]
fn the_hash_of_an_action_is_that_of_its_file() {
    let desk = Desk::new();
    super::actions::action(&desk, "/text/approval-shown?approval");
    let cli = cli(&desk);
    let ran = cli.run(&["run", "post-twice", "text=a", "--format", "json"]).fails(95);
    let error: Value = serde_json::from_str(&ran.stdout).unwrap();
    let shown = cli.run(&["approvals", "show", error["error"]["details"]["approval"].as_str().unwrap()]).ok();
    assert!(shown.contains("action file  sha256:") && !shown.contains("package "), "{shown}");
}

#[test]
fn a_denied_call_has_its_own_exit_code() {
    let (desk, path) = (Desk::new(), "/text/approval-denied-command?approval");
    let cli = cli(&desk);
    let id = asked(&cli, path);
    cli.run(&["approvals", "deny", &id, "--reason", "still in use"]).ok();
    let ran = cli.run(&post(path, &[])).fails(96);
    assert!(!ran.stderr.contains("still in use"), "{}", ran.stderr);
    let shown = cli.run(&["approvals", "show", &id]).ok();
    assert!(shown.contains("still in use") && shown.contains("denied"), "{shown}");
    let late = cli.run(&["approvals", "approve", &id]).fails(67);
    assert!(late.stderr.contains("denied already") && late.stderr.contains("is refused until"), "{late:?}");
    assert_eq!(count(path), 0);
}

#[test]
fn a_window_is_opened_by_a_command() {
    let (desk, path) = (Desk::new(), "/text/approval-window-command?approval");
    let cli = cli(&desk);
    let id = asked(&cli, path);
    cli.run(&["approvals", "approve", &id, "--for", "10m"]).fails(2).said("--same-arguments");
    cli.run(&["approvals", "approve", &id, "--same-arguments"]).fails(2).said("--for");
    cli.run(&["approvals", "approve", &id, "--same-arguments", "--for", "25h"])
        .fails(2)
        .said("not a time from 10s");
    cli.run(&["approvals", "approve", &id, "--same-arguments", "--for", "10m"]).ok();
    for n in 0..3 {
        cli.run(&post(path, &["--idempotency-key", &format!("window-{n}")])).ok();
    }
    cli.run(&["approvals", "deny", &id]).ok();
    drop(cli.run(&post(path, &["--idempotency-key", "window-3"])).fails(95));
    assert_eq!(count(path), 3);
}

#[test]
fn unknown_and_ambiguous_approvals_are_refused() {
    let (desk, path) = (Desk::new(), "/text/approval-prefix-command?approval");
    let cli = cli(&desk);
    let unknown = "approval-01890000-0000-7000-8000-000000000001";
    for id in [unknown, "018900", "x", "", "approval-"] {
        cli.run(&["approvals", "show", id]).fails(66).said("There is no approval");
    }
    asked(&cli, path);
    asked(&cli, &format!("{path}2"));
    let ids = cli.run(&["approvals", "list", "--format", "json"]).json();
    let first = ids[0]["id"].as_str().unwrap();
    cli.run(&["approvals", "approve", &first["approval-".len()..][..6]])
        .fails(65)
        .said("Several approvals begin");
    cli.run(&["approvals", "show", unknown]).fails(66).said("There is no approval");
    assert_eq!(count(path), 0);
}

#[test]
fn denied_calls_are_listed_by_a_command() {
    let desk = Desk::new();
    let cli = cli(&desk);
    let list = || cli.run(&["approvals", "grants", "--format", "json"]).json();
    assert_eq!(list(), json!([]));
    let elsewhere = &shared_host().elsewhere;
    let url = format!("url={}", elsewhere.url("/text/grants-command"));
    for _ in 0..2 {
        drop(cli.run(&["call", "github://cofferdam/probe", "fetch", "--arg", &url]).fails(77));
    }
    let listed = list();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let request = &listed[0];
    assert_eq!((&request["calls"], &request["kind"]), (&json!(2), &json!("host")), "{request}");
    assert_eq!(request["allow"]["file"], "connector.toml", "{request}");
    let shown = cli.run(&["approvals", "grants"]).ok();
    let (connector, subject) = ("github://cofferdam/probe@0.1.0", elsewhere.grant());
    assert!(shown.contains(&format!("cofferdam why {connector} {subject}")), "{shown}");
    // The command gives the same reason.
    let why = cli.run(&["why", connector, &subject, "--format", "json"]).fails(77);
    let why: Value = serde_json::from_str(&why.stdout).unwrap();
    assert_eq!((&request["reason"], &request["subject"]), (&why["message"], &json!(subject)));
    cli.run(&["approvals", "list"]).said("cofferdam approvals grants");
}
