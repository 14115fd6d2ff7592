//! `audit list`, `show`, `tail` and `stats`: calls of every actor are found, shown and counted.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use cofferdam_core::digest::Digest;
use cofferdam_test_support::{Cli, Home, Signer, Upstream, package, traffic};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::run;

const PROBE: &str = "github://cofferdam/probe";

/// A home with `probe`, which may reach a server.
struct Stage {
    home: Home,
    upstream: Upstream,
    cli: Cli,
}

fn stage() -> Stage {
    let (home, upstream, signer) = (Home::new(COFFERDAM), Upstream::start(), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[upstream.grant()]), &signer)).unwrap();
    let config =
        format!("[network]\nallow_private = [\"{}\"]\n[retry]\nprofile = \"none\"\n", upstream.host_port());
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    Stage { home, upstream, cli }
}

impl Stage {
    fn fetch(&self, path: &str) -> cofferdam_test_support::CommandResult {
        let args = json!({"url": self.upstream.url(path)}).to_string();
        self.cli.run(&["call", PROBE, "fetch", &args, "--format", "json"])
    }

    fn audit(&self, line: &str) -> Value {
        let args = ["audit"].into_iter().chain(line.split(' ')).chain(["--format", "json"]);
        self.cli.run(&args.collect::<Vec<_>>()).json()
    }
}

#[test]
fn queries_before_the_first_call_are_empty() {
    let stage = stage();
    let list = stage.cli.run(&["audit", "list"]);
    assert_eq!((list.code, list.stdout.as_str()), (Some(0), ""));
    list.said("Nothing was called yet.");
    assert_eq!(stage.audit("list --failed"), json!([]));
    assert_eq!(stage.audit("stats")["calls"], 0);
    assert_eq!(stage.cli.run(&["audit", "tail"]).ok(), "");
    let show = stage.cli.run(&["audit", "show", "0193b5c8-7d3e"]).fails(66);
    show.said("no call");
    assert!(!stage.home.path().join("audit").exists(), "to look makes nothing");
}

#[test]
fn a_failed_call_is_found_by_every_filter() {
    let stage = stage();
    assert_eq!(stage.fetch("/text/well").code, Some(0));
    let failed = stage.fetch("/status/503/a");
    let envelope: Value = serde_json::from_str(&failed.stdout).unwrap();
    let id = envelope["error"]["audit_id"].as_str().unwrap().to_owned();
    let refused = stage.cli.run(&["call", PROBE, "fetsch", "--format", "json"]);
    assert_eq!(refused.code, Some(66));

    let all = stage.audit("list");
    let statuses: Vec<_> =
        all.as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["refused", "failure", "value"], "the newest first: {all}");
    for (filter, found) in [
        ("list --failed", 2),
        ("list --status failure", 1),
        ("list --class external_api_error", 1),
        ("list --code unavailable", 1),
        ("list --code op_not_found", 1),
        ("list --connector github://cofferdam/probe", 3),
        ("list --connector github://cofferdam/other", 0),
        ("list --op fetch", 2),
        ("list --failed --op fetch --since 1h", 1),
        ("list --until 1h", 0),
        ("list --status incomplete", 0),
        ("list --limit 1", 1),
    ] {
        assert_eq!(stage.audit(filter).as_array().unwrap().len(), found, "{filter}: {all}");
    }
    let row = &stage.audit("list --status failure")[0];
    assert_eq!((&row["audit_id"], &row["code"]), (&json!(id), &json!("unavailable")), "{row}");
    let older = stage.audit(&format!("list --before {id}"));
    assert_eq!(older.as_array().unwrap().len(), 1, "{older}");

    // Everything about it, by its id or by its beginning.
    let shown = stage.audit(&format!("show {id}"));
    assert_eq!(shown, stage.audit(&format!("show {}", &id[6..])));
    assert_eq!(shown["status"], "failure");
    for key in ["class", "code", "message", "retriable"] {
        assert!(!shown["error"][key].is_null(), "{key}: {shown}");
    }
    assert_eq!(shown["error"]["class"], envelope["error"]["class"]);
    let events = shown["events"].as_array().unwrap();
    for (event, seq) in events.iter().zip(1..) {
        assert_eq!(event["seq"], seq, "{shown}");
    }
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("received", "final"));
    assert!(names.contains(&"attempt_started") && names.contains(&"attempt_ended"), "{names:?}");
    let page = stage.cli.run(&["audit", "show", &id]).ok();
    for part in [&id, "external_api_error.unavailable", "what happened", "attempt_ended", "why it failed"] {
        assert!(page.contains(part), "{part}: {page}");
    }

    let stats = stage.audit("stats");
    assert_eq!((&stats["calls"], &stats["failed"], &stats["incomplete"]), (&json!(3), &json!(2), &json!(0)));
    assert!(stats["p50_us"].as_u64() <= stats["max_us"].as_u64(), "{stats}");
    assert_eq!(stats["by_connector"][0]["calls"], 3, "{stats}");
    let page = stage.cli.run(&["audit", "stats"]).ok();
    assert!(page.contains("external_api_error") && page.contains('#') && !page.contains('█'), "{page}");
    let page = stage.cli.run(&["audit", "stats", "--usage"]).ok();
    let is_response = |line: &str| line.contains("  response  ") && line.ends_with("10 MiB");
    let is_requests = |line: &str| line.contains("  requests  ") && line.ends_with("  64");
    assert!(page.lines().any(is_response) && page.lines().any(is_requests), "{page}");

    let tail = stage.cli.run(&["audit", "tail", "-n", "2", "--format", "json"]).ok();
    let lines: Vec<Value> = tail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[1]["code"]), (2, &json!("op_not_found")), "the newest last");
}

#[test]
fn a_keyed_call_is_found_by_its_key_or_hash() {
    let stage = stage();
    let args = json!({"url": stage.upstream.url("/text/keyed")}).to_string();
    let call = ["call", PROBE, "fetch", &args, "--idempotency-key", "order-17"];
    stage.cli.run(&call).ok();
    assert_eq!(stage.fetch("/text/keyed").code, Some(0));
    // The outcome of the first one is returned: it holds no key.
    stage.cli.run(&call).ok();
    let all = stage.audit("list");
    assert_eq!(all.as_array().unwrap().len(), 3, "{all}");
    let hash = Digest::sha256(b"order-17");
    for key in ["order-17".to_owned(), format!("sha256:{hash}")] {
        let found = stage.audit(&format!("list --key {key}"));
        assert_eq!(found, json!([all[2]]), "{key}");
        assert_eq!(stage.audit(&format!("list --key {key} --failed")), json!([]), "{key}");
    }
    assert_eq!(stage.audit("list --key order-1"), json!([]));
    for wrong in ["secret:17", "sha256:17secret", "secret~17"] {
        let refused = stage.cli.run(&["audit", "list", "--key", wrong]).fails(65);
        assert!(!format!("{}{}", refused.stdout, refused.stderr).contains("secret"), "{refused:?}");
    }
}

#[test]
fn a_failed_call_names_the_command_for_details() {
    let stage = stage();
    let args = json!({"url": stage.upstream.url("/status/503/b")}).to_string();
    let ran = stage.cli.run(&["call", PROBE, "fetch", &args]);
    let command = ran.stderr.lines().find_map(|line| line.trim().strip_prefix("more: cofferdam ")).unwrap();
    let page = stage.cli.run(&command.split(' ').collect::<Vec<_>>()).ok();
    assert!(page.contains("unavailable"), "{page}");
}

#[test]
fn invalid_filters_are_rejected_with_suggestions() {
    let stage = stage();
    for (line, code, words) in [
        ("list --class network_eror", 2, "network_error"),
        ("list --status failed", 2, "failure"),
        ("list --code op_not_fond", 65, "Did you mean `op_not_found`?"),
        ("list --since yesterday", 2, "2h"),
        ("list --since 1h --until 2h", 65, "Give --since the earlier one."),
        ("list --connector slack", 2, "github://"),
        ("list --before 0193", 66, "audit-0193b5c8"),
        ("show xyz", 66, "audit-0193b5c8"),
        ("stats --code op_not_fond", 65, "Did you mean"),
    ] {
        let args = ["audit"].into_iter().chain(line.split(' '));
        stage.cli.run(&args.collect::<Vec<_>>()).fails(code).said(words);
    }
}

#[test]
fn caller_text_cannot_control_the_terminal() {
    let stage = stage();
    let evil = "\u{1b}[2J\u{202e}evil\nFAKE";
    assert_eq!(stage.cli.run(&["call", PROBE, evil]).code, Some(66));
    let row = &stage.audit("list")[0];
    let id = row["audit_id"].as_str().unwrap();
    for args in [vec!["list"], vec!["tail"], vec!["stats"], vec!["show", id]] {
        for format in ["human", "json"] {
            let args: Vec<_> = [vec!["audit", "--format", format], args.clone()].concat();
            let text = stage.cli.run(&args).ok();
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{args:?}: {text:?}");
            assert!(!text.contains("\nFAKE"), "{args:?}: {text:?}");
        }
    }
}

#[test]
fn calls_of_other_processes_are_followed_until_ctrl_c() {
    let stage = stage();
    // Queries before the first call.
    let mut tail = stage.cli.command(&["audit", "tail", "-f", "-n", "0", "--format", "json"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(stage.fetch("/text/one").code, Some(0));
    assert_eq!(next()["status"], "value");
    let _ = stage.fetch("/status/503/two");
    let second = next();
    assert_eq!((&second["status"], &second["code"]), (&json!("failure"), &json!("unavailable")), "{second}");
    let pid = tail.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(tail.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_host_leaves_incomplete_calls() {
    let home = Home::new(COFFERDAM);
    traffic::fill(home.path(), 3_000, 2, Timestamp::now());
    let cli = Cli::new(COFFERDAM, home.path());
    let audit = |line: &str| {
        let args = ["audit"].into_iter().chain(line.split(' ')).chain(["--format", "json"]);
        cli.run(&args.collect::<Vec<_>>()).json()
    };
    let incomplete = audit("list --status incomplete");
    assert_eq!(incomplete.as_array().unwrap().len(), traffic::INCOMPLETE);
    assert_eq!(incomplete[0]["duration_us"], Value::Null);
    assert_eq!(audit("list --status running"), json!([]));
    let stats = audit("stats");
    assert_eq!(stats["incomplete"], traffic::INCOMPLETE);
    assert_eq!(stats["calls"], 3_000 - traffic::INCOMPLETE);
    let failed = audit("list --failed --limit 0");
    assert_eq!(stats["failed"], failed.as_array().unwrap().len());
    let (mut paged, mut before) = (Vec::new(), String::new());
    loop {
        let page = audit(&format!("list --failed --limit 40{before}"));
        let Some(last) = page.as_array().unwrap().last() else { break };
        before = format!(" --before {}", last["audit_id"].as_str().unwrap());
        paged.extend(page.as_array().unwrap().clone());
    }
    assert_eq!(Value::from(paged), failed);
    cli.run(&["audit", "list", "--limit", "10"]).said("--before audit-");
}

#[test]
fn the_index_is_made_again_when_asked_or_missing() {
    let stage = stage();
    assert_eq!(stage.audit("reindex"), json!({"entries": 0}));
    drop(stage.fetch("/text/indexed"));
    let before = stage.audit("list");
    let entries = stage.audit("reindex")["entries"].as_u64().unwrap();
    assert!(entries > 2, "{entries}");
    assert_eq!(stage.audit("list"), before);
    for name in ["index.db", "index.db-wal", "index.db-shm", "index.stamp"] {
        drop(std::fs::remove_file(stage.home.path().join("audit").join(name)));
    }
    assert_eq!(stage.audit("list"), before);
}
