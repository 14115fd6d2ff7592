//! A home whose log was deleted: keyed calls are refused until the operator accepts the loss.

use std::process::Stdio;

use cofferdam::{Call, HostErrorKind};
use cofferdam_test_support::{Cli, Home, Signer};
use serde_json::json;

use crate::COFFERDAM;
use crate::shared_host::{example, refused, run, shared_host};

fn post(path: &str, key: Option<&str>) -> Call {
    let call =
        Call::new(example("probe"), "post", json!({"url": shared_host().upstream.url(path), "body": "b"}));
    match key {
        Some(key) => call.idempotency_key(key),
        None => call,
    }
}

#[test]
fn a_deleted_log_frees_a_key_only_when_accepted() {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let probe = shared_host().packages.iter().find(|(name, _)| *name == "probe").unwrap();
    run(home.install(&probe.1, &signer)).unwrap();
    let host = || home.builder_alone().allow_private(shared_host().upstream.host_port()).build().unwrap();
    let path = "/text/lost?deleted";
    let count = || shared_host().upstream.seen(path).len();
    run(host().run(post(path, Some("k")))).outcome.unwrap();
    run(host().run(post(path, Some("k")))).outcome.unwrap();
    assert_eq!(count(), 1, "the second is a replay");

    home.remove_log();
    let cli = Cli::new(COFFERDAM, home.path());
    for read in ["list", "stats"] {
        cli.run(&["audit", read]).fails(84).said("the audit log is missing or older");
    }
    // A server reports it before the first request.
    cli.run(&["mcp"]).said("warning: The audit log cannot be read: the audit log is missing or older");
    let ran = cli.run(&["audit", "verify"]).fails(86);
    assert!(ran.stdout.contains("entries were written"), "{}", ran.stdout);
    let mut unread =
        cli.command(&["audit", "verify"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(unread.stdout.take());
    assert_eq!(unread.wait().unwrap().code(), Some(86), "a failed verification is none that passed");
    let error = refused(run(host().run(post(path, Some("k")))).outcome);
    assert_eq!((error.kind(), count()), (HostErrorKind::AuditUnavailable, 1));
    assert!(error.message().contains("the audit log is missing or older"), "{error}");
    // A call that was interrupted may be missing from what is left.
    for recover in [&["recover", "list"][..], &["recover", "resume", "--all"]] {
        cli.run(recover).fails(84).said("the audit log is missing or older");
    }
    assert!(error.hint().unwrap().contains("--accept-loss"), "{error:?}");
    run(host().run(post(path, None))).outcome.unwrap();
    assert_eq!(count(), 2, "a call without a key goes on");

    let _ = cli.run(&["audit", "verify"]).fails(86);
    cli.run(&["audit", "verify", "--accept-loss"]).ok();
    run(host().run(post(path, Some("k")))).outcome.unwrap();
    assert_eq!(count(), 3);
    cli.run(&["audit", "verify"]).ok();
}
