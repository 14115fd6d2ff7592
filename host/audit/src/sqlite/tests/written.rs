//! Writing: many orders in one commit, from several tasks at once, each once, and again after an error.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::AuditErrorKind;

/// Returns the number of commits in the write-ahead log: frames that contain the size of the file after the
/// commit.
fn commits(home: &Path) -> usize {
    let wal = fs::read(home.join("audit.db-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let frame = 24 + number(8) as usize;
    (32..wal.len()).step_by(frame).filter(|at| number(at + 4) > 0).count()
}

#[test]
fn waiting_commands_share_a_transaction() {
    let home = tempfile::tempdir().unwrap();
    let log = SqliteLog::new(home.path(), LogSettings::default()).unwrap();
    open(&log, &AuditId::mint()).unwrap();
    let before = commits(home.path());
    // Another process holds the file; meanwhile orders accumulate.
    let other = file(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answers: Vec<_> = (0..300).map(|_| log.open(opening(&AuditId::mint(), Timestamp::now()))).collect();
    other.execute_batch("ROLLBACK").unwrap();
    for opened in answers {
        assert!(matches!(done(opened).unwrap(), OpenOutcome::Started));
    }
    let commits = commits(home.path()) - before;
    assert!(commits <= 3, "{commits} for 300 calls");
    assert_eq!(count(home.path(), "entries"), 301);
    drop(log);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn concurrent_hosts_write_one_chain() {
    let home = tempfile::tempdir().unwrap();
    let logs: Vec<_> = (0..4).map(|_| SqliteLog::new(home.path(), LogSettings::default()).unwrap()).collect();
    std::thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| {
                for _ in 0..50 {
                    let id = AuditId::mint();
                    open(log, &id).unwrap();
                    close(log, &id).unwrap();
                }
            });
        }
    });
    drop(logs);
    let proof = proof(home.path());
    assert_eq!((proof.n, proof.tally.calls), (400, 200));
    assert!(proof.findings.is_empty(), "{:?}", proof.findings);
}

#[test]
fn a_repeated_request_is_written_once() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let id = AuditId::mint();
    open(&log, &id).unwrap();
    assert!(matches!(open(&log, &id).unwrap(), OpenOutcome::Started));
    close(&log, &id).unwrap();
    close(&log, &id).unwrap();
    drop(log);
    assert_eq!((count(home.path(), "entries"), count(home.path(), "calls")), (2, 1));
    assert!(findings(home.path()).is_empty());
}

#[test]
fn log_files_are_private() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("deep");
    let log = log(&dir);
    open(&log, &AuditId::mint()).unwrap();
    sign(&log).unwrap();
    for name in ["audit.db", "audit.db-wal", "audit.db-shm", "audit.checkpoint", "host.key"] {
        let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    assert_eq!(fs::metadata(dir.join("running")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn an_abandoned_end_is_written_later() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let (ended, given_up) = (AuditId::mint(), AuditId::mint());
    open(&log, &ended).unwrap();
    open(&log, &given_up).unwrap();
    let other = file(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(log.close(None, closing(&ended, Timestamp::now())));
    // Asked for three times, as a call does, and then given up.
    for _ in 0..3 {
        assert_eq!(close(&log, &given_up).unwrap_err().kind(), AuditErrorKind::Locked);
    }
    other.execute_batch("ROLLBACK").unwrap();
    // The next order finds them written.
    done(log.flush()).unwrap();
    assert_eq!(count(home.path(), "calls WHERE verdict = 1"), 2);
    drop(log);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn an_abandoned_append_is_written_later() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let id = AuditId::mint();
    open(&log, &id).unwrap();
    let other = file(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let entry = |seq| {
        let ended = line(seq, "attempt_ended", Timestamp::now(), json!({"attempt": 1}));
        Entry::new(&id, &[ended])
    };
    drop(log.append(&id, entry(4)));
    // The caller that waits for this one retries it itself.
    assert_eq!(done(log.append(&id, entry(5))).unwrap_err().kind(), AuditErrorKind::Locked);
    other.execute_batch("ROLLBACK").unwrap();
    done(log.flush()).unwrap();
    assert_eq!(count(home.path(), "entries"), 2);
    drop(log);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn a_failed_writer_leaves_an_incomplete_call() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let id = AuditId::mint();
    open(&log, &id).unwrap();
    let other = file(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(log.close(None, closing(&id, Timestamp::now())));
    drop(log);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(count(home.path(), "calls WHERE verdict = 0"), 1);
    assert!(findings(home.path()).is_empty());
}
