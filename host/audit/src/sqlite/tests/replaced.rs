//! Changes that a living host detects: its audit log removed or replaced, its lock file removed, its call
//! resolved by another process.

use std::fs;
use std::time::{Duration, SystemTime};

use super::*;
use crate::{AuditErrorKind, KeyClaim, KeyState, ResolveCall};

fn open_keyed(log: &SqliteLog, id: &AuditId) -> Result<OpenOutcome, AuditError> {
    let mut call = opening(id, Timestamp::now());
    call.key = Some(KeyClaim {
        key: "order-17".into(),
        fingerprint: [7; 32],
        at: Timestamp::now(),
        of: crate::KeyScope::Call,
    });
    done(log.open(call))
}

fn skip(log: &SqliteLog, id: &AuditId) -> bool {
    let decision = ResolveCall {
        status: CallStatus::Skipped,
        at: Timestamp::now(),
        facts: Resolution::default(),
        frees_key: true,
    };
    done(log.resolve(id, decision)).unwrap()
}

fn move_files(home: &Path, from: &str, to: &str) {
    for name in ["audit.db", "audit.db-wal", "audit.db-shm"] {
        let _ = fs::rename(home.join(format!("{name}{from}")), home.join(format!("{name}{to}")));
    }
}

#[test]
fn a_removed_log_accepts_no_call() {
    for names in [&["audit.db", "audit.db-wal", "audit.db-shm"][..], &["audit.db-wal"], &["audit.db-shm"]] {
        let home = tempfile::tempdir().unwrap();
        let log = log(home.path());
        let (before, after) = (AuditId::mint(), AuditId::mint());
        open(&log, &before).unwrap();
        for name in names {
            fs::remove_file(home.path().join(name)).unwrap();
        }
        assert_eq!(open(&log, &after).unwrap_err().kind(), AuditErrorKind::Replaced, "{names:?}");
    }
}

#[test]
fn an_outcome_is_kept_in_a_restored_log() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let id = AuditId::mint();
    open(&log, &id).unwrap();
    move_files(home.path(), "", ".old");
    assert_eq!(close(&log, &id).unwrap_err().kind(), AuditErrorKind::Replaced);
    move_files(home.path(), ".old", "");
    done(log.flush()).unwrap();
    assert_eq!(log.reader().unwrap().call(&id).unwrap().unwrap().status, CallStatus::Value);
    drop(log);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn an_end_without_a_start_is_reported_as_replaced() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let id = AuditId::mint();
    open(&log, &id).unwrap();
    fs::File::options().write(true).open(home.path().join("audit.db")).unwrap().set_len(0).unwrap();
    for name in ["audit.db-wal", "audit.db-shm"] {
        fs::remove_file(home.path().join(name)).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(close(&log, &id).unwrap_err().kind(), AuditErrorKind::Replaced);
    }
    // Others are not held up.
    let next = AuditId::mint();
    open(&log, &next).unwrap();
    close(&log, &next).unwrap();
    assert_eq!(log.reader().unwrap().call(&id).unwrap(), None);
}

#[test]
fn a_removed_lock_file_does_not_mean_death() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (log(home.path()), log(home.path()));
    let id = AuditId::mint();
    assert!(matches!(open_keyed(&one, &id).unwrap(), OpenOutcome::Started));
    let running = home.path().join("running");
    fs::remove_dir_all(&running).unwrap();
    let again = open_keyed(&two, &AuditId::mint()).unwrap();
    assert!(matches!(again, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{again:?}");
    assert!(!skip(&two, &id));
    close(&one, &id).unwrap();
    drop((one, two));
    assert_eq!(fs::read_dir(&running).unwrap().count(), 0, "hosts that end leave nothing");
    assert!(findings(home.path()).is_empty());
}

#[test]
fn a_host_recreates_its_lock_file() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    open(&log, &AuditId::mint()).unwrap();
    let running = home.path().join("running");
    fs::remove_dir_all(&running).unwrap();
    let begun = std::time::Instant::now();
    while !running.is_dir() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_resolved_call_has_no_other_end() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (log(home.path()), log(home.path()));
    let id = AuditId::mint();
    open(&one, &id).unwrap();
    let file = fs::read_dir(home.path().join("running")).unwrap().flatten().map(|file| file.path());
    // That of the other is not made yet.
    let file = file.last().unwrap();
    // As if it were missed for a minute by all, and its host held up; which may be faster, here.
    let begun = std::time::Instant::now();
    loop {
        fs::write(home.path().join("mark"), "missing\n").unwrap();
        let mark = fs::File::options().write(true).open(home.path().join("mark")).unwrap();
        mark.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        fs::rename(home.path().join("mark"), &file).unwrap();
        if skip(&two, &id) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    let length = one.reader().unwrap().length().unwrap();
    assert_eq!(close(&one, &id).unwrap_err().kind(), AuditErrorKind::Decided);
    assert_eq!(open(&one, &id).unwrap_err().kind(), AuditErrorKind::Decided);
    let mut reader = one.reader().unwrap();
    assert_eq!(reader.call(&id).unwrap().unwrap().status, CallStatus::Skipped);
    assert_eq!(reader.length().unwrap(), length);
    drop((reader, one, two));
    assert!(findings(home.path()).is_empty());
}
