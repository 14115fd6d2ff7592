//! The real binary is killed between the use of an approval and the end of its call: what it did is not done again.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use cofferdam_test_support::Cli;
use serde_json::Value;

use super::{Desk, POSTS_ASK, count};
use crate::COFFERDAM;
use crate::shared_host::shared_host;

/// The steps from the use of an approval on, in order.
const STEPS: [&str; 7] = [
    "approval.used",
    "open.committed",
    "open.durable",
    "attempt.begins",
    "request.answered",
    "attempt.ended",
    "close.durable",
];

fn approval(json: &str) -> String {
    let error: Value = serde_json::from_str(json).unwrap();
    assert_eq!(error["error"]["code"], "approval_required", "{error}");
    error["error"]["details"]["approval"].as_str().unwrap().to_owned()
}

#[test]
fn a_kill_after_the_use_of_an_approval_repeats_nothing() {
    let desk = Desk::new();
    let network = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(desk.home.path().join("config.toml"), network + POSTS_ASK).unwrap();
    let cli = Cli::new(COFFERDAM, desk.home.path());
    for step in STEPS {
        for is_keyed in [false, true] {
            let path = format!("/text/approval-kill-{step}-{is_keyed}?approval");
            let url = format!("url={}", shared_host().upstream.url(&path));
            let key = format!("kill-{step}");
            let mut call = vec!["call", "github://cofferdam/probe", "post", "--format", "json"];
            call.extend(["--arg", &url, "--arg", "body=b"]);
            if is_keyed {
                call.extend(["--idempotency-key", &key]);
            }
            let id = approval(&cli.run(&call).fails(95).stdout);
            cli.run(&["approvals", "approve", &id]).ok();
            let mut command = cli.command(&call);
            let killed = command.env("COFFERDAM_FAILPOINTS", format!("{step}=kill")).output().unwrap();
            assert_eq!(killed.status.signal(), Some(9), "{step} was not passed");
            let effects = count(&path);
            let has_begun =
                !["approval.used", "open.committed", "open.durable", "attempt.begins"].contains(&step);
            assert_eq!(effects, usize::from(has_begun), "{step}");
            let shown = cli.run(&["approvals", "show", &id, "--format", "json"]).json();
            assert_eq!(shown["state"], "used", "{step}");
            // Again, as a client that has no answer would.
            let code = cli.command(&call).output().unwrap().status.code();
            let expected: &[i32] = match (is_keyed, step) {
                // It needs an approval of its own.
                (false, _) | (true, "approval.used") => &[95],
                // It is replayed.
                (true, "close.durable") => &[0],
                // Its outcome is not known.
                (true, _) => &[85],
            };
            assert!(expected.contains(&code.unwrap()), "{step} {is_keyed}: {code:?}");
            assert_eq!(count(&path), effects, "{step} {is_keyed}: it ran twice");
        }
    }
    cli.run(&["audit", "verify"]).ok();
}

#[test]
fn an_operator_resumes_an_approved_call_without_asking() {
    let (desk, path) = (Desk::new(), "/text/approval-resume?approval");
    let network = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    let rules = POSTS_ASK.replace("post", "order");
    fs::write(desk.home.path().join("config.toml"), network + &rules).unwrap();
    let cli = Cli::new(COFFERDAM, desk.home.path());
    let url = format!("url={}", shared_host().upstream.url(path));
    let call = ["call", "github://cofferdam/probe", "order", "--format", "json", "--arg", &url];
    let call = [&call[..], &["--arg", "body=b", "--arg", "labels=[\"one\"]"]].concat();
    let id = approval(&cli.run(&call).fails(95).stdout);
    cli.run(&["approvals", "approve", &id]).ok();
    let mut command = cli.command(&call);
    let killed = command.env("COFFERDAM_FAILPOINTS", "attempt.begins=kill").output().unwrap();
    assert_eq!((killed.status.signal(), count(path)), (Some(9), 0));
    let resumed = cli.run(&["recover", "resume", "--all"]).json();
    assert_eq!((&resumed["value"]["status"], count(path)), (&200.into(), 1), "{resumed}");
    cli.run(&["recover", "resume", "--all"]).ok();
    drop(cli.run(&call).fails(95));
    assert_eq!(count(path), 1);
}
