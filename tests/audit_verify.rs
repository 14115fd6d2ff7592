//! Audit log verification from outside: verify, export, checkpoints, pruning, and every kind of manipulation.

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::process::Stdio;
use std::time::Duration;

use cofferdam_audit::{FindingKind, NoteKey};
use cofferdam_runtime::host::{VerificationReport, verify_export};
use cofferdam_test_support::package::repository;
use cofferdam_test_support::{Cli, Home, Signer, package, process, traffic};
use jiff::Timestamp;
use serde_json::Value;

use crate::COFFERDAM;

pub(crate) const REFERENCE: &str = "github://acme/quiet@1.0.0";

/// A home with logged calls that ended in several ways: values, an unknown operation, no connector.
pub(crate) fn recorded() -> (Home, Cli) {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    signer.write(home.path().join("quiet.wasm"), &bytes);
    let cli = Cli::new(COFFERDAM, home.path());
    cli.install(&["quiet.wasm"]).ok();
    for _ in 0..3 {
        cli.run(&["call", REFERENCE, "run"]).ok();
    }
    assert_ne!(cli.run(&["call", REFERENCE, "nothing"]).code, Some(0));
    assert_ne!(cli.run(&["call", REFERENCE, "run", "--arg", "no=1"]).code, Some(0));
    cli.run(&["call", REFERENCE, "run", "--idempotency-key", "order-17"]).ok();
    cli.run(&["call", REFERENCE, "run", "--idempotency-key", "order-17"]).ok();
    (home, cli)
}

fn proof(export: &[u8], key: &NoteKey) -> Option<VerificationReport> {
    verify_export(&mut BufReader::new(export), Some(key), &[], &mut |_| ()).ok()
}

#[test]
fn verify_accepts_a_sound_log_and_names_edits() {
    let (home, cli) = recorded();
    let whole = cli.run(&["audit", "verify", "--format", "json"]).json();
    assert_eq!((&whole["holds"], &whole["calls"]), (&Value::Bool(true), &Value::from(7)), "{whole}");
    assert!(whole["checkpoints"].as_u64().unwrap() > 0, "{whole}");
    let page = cli.run(&["audit", "verify"]).ok();
    assert!(page.contains("holds together") && page.contains("cofferdam-audit+"), "{page}");
    // A lock of another type is a finding that names it.
    let lock = home.path().join("audit/keys.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    let ran = cli.run(&["audit", "verify"]);
    assert_eq!(ran.code, Some(86), "{}", ran.stderr);
    assert!(ran.stdout.contains("audit/keys.lock is not a regular file"), "{}", ran.stdout);
    fs::remove_dir(&lock).unwrap();
    // The third call's beginning.
    let mut n = 0;
    home.edit_segment(|lines| {
        let mut begun = lines.iter_mut().enumerate().filter(|(_, line)| line.contains("\"received\""));
        let (at, line) = begun.nth(2).unwrap();
        (n, *line) = (at + 1, line.replace("\"run\"", "\"ran\""));
    });
    let ran = cli.run(&["audit", "verify", "--format", "json"]);
    assert_eq!(ran.code, Some(86), "{}", ran.stderr);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    let first = &found["findings"][0];
    assert_eq!((&first["n"], &first["flaw"]), (&Value::from(n), &Value::from("edited")), "{found}");
    let id = first["audit_id"].as_str().unwrap();
    assert!(id.starts_with("audit-") && first["seq"] == 1, "{found}");
    // What reads the entry names it as well.
    let shown = cli.run(&["audit", "show", id]).fails(86);
    assert!(shown.stderr.contains(&format!("read: entry {n} of the journal ")), "{}", shown.stderr);
    shown.said(" was changed.");
    // A log that does not verify is not signed.
    let ran = cli.run(&["audit", "export", "calls.jsonl"]);
    assert_eq!(ran.code, Some(86), "{}", ran.stderr);
    assert!(!home.path().join("calls.jsonl").exists());
    // The operator acknowledges the findings and goes on; later changes are new findings.
    cli.run(&["audit", "verify", "--accept-loss"]).ok();
    assert!(cli.run(&["audit", "verify"]).ok().contains("accepted"));
    home.edit_segment(|lines| drop(lines.remove(4)));
    assert_eq!(cli.run(&["audit", "verify"]).code, Some(86));
}

#[test]
fn verify_detects_a_truncated_log() {
    let (home, cli) = recorded();
    let kept = cli.run(&["audit", "checkpoint"]).ok();
    fs::write(home.path().join("kept.checkpoint"), &kept).unwrap();
    cli.run(&["audit", "verify", "--checkpoint", "kept.checkpoint"]).ok();
    home.edit_segment(|lines| lines.truncate(6));
    let ran = cli.run(&["audit", "verify"]);
    assert_eq!(ran.code, Some(86));
    assert!(ran.stdout.contains("its end is missing"), "{}", ran.stdout);
    // Removing the checkpoint file as well is detected by the checkpoint kept elsewhere.
    fs::remove_file(home.path().join("audit/checkpoint")).unwrap();
    let ran = cli.run(&["audit", "verify", "--checkpoint", "kept.checkpoint"]);
    assert_eq!(ran.code, Some(86));
    assert!(ran.stdout.contains("kept elsewhere"), "{}", ran.stdout);
    // Removing all of it is detected too.
    home.remove_log();
    assert_eq!(cli.run(&["audit", "verify", "--checkpoint", "kept.checkpoint"]).code, Some(86));
}

/// Verifies a log with so many calls. Returns the most memory of the process, and the size of the journal, in bytes.
fn memory_of_verify(calls: usize) -> [u64; 2] {
    let home = Home::new(COFFERDAM);
    traffic::fill(home.path(), calls, 2, Timestamp::now());
    let mut command = Cli::new(COFFERDAM, home.path()).command(&["audit", "verify"]);
    let mut verifies = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    while verifies.try_wait().unwrap().is_none() {
        most = process::peak_resident_bytes_of(verifies.id()).max(most);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(verifies.wait().unwrap().success());
    [most, home.segments().iter().map(|path| fs::metadata(path).unwrap().len()).sum()]
}

#[test]
fn verify_takes_the_same_memory_for_a_longer_log() {
    let [[short, _], [long, bytes]] = [1_000, 20_000].map(memory_of_verify);
    assert!(bytes > 12 << 20, "{bytes}");
    assert!(short > 0 && long < short + bytes / 2, "{short} and {long} for a journal of {bytes} bytes");
}

#[test]
fn every_line_fits_the_published_schema() {
    let (home, cli) = recorded();
    cli.run(&["audit", "export", "calls.jsonl"]).ok();
    let schema = fs::read_to_string(repository().join("docs/reference/audit-log.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let export = fs::read_to_string(home.path().join("calls.jsonl")).unwrap();
    let lines = export.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut lines: Vec<_> = lines.filter(|line| line["n"].is_u64()).collect();
    assert!(lines.len() > 14, "{export}");
    for line in &lines {
        let faults: Vec<_> = schema.iter_errors(line).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{line}: {faults:?}");
    }
    let of_call = lines.iter_mut().find(|line| line["events"].is_array()).unwrap();
    of_call["events"][0]["payload"]["op"] = 1.into();
    assert!(!schema.is_valid(of_call), "a fact of another type");
}

#[test]
fn an_export_verifies_without_the_log() {
    let (home, cli) = recorded();
    cli.run(&["audit", "export", "calls.jsonl"]).ok();
    let export = fs::read(home.path().join("calls.jsonl")).unwrap();
    let key = NoteKey::parse(&cli.run(&["audit", "key"]).ok()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Cli::new(COFFERDAM, elsewhere.path());
    let path = home.path().join("calls.jsonl").to_str().unwrap().to_owned();
    let ran =
        other.run(&["audit", "verify", "--export", &path, "--key", &key.to_string(), "--format", "json"]);
    assert_eq!(ran.json()["calls"], 7);
    assert!(!elsewhere.path().join("audit").exists() && !elsewhere.path().join("host.key").exists());
    // Of which entry each byte is.
    let lines: Vec<&[u8]> = export.split_inclusive(|byte| *byte == b'\n').collect();
    let number = |line: &[u8]| {
        let line: Value = serde_json::from_slice(line).unwrap();
        line["n"].as_u64()
    };
    let mut of = Vec::new();
    for line in &lines {
        of.extend(std::iter::repeat_n(number(line), line.len()));
    }
    let mut lots = fastrand::Rng::with_seed(6);
    for round in 0..1_000 {
        let (at, bit) = (lots.usize(..export.len()), 1 << lots.u8(0..8));
        let mut changed = export.clone();
        changed[at] ^= bit;
        let Some(proof) = proof(&changed, &key) else {
            assert_eq!(of[at], None, "{round}: only the first line says what it is");
            continue;
        };
        assert!(!proof.holds, "{round}: byte {at} ({:?})", of[at]);
        // The hash of an entry is in the next one: a change there shows as one of either.
        if let Some(n) = of[at] {
            let first = proof.findings[0].n;
            assert!([n.saturating_sub(1), n].contains(&first), "{round}: byte {at}: {:?}", proof.findings);
        }
    }
    // Lines that are left out, moved, repeated, or cut off.
    let entries = lines.len() - 2;
    for line in 2..=entries {
        let mut cut = lines.clone();
        cut.remove(line);
        assert!(!proof(&cut.concat(), &key).unwrap().holds, "without line {line}");
        let mut twice = lines.clone();
        twice.insert(line, lines[line]);
        assert!(!proof(&twice.concat(), &key).unwrap().holds, "line {line} twice");
        let truncated = proof(&lines[..=line].concat(), &key).unwrap();
        assert!(
            truncated.findings.iter().any(|finding| finding.flaw == FindingKind::Truncated),
            "up to line {line}"
        );
        if line < entries {
            let mut moved = lines.clone();
            moved.swap(line, line + 1);
            assert!(!proof(&moved.concat(), &key).unwrap().holds, "line {line} moved");
        }
    }
    // Another's key proves nothing here.
    let foreign = other.run(&["audit", "key"]).ok();
    let ran = other.run(&["audit", "verify", "--export", &path, "--key", foreign.trim()]);
    assert_eq!(ran.code, Some(86));
}

#[test]
fn a_truncated_export_is_detected() {
    let (home, cli) = recorded();
    cli.run(&["audit", "export", "calls.jsonl"]).ok();
    let key = NoteKey::parse(cli.run(&["audit", "key"]).ok().trim()).unwrap();
    let export = fs::read_to_string(home.path().join("calls.jsonl")).unwrap();
    let lines: Vec<_> = export.split_inclusive('\n').collect();
    assert!(proof(export.as_bytes(), &key).unwrap().holds && lines.len() > 10);
    for most in 1..lines.len() {
        let cut = proof(lines[..most].concat().as_bytes(), &key).unwrap();
        assert!(
            cut.findings.iter().any(|found| found.flaw == FindingKind::Truncated),
            "{most}: {:?}",
            cut.findings
        );
    }
    assert!(proof(b"", &key).is_none());
}

#[test]
fn verify_without_the_host_key_creates_nothing() {
    let (home, cli) = recorded();
    let all = || {
        let names = fs::read_dir(home.path()).unwrap().map(|file| file.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    fs::remove_file(home.path().join("host.key")).unwrap();
    let there = all();
    let before = "2100-01-01";
    for command in [
        &["audit", "verify"][..],
        &["audit", "export", "calls.jsonl"],
        &["audit", "key"],
        &["audit", "checkpoint"],
        &["audit", "prune", "--older-than", before, "--dry-run"],
        &["audit", "prune", "--older-than", before],
    ] {
        cli.run(command).fails(84).said("host.key is missing");
        assert_eq!(all(), there, "{command:?}");
    }
}

#[test]
fn a_partial_export_verifies_as_partial() {
    let (home, cli) = recorded();
    let half = {
        let calls = cli.run(&["audit", "list", "--format", "json"]).json();
        let calls = calls.as_array().unwrap();
        calls[calls.len() - 3]["at"].as_str().unwrap().to_owned()
    };
    let whole = cli.run(&["audit", "verify", "--format", "json"]).json();
    for (name, flag) in [("since.jsonl", "--since"), ("until.jsonl", "--until")] {
        cli.run(&["audit", "export", name, flag, &half]).ok();
        let proof = cli.run(&["audit", "verify", "--export", name, "--format", "json"]).json();
        assert_eq!((&proof["part"], &proof["holds"]), (&Value::Bool(true), &Value::Bool(true)), "{proof}");
        assert!(proof["entries"].as_u64().unwrap() < whole["entries"].as_u64().unwrap(), "{proof}");
        // Passed off as the whole, it does not hold.
        let path = home.path().join(name);
        let whole = fs::read_to_string(&path).unwrap().replacen("\"part\":true", "\"part\":false", 1);
        fs::write(&path, whole).unwrap();
        let _ = cli.run(&["audit", "verify", "--export", name]).fails(86);
    }
    // The calls under a key stay until that is free, and with them their segment.
    let pruned = cli.run(&["audit", "prune", "--older-than", "2100-01-01", "--format", "json"]).json();
    assert_eq!((&pruned["calls"], &pruned["stopped"]["why"]), (&Value::from(0), &Value::from("key_stands")));
    let proof = cli.run(&["audit", "verify", "--format", "json"]).json();
    assert_eq!((&proof["holds"], &proof["calls"]), (&Value::Bool(true), &Value::from(7)), "{proof}");
    cli.run(&["audit", "export", "later.jsonl"]).ok();
    let proof = cli.run(&["audit", "verify", "--export", "later.jsonl", "--format", "json"]).json();
    assert_eq!((&proof["part"], &proof["holds"]), (&Value::Bool(false), &Value::Bool(true)), "{proof}");
}
