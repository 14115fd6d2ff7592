//! What is pruned: whole calls from the beginning on, and the rest can be proved still.

use super::*;
use crate::audit::{Flaw, Pruned};

fn day(number: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + number * 86_400).unwrap()
}

fn prune(home: &Path, before: Timestamp, dry_run: bool) -> Result<Pruned, AuditError> {
    let log = log(home);
    let (reply, pruned) = answer();
    log.submit(Order::Prune { before, dry_run, reply });
    done(pruned)
}

#[test]
fn what_is_older_goes_and_the_rest_holds() {
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
fn what_is_pruned_is_in_no_file_while_its_host_lives() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for number in 0..100 {
        let id = AuditId::mint();
        let (reply, opened) = answer();
        let lines = [
            line(1, "received", day(0), json!({"actor": format!("canary-{number}")})),
            line(2, "admitted", day(0), json!({"idempotent": true})),
            line(3, "attempt_started", day(0), json!({"attempt": 1})),
        ];
        let call = OpenCall { entry: Entry::new(&id, &lines), ..opening(&id, day(0)) };
        log.submit(Order::Open { call: Box::new(call), reply });
        done(opened).unwrap();
        let (reply, closed) = answer();
        log.submit(Order::Close { open: None, call: Box::new(closing(&id, day(0))), reply: Some(reply) });
        done(closed).unwrap();
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
    let (reply, pruned) = answer();
    log.submit(Order::Prune { before: day(5), dry_run: false, reply });
    assert_eq!(done(pruned).unwrap().calls, 100);
    assert_eq!(all(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_has_no_end_or_holds_a_key_stays_and_all_that_came_after_it() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 10, day(0));
    let open = AuditId::mint();
    {
        let log = log(home.path());
        let (reply, opened) = answer();
        log.submit(Order::Open { call: Box::new(opening(&open, day(0))), reply });
        done(opened).unwrap();
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
fn what_the_list_of_calls_says_prunes_nothing() {
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
            let (reply, opened) = answer();
            let call = Box::new(opening(&AuditId::mint(), at));
            log(home.path()).submit(Order::Open { call, reply });
            done(opened).unwrap();
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
fn a_history_that_was_written_anew_is_not_pruned() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 30, day(10));
    rewritten(home.path(), "2023-11-24", "2001-11-24", "UPDATE calls SET at = at - 694310400000000");
    assert!(prune(home.path(), day(5), false).is_err());
    assert!(findings(home.path()).iter().any(|finding| finding.flaw == Flaw::Rewritten));
}

#[test]
fn a_beginning_that_is_missing_without_a_statement_is_a_finding() {
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
fn what_does_not_hold_together_is_not_pruned() {
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
fn a_host_prunes_by_itself_what_its_operator_does_not_keep() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 300, day(0));
    let retention = Some(std::time::Duration::from_secs(86_400));
    let log = SqliteLog::new(home.path(), LogSettings { retention, ..LogSettings::default() }).unwrap();
    open(&log, &AuditId::mint()).unwrap();
    drop(log);
    assert_eq!(count(home.path(), "calls"), 1);
    assert!(findings(home.path()).is_empty());
}
