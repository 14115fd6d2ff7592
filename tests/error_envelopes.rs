//! The two envelopes: every command line error is in exactly one of them, and never in a third.

use std::collections::BTreeSet;
use std::fs;

use cofferdam::{FailureClass, HostErrorKind};
use cofferdam_test_support::package;
use serde_json::Value;

use crate::cli::desk;
use crate::envelope::{check_json, check_unlogged_json};

/// One way to fail for each command, in an empty home with an unsigned package; `true` where it is a failure of a call
/// or an install, `false` where it is the host's own error.
const FAILING: &[(&str, bool)] = &[
    ("build nowhere", false),
    ("pack nowhere.wasm --manifest nowhere.toml", false),
    ("key generate --out quiet.wasm", false),
    ("key public nowhere.key", false),
    ("key rotate --key nowhere.key --to nowhere.key", false),
    ("key export nowhere.key --publisher github://acme/*", false),
    ("new 1bad", false),
    ("dev nowhere", false),
    ("test nowhere", false),
    ("sign quiet.wasm --key nowhere.key", false),
    ("trust add ed25519:AAAA --for github://acme/*", false),
    ("trust remove 0000", false),
    ("trust revoke 0000", false),
    ("trust list", false),
    ("trust floor github://acme/quiet 1.0.0", false),
    ("publish quiet.wasm oci://localhost:1/acme/quiet:1.0.0 --allow-unsigned", false),
    ("pull oci://localhost:1/acme/quiet:1.0.0", false),
    ("tags oci://localhost:1/acme/quiet", false),
    ("trust threshold github://acme/quiet 2", false),
    ("trust keep 0000", false),
    ("trust rotate nowhere.json", false),
    ("trust import nowhere.json", false),
    ("trust publish oci://localhost:1/acme/trust:stable --key nowhere.key", false),
    ("install quiet.wasm", true),
    ("install nowhere.wasm", false),
    ("list", false),
    ("inspect nowhere.wasm", false),
    ("why nowhere.wasm slack.com:443", false),
    ("rebuild --package quiet.wasm", false),
    ("trace show nowhere.json", false),
    ("explain blue_parrot", false),
    ("breaker status", false),
    ("breaker reset --all", false),
    ("verify nowhere", false),
    ("remove github://acme/quiet@9.9.9", false),
    ("use github://acme/quiet@9.9.9", false),
    ("rollback github://acme/quiet", false),
    ("review none.wasm", false),
    ("sync --file none.toml", false),
    ("outdated --file none.toml", false),
    ("update --file none.toml", false),
    ("vendor vendored --file none.toml", false),
    ("diff github://acme/quiet@9.9.9 none.wasm", false),
    ("binding set bearer/slack", false),
    ("binding list", false),
    ("binding rebind bearer/slack/work", false),
    ("binding allow bearer/slack/work --connector github://acme/x", false),
    ("binding disallow bearer/slack/work --connector github://acme/x", false),
    ("binding lock --passphrase --new-passphrase-file nowhere", false),
    ("binding inspect bearer/slack/work", false),
    ("binding revoke bearer/slack/work", false),
    ("binding test bearer/slack/work", false),
    ("audit list", false),
    ("audit show audit-01890000-0000-7000-8000-000000000001", false),
    ("audit tail", false),
    ("audit stats", false),
    ("audit verify", false),
    ("audit export nowhere/export.jsonl", false),
    ("audit prune --older-than 1d", false),
    ("audit reindex", false),
    ("audit changes", false),
    ("audit clock", false),
    ("audit key", false),
    ("audit checkpoint", false),
    ("approvals list", false),
    ("approvals grants", false),
    ("approvals show approval-01890000-0000-7000-8000-000000000001", false),
    ("approvals approve approval-01890000-0000-7000-8000-000000000001", false),
    ("approvals deny approval-01890000-0000-7000-8000-000000000001", false),
    ("recover list", false),
    ("recover skip audit-01890000-0000-7000-8000-000000000001 --reason seen", false),
    ("replay audit-01890000-0000-7000-8000-000000000001", false),
    ("action add nowhere.md", false),
    ("action list", false),
    ("action show none", false),
    ("action edit none", false),
    ("action remove none", false),
    ("run none", false),
    ("mcp config --client claude-code --write", false),
    ("serve --listen 0.0.0.0:0", false),
    ("console --listen 0.0.0.0:0", false),
    ("report github://acme/none --out none.html", false),
    ("top --once", false),
    ("submit call github://acme/quiet run", false),
    ("submit run none", false),
    ("worker", false),
    ("jobs list", false),
    ("jobs show job-00112233445566778899aabbccddeeff", false),
    ("jobs cancel job-00112233445566778899aabbccddeeff", false),
    ("jobs retry job-00112233445566778899aabbccddeeff", false),
    ("call github://acme/quiet run", true),
    ("call github://acme/quiet runn --allow-unsigned", false),
    ("call github://acme/none run", false),
    ("call github://acme/quiet run --arg x=1 --allow-unsigned", false),
];

#[test]
fn every_error_has_one_of_two_envelopes() {
    let desk = desk();
    desk.quiet();
    desk.install("quiet.wasm --allow-unsigned").ok();
    let mut walked = BTreeSet::new();
    for (line, of_a_call) in FAILING {
        // Their input has to be broken for these to fail.
        let broken = match *line {
            "trust list"
            | "trust floor github://acme/quiet 1.0.0"
            | "trust threshold github://acme/quiet 2" => Some("keyring.toml"),
            "binding list" => Some("vault"),
            "list" => Some("packages/index.json"),
            "breaker status" | "breaker reset --all" => Some("circuits"),
            "audit key" => Some("host.key"),
            "action list" => Some("actions"),
            "mcp config --client claude-code --write" => Some(".mcp.json"),
            _ if ["audit", "approvals list", "approvals grants", "recover list", "top"]
                .iter()
                .any(|it| line.starts_with(it)) =>
            {
                Some("audit")
            }
            _ => None,
        };
        // A directory is moved away meanwhile.
        let before = broken.map(|file| (desk.path(file), fs::read(desk.path(file)).ok()));
        let away = desk.path("away");
        if let Some((path, _)) = &before {
            if path.is_dir() {
                fs::rename(path, &away).unwrap();
            }
            fs::write(path, "{ broken").unwrap();
        }
        let ran = desk.run(&format!("{line} --format json"));
        match before {
            Some((path, Some(bytes))) => fs::write(path, bytes).unwrap(),
            Some((path, None)) => {
                fs::remove_file(&path).unwrap();
                if away.exists() {
                    fs::rename(&away, path).unwrap();
                }
            }
            None => {}
        }
        assert!(!matches!(ran.code, Some(0 | 2)), "{ran:?}");
        let envelope = ran.envelope();
        let is_failure = envelope["error"].get("class").is_some();
        assert_eq!(is_failure, *of_a_call, "`{line}`: {envelope}");
        match is_failure {
            true if line.starts_with("call ") => check_json(&envelope),
            true => check_unlogged_json(&envelope),
            false => host_shape(&envelope),
        }
        let code = envelope["error"]["code"].as_str().unwrap_or_default();
        assert!(
            FailureClass::ALL.iter().all(|class| class.name() != code),
            "`{line}` says a class as a code"
        );
        walked.extend(command(line));
    }
    let manual = fs::read_to_string(package::repository().join("docs/reference/cli.md")).unwrap();
    let commands = manual.lines().filter_map(|line| line.strip_prefix("## `cofferdam ")?.strip_suffix('`'));
    let leaves: BTreeSet<_> =
        commands.filter(|path| !manual.contains(&format!("## `cofferdam {path} "))).collect();
    let missing: Vec<_> =
        leaves.iter().filter(|path| !walked.contains(**path) && !SAME.contains(path)).collect();
    assert!(missing.is_empty(), "no failing line for {missing:?}");
}

/// The second shape: the host's own error. Its suggestion may be several lines, as a manifest to copy.
#[track_caller]
fn host_shape(envelope: &Value) {
    assert_eq!(envelope.as_object().unwrap().keys().collect::<Vec<_>>(), ["error"], "{envelope}");
    let error = envelope["error"].as_object().unwrap_or_else(|| panic!("{envelope}"));
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message", "details", "request_id"], "{envelope}");
    let known = HostErrorKind::ALL.iter().any(|kind| error["code"] == kind.code());
    assert!(known && error["details"].is_object(), "{envelope}");
}

/// Commands that fail only for their arguments or their output, and those that report the errors of others: the
/// lines of `recover resume` contain the envelope of a call next to the call's id, and those of `action check`
/// that of each action, and `doctor` reports what is wrong as its result.
const SAME: &[&str] = &["action check", "completions", "doctor", "man", "recover resume"];

/// The command of a line, and its first two words, for commands within commands.
fn command(line: &str) -> [String; 2] {
    let words: Vec<_> = line.split(' ').collect();
    [words[0].to_owned(), words[..2.min(words.len())].join(" ")]
}

#[test]
fn the_schema_of_both_envelopes_accepts_no_third() {
    for third in ["{\"error\": \"sentence\"}", "{\"error\": {}}", "{\"message\": \"x\"}"] {
        let value: Value = serde_json::from_str(third).unwrap();
        let of_a_call = std::panic::catch_unwind(|| check_json(&value));
        let of_the_host = std::panic::catch_unwind(|| host_shape(&value));
        assert!(of_a_call.is_err() && of_the_host.is_err(), "{third}");
    }
}
