//! Destructive tools: an agent waits for a person, and learns no way around one.

use std::fs;

use serde_json::{Value, json};

use super::client::{Client, cli};
use crate::approvals::Desk;
use crate::shared_host::shared_host;

fn serving(desk: &Desk) -> Client {
    let network = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(desk.home.path().join("config.toml"), network).unwrap();
    Client::greeted(&desk.home, &["--operations", "probe.post,probe.env"])
}

fn post(client: &mut Client, path: &str) -> Value {
    client.call("probe__post", &json!({"url": shared_host().upstream.url(path), "body": "b"}))
}

fn count(path: &str) -> usize {
    shared_host().upstream.seen(path).len()
}

/// The error of a call that was not run. Nothing in it names a command.
fn error(result: &Value, code: &str) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Action 'probe__post' was not run: "), "{text}");
    assert!(!result.to_string().contains("cofferdam approvals"), "{result}");
    let error = &result["structuredContent"]["error"];
    assert_eq!((&result["isError"], &error["code"]), (&json!(true), &json!(code)), "{result}");
    error.clone()
}

#[test]
fn a_destructive_tool_runs_once_a_person_approved() {
    let (desk, path) = (Desk::new(), "/text/approval-tool?approval");
    let mut client = serving(&desk);
    assert_eq!(client.call("probe__env", &json!({}))["isError"], false, "it is not declared destructive");
    let waits = post(&mut client, path);
    let id = error(&waits, "approval_required")["details"]["approval"].as_str().unwrap().to_owned();
    let text = waits["content"][0]["text"].as_str().unwrap();
    for words in [id.as_str(), "Once a person has approved it, repeat the call with the same arguments."] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(error(&post(&mut client, path), "approval_required")["details"]["approval"], json!(id));
    let shown = cli(&desk.home).run(&["approvals", "show", &id, "--format", "json"]).json();
    assert_eq!((&shown["actor"], &shown["agent"]), (&json!("mcp:test"), &json!(true)));
    cli(&desk.home).run(&["approvals", "approve", &id]).ok();
    assert_eq!(count(path), 0);
    let done = post(&mut client, path);
    assert_eq!((&done["isError"], count(path)), (&json!(false), 1), "{done}");
    assert_ne!(error(&post(&mut client, path), "approval_required")["details"]["approval"], json!(id));
    assert_eq!(count(path), 1);
}

#[test]
fn a_denied_tool_names_no_way_around() {
    let (desk, path) = (Desk::new(), "/text/approval-denied-tool?approval");
    let mut client = serving(&desk);
    let id = error(&post(&mut client, path), "approval_required")["details"]["approval"].clone();
    cli(&desk.home).run(&["approvals", "deny", id.as_str().unwrap(), "--reason", "not on a Friday"]).ok();
    let denied = post(&mut client, path);
    error(&denied, "approval_denied");
    assert!(!denied.to_string().contains("Friday") && !denied.to_string().contains("suggestion"), "{denied}");
    assert_eq!(count(path), 0);
}

#[test]
fn no_tool_of_the_host_is_about_approvals() {
    let mut client = serving(&Desk::new());
    let tools = client.ask("tools/list", &json!({}))["result"]["tools"].to_string();
    assert!(!tools.contains("approv"), "{tools}");
}
