//! Pruning removes complete calls from the beginning on, and the rest can still be verified.

use super::*;
use crate::{Flaw, KeyClaim, KeyDisposition, KeyState, PruneBlocker, Pruned, ResolveCall};

fn day(number: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + number * 86_400).unwrap()
}

fn prune(home: &Path, before: Timestamp, dry_run: bool) -> Result<Pruned, AuditError> {
    let log = log(home);
    done(log.prune(before, dry_run))
}

#[test]
fn older_entries_are_pruned_and_the_rest_verifies() {
    let home = tempfile::tempdir().unwrap();
    for number in 0..4 {
        fill_at(home.path(), 200, day(number));
    }
    let would = prune(home.path(), day(2), true).unwrap();
    assert_eq!((would.entries, would.calls, would.through, would.until), (800, 400, 800, Some(day(1))));
    assert_eq!(count(home.path(), "entries"), 1_600);
    assert_eq!(prune(home.path(), day(2), false).unwrap(), would);
    // One more entry says that it was done.
    assert_eq!((count(home.path(), "entries"), count(home.path(), "calls")), (801, 400));
    let proof = proof(home.path());
    assert!(proof.findings.is_empty(), "{:?}", proof.findings);
    assert_eq!((proof.from, proof.n, proof.tally.calls), (801, 1_601, 400));
    // And again, from there.
    assert_eq!(prune(home.path(), day(3), false).unwrap().calls, 200);
    assert!(findings(home.path()).is_empty());
    assert_eq!(prune(home.path(), day(3), false).unwrap(), Pruned::default());
    fill_at(home.path(), 1, day(4));
    assert!(findings(home.path()).is_empty());
}

#[test]
fn pruned_data_is_gone_from_every_file() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for number in 0..100 {
        let id = AuditId::mint();
        let lines = [
            line(1, "received", day(0), json!({"actor": format!("canary-{number}")})),
            line(2, "admitted", day(0), json!({"idempotent": true})),
            line(3, "attempt_started", day(0), json!({"attempt": 1})),
        ];
        let call = OpenCall { entry: Entry::new(&id, &lines), ..opening(&id, day(0)) };
        done(log.open(call)).unwrap();
        done(log.close(None, closing(&id, day(0)))).unwrap();
    }
    open(&log, &AuditId::mint()).unwrap();
    let all = || {
        let files = std::fs::read_dir(home.path()).unwrap().flatten().map(|file| file.path());
        let files =
            files.filter(|path| path.is_file() && path.extension().is_some_and(|end| end != "db-shm"));
        let is_there = |path: &std::path::PathBuf| {
            std::fs::read(path).unwrap().windows(7).any(|bytes| bytes == b"canary-")
        };
        files.filter(is_there).collect::<Vec<_>>()
    };
    assert_ne!(all(), Vec::<std::path::PathBuf>::new());
    assert_eq!(done(log.prune(day(5), false)).unwrap().calls, 100);
    assert_eq!(all(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn open_calls_and_held_keys_stop_pruning() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 10, day(0));
    let open = AuditId::mint();
    {
        let log = log(home.path());
        done(log.open(opening(&open, day(0)))).unwrap();
    }
    fill_at(home.path(), 10, day(0));
    let key = "INSERT INTO keys SELECT 'mine', zeroblob(32), id, 2, NULL FROM calls WHERE first = 5; \
               UPDATE calls SET key = 'mine' WHERE first = 5";
    file(home.path()).execute_batch(key).unwrap();
    assert_eq!(prune(home.path(), day(9), false).unwrap().calls, 2, "up to the key");
    file(home.path()).execute_batch("DELETE FROM keys").unwrap();
    assert_eq!(prune(home.path(), day(9), false).unwrap().calls, 8);
    assert_eq!(count(home.path(), "calls"), 11);
}

#[test]
fn an_edited_call_table_prunes_nothing() {
    let ended = "UPDATE calls SET verdict = 1, last = first WHERE verdict = 0";
    let changes = [
        "UPDATE calls SET at = 0",
        "UPDATE calls SET at = 0 WHERE first = 1",
        "UPDATE calls SET first = first + 2",
        "UPDATE calls SET last = first",
        ended,
    ];
    for change in changes {
        let home = tempfile::tempdir().unwrap();
        let at = if change == ended { day(0) } else { day(10) };
        if change == ended {
            let call = opening(&AuditId::mint(), at);
            done(log(home.path()).open(call)).unwrap();
        }
        fill_at(home.path(), 30, at);
        let before = if change.contains("at = 0") || change == ended { day(5) } else { day(11) };
        file(home.path()).execute_batch(change).unwrap();
        let error = prune(home.path(), before, false).unwrap_err().to_string();
        assert!(error.contains("entry 1 does not hold together"), "{change}: {error}");
        assert!(count(home.path(), "entries") >= 60, "{change}");
    }
}

#[test]
fn a_rewritten_history_is_not_pruned() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 30, day(10));
    rewritten(home.path(), "2023-11-24", "2001-11-24", "UPDATE calls SET at = at - 694310400000000");
    assert!(prune(home.path(), day(5), false).is_err());
    assert!(findings(home.path()).iter().any(|finding| finding.flaw == Flaw::Rewritten));
}

#[test]
fn a_missing_start_without_checkpoint_is_a_finding() {
    let home = tempfile::tempdir().unwrap();
    for number in 0..2 {
        fill_at(home.path(), 20, day(number));
    }
    prune(home.path(), day(1), false).unwrap();
    let change = |change: &str| {
        let copy = tempfile::tempdir().unwrap();
        for name in ["audit.db", "audit.checkpoint", "host.key"] {
            std::fs::copy(home.path().join(name), copy.path().join(name)).unwrap();
        }
        file(copy.path()).execute_batch(change).unwrap();
        findings(copy.path())
    };
    let first = |what: &str| change(what).first().map(|finding| (finding.n, finding.flaw));
    assert_eq!(first(""), None);
    assert_eq!(first("DELETE FROM checkpoints WHERE kind = 'base'"), Some((41, Flaw::Beginning)));
    assert_eq!(
        first("DELETE FROM entries WHERE n < 45; DELETE FROM calls WHERE first < 45"),
        Some((41, Flaw::Missing))
    );
    // A statement about the end is none about the beginning.
    let other = "DELETE FROM checkpoints WHERE kind = 'base'; UPDATE checkpoints SET kind = 'base'; DELETE FROM entries";
    assert!(change(other).iter().any(|finding| finding.flaw == Flaw::Signature));
}

#[test]
fn an_inconsistent_log_is_not_pruned() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 20, day(0));
    fill_at(home.path(), 20, day(1));
    file(home.path())
        .execute_batch("UPDATE entries SET body = replace(body, 'tester', 'nobody') WHERE n = 7")
        .unwrap();
    assert!(prune(home.path(), day(1), false).unwrap_err().to_string().contains("entry 7"));
    assert_eq!(count(home.path(), "entries"), 80);
}

#[test]
fn a_host_prunes_beyond_its_retention() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 300, day(0));
    let retention = Some(std::time::Duration::from_secs(86_400));
    let log = SqliteLog::new(home.path(), LogSettings { retention, ..LogSettings::default() }).unwrap();
    open(&log, &AuditId::mint()).unwrap();
    drop(log);
    assert_eq!(count(home.path(), "calls"), 1);
    assert!(findings(home.path()).is_empty());
}

/// Writes a call under a key whose end leaves its effect unknown; with `is_decided`, an operator resolved it.
fn under_a_key(home: &Path, at: Timestamp, is_decided: bool) -> AuditId {
    let log = log(home);
    let id = AuditId::mint();
    let key = cofferdam_core::digest::Digest::sha256(b"k").to_string();
    let fingerprint = cofferdam_core::digest::Digest::from_bytes([7; 32]).to_string();
    let lines = [
        line(1, "received", at, json!({"actor": "tester", "connector": "c@1.0.0", "op": "greet"})),
        line(
            2,
            "admitted",
            at,
            json!({"idempotent": false, "claim": {"key_sha256": key, "fingerprint": fingerprint}}),
        ),
        line(3, "attempt_started", at, json!({"attempt": 1})),
    ];
    let mut call = OpenCall { entry: Entry::new(&id, &lines), ..opening(&id, at) };
    call.idempotent = false;
    call.route.connector = "c@1.0.0".into();
    call.key = Some(KeyClaim { key: "k".into(), fingerprint: [7; 32], at, of: crate::KeyScope::Call });
    done(log.open(call)).unwrap();
    let end = json!({"status": "cancelled", "attempts": 1, "key_end": {"state": "unknown", "until": null}});
    let mut close = closing(&id, at);
    close.key = KeyDisposition::Undetermined;
    close.outcome = None;
    close.verdict = CallOutcome { status: CallStatus::Cancelled, class: None, code: None };
    close.entry = Entry::new(&id, &[line(4, "final", at, end)]);
    done(log.close(None, close)).unwrap();
    if is_decided {
        let facts = Resolution { frees_key: Some(false), ..Resolution::default() };
        let decision = ResolveCall { status: CallStatus::Skipped, at, facts, frees_key: false };
        assert!(done(log.resolve(&id, decision)).unwrap());
    }
    id
}

fn stands(home: &Path) -> KeyState {
    let log = log(home);
    done(log.key_state(KeyClaim {
        key: "k".into(),
        fingerprint: [7; 32],
        at: day(99),
        of: crate::KeyScope::Call,
    }))
    .unwrap()
}

#[test]
fn prune_blockers_are_named_until_resolved() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 2, day(0));
    let id = under_a_key(home.path(), day(0), false);
    fill_at(home.path(), 2, day(0));
    assert_eq!(findings(home.path()), []);
    for dry_run in [true, false] {
        let pruned = prune(home.path(), day(9), dry_run).unwrap();
        let stopped = pruned.stopped.unwrap();
        assert_eq!((pruned.calls, stopped.why, &stopped.audit_id), (2, PruneBlocker::KeyUndecided, &id));
        assert!(stopped.decide.unwrap().contains("recover skip"));
    }
    let open = AuditId::mint();
    let home = tempfile::tempdir().unwrap();
    done(log(home.path()).open(opening(&open, day(0)))).unwrap();
    fill_at(home.path(), 2, day(0));
    let stopped = prune(home.path(), day(9), true).unwrap().stopped.unwrap();
    assert_eq!((stopped.why, stopped.audit_id), (PruneBlocker::Incomplete, open));
}

#[test]
fn a_resolved_key_outlives_its_call() {
    let home = tempfile::tempdir().unwrap();
    let id = under_a_key(home.path(), day(0), true);
    for number in 0..3 {
        fill_at(home.path(), 3, day(number));
    }
    assert_eq!(findings(home.path()), []);
    // The entry that says so is pruned with further calls, and is written again each time.
    for (before, calls) in [(1, 4), (2, 3), (9, 3)] {
        let pruned = prune(home.path(), day(before), false).unwrap();
        assert_eq!((pruned.calls, pruned.stopped), (calls, None));
        assert_eq!(findings(home.path()), []);
        let standing = stands(home.path());
        assert!(matches!(&standing, KeyState::Unknown { audit_id } if *audit_id == id), "{standing:?}");
    }
    // Nothing is left to go, and nothing is said of that.
    let entries = count(home.path(), "entries");
    assert_eq!(prune(home.path(), day(9), false).unwrap().entries, 0);
    assert_eq!(count(home.path(), "entries"), entries);
    for change in [
        "DELETE FROM keys",
        "UPDATE keys SET key = 'other'",
        "UPDATE keys SET fingerprint = zeroblob(32)",
        "UPDATE keys SET state = 1, until = 0",
        "INSERT INTO keys VALUES ('x', zeroblob(32), zeroblob(16), 3, NULL)",
    ] {
        let copy = tempfile::tempdir().unwrap();
        for name in ["audit.db", "audit.checkpoint", "host.key"] {
            std::fs::copy(home.path().join(name), copy.path().join(name)).unwrap();
        }
        file(copy.path()).execute_batch(change).unwrap();
        assert!(findings(copy.path()).iter().any(|found| found.flaw == Flaw::Keys), "{change}");
    }
}

#[test]
fn key_resolutions_are_verified_from_the_chain() {
    for (is_decided, change) in [
        (true, "DELETE FROM keys"),
        (true, "UPDATE keys SET state = 2"),
        (false, "UPDATE keys SET state = 3"),
        (false, "DELETE FROM keys"),
    ] {
        let home = tempfile::tempdir().unwrap();
        under_a_key(home.path(), day(0), is_decided);
        assert_eq!(findings(home.path()), []);
        file(home.path()).execute_batch(change).unwrap();
        let found = findings(home.path());
        assert!(found.iter().any(|found| found.flaw == Flaw::Keys), "{is_decided} {change}: {found:?}");
    }
}

#[test]
fn unused_names_are_pruned_across_hosts() {
    let home = tempfile::tempdir().unwrap();
    let other = log(home.path());
    let call = |number: usize, at| {
        let id = AuditId::mint();
        let op = format!("op-{number}");
        let lines = [
            line(1, "received", at, json!({"actor": "tester", "connector": "c@1.0.0", "op": op})),
            line(2, "final", at, json!({"status": "refused", "attempts": 0})),
        ];
        let mut open = OpenCall { entry: Entry::new(&id, &lines), request: None, ..opening(&id, at) };
        open.route =
            crate::CallTarget { connector: "c@1.0.0".into(), op: op.into(), action: None, step: None };
        let mut close = closing(&id, at);
        (close.attempts, close.outcome, close.entry) = (0, None, Entry::new(&id, &[]));
        close.verdict = CallOutcome { status: CallStatus::Refused, class: None, code: None };
        done(other.close(Some(Box::new(open)), close)).unwrap();
    };
    (0..30).for_each(|number| call(number, day(0)));
    fill_at(home.path(), 2, day(5));
    assert_eq!(count(home.path(), "routes"), 31);
    assert_eq!(prune(home.path(), day(3), false).unwrap().calls, 30);
    assert_eq!(count(home.path(), "routes"), 1);
    // It remembers the numbers of those that are gone.
    (0..3).for_each(|number| call(number, day(6)));
    assert_eq!(count(home.path(), "routes"), 4);
    assert_eq!(other.reader().unwrap().list(&crate::Filter::default()).unwrap().len(), 5);
    drop(other);
    assert!(
        findings(home.path()).iter().all(|found| found.flaw != Flaw::Calls),
        "{:?}",
        findings(home.path())
    );
}
