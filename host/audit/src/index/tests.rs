//! Tests: an index that is missing, damaged, of other journals or of another version, and journals that change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::clock::SystemClock;
use jiff::{SignedDuration, Timestamp};

use super::{IndexReader, LogIndex, traffic};
use crate::{
    AuditErrorKind, AuditLog as _, AuditReader as _, CallRow, CallStatus, Filter, JournalLog, LogSettings,
    Stats,
};

const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn reader_of(home: &Path) -> IndexReader {
    IndexReader::open(&home.join("audit"), TIMEOUT, Box::new(|_| Ok(Vec::new()))).unwrap()
}

pub(super) fn index_of(home: &Path) -> LogIndex {
    let mut index = LogIndex::open(&home.join("audit"), TIMEOUT).unwrap();
    index.update().unwrap();
    index
}

fn log(home: &Path) -> JournalLog {
    JournalLog::new(home, LogSettings::default(), Arc::new(SystemClock))
}

fn hour() -> Timestamp {
    "2024-11-22T11:30:00Z".parse().unwrap()
}

/// Everything that the index says.
fn answers(home: &Path) -> (Vec<CallRow>, Stats) {
    let mut reader = reader_of(home);
    (reader.list(&Filter::default()).unwrap(), reader.stats(&Filter::default()).unwrap())
}

fn file(home: &Path, name: &str) -> PathBuf {
    home.join("audit").join(name)
}

fn remove_index(home: &Path) {
    for name in ["index.db", "index.db-wal", "index.db-shm", "index.stamp", "index.lock"] {
        drop(fs::remove_file(file(home, name)));
    }
}

/// A home with calls, and what its index says.
fn filled(calls: usize) -> (tempfile::TempDir, (Vec<CallRow>, Stats)) {
    let home = tempfile::tempdir().unwrap();
    traffic::fill(home.path(), calls, 2, hour());
    let answers = answers(home.path());
    assert_eq!(answers.0.len(), calls);
    (home, answers)
}

#[test]
fn a_home_without_entries_has_no_reader() {
    let home = tempfile::tempdir().unwrap();
    let open = || {
        let opened = IndexReader::open(&home.path().join("audit"), TIMEOUT, Box::new(|_| Ok(Vec::new())));
        opened.err().map(|error| error.kind())
    };
    assert_eq!(open(), Some(AuditErrorKind::Absent));
    assert!(!home.path().join("audit").exists());
    let (call, _) = traffic::Calls::new(1).next(hour());
    drop(log(home.path()).open(call));
    assert_eq!(open(), None);
}

#[test]
fn a_missing_index_is_made_again() {
    let (home, before) = filled(300);
    remove_index(home.path());
    assert_eq!(answers(home.path()), before);
    fs::remove_file(file(home.path(), "index.db")).unwrap();
    assert_eq!(answers(home.path()), before);
    let mut seen = (0, 0, 0);
    LogIndex::rebuild(&home.path().join("audit"), TIMEOUT, &mut |lines, done, all| seen = (lines, done, all))
        .unwrap();
    assert!(seen.0 > 570 && seen.1 == seen.2 && seen.2 > 100_000, "{seen:?}");
    assert_eq!(answers(home.path()), before);
}

#[test]
fn calls_are_found_while_they_are_written() {
    let home = tempfile::tempdir().unwrap();
    let (log, mut calls) = (log(home.path()), traffic::Calls::new(1));
    let (first, end) = calls.next(hour());
    drop(log.open(first.clone()));
    let mut reader = reader_of(home.path());
    let row = reader.call(&first.audit_id).unwrap().unwrap();
    assert_eq!((row.status, row.incomplete), (CallStatus::Running, false));
    let mut position = reader.end().unwrap();
    assert_eq!(reader.ended_after(&mut position, 10).unwrap(), []);
    let mut ends = vec![end];
    for n in 1..40 {
        let (open, close) = calls.next(hour() + SignedDuration::from_secs(n));
        drop(log.open(open));
        ends.push(close);
        if n % 3 == 0 {
            let close = ends.remove(0);
            let id = close.audit_id.clone();
            drop(log.close(None, close));
            let row = reader.call(&id).unwrap().unwrap();
            assert_eq!((row.attempts, row.idempotent), (Some(1), true));
            let ended = reader.ended_after(&mut position, 10).unwrap();
            assert_eq!(ended, [row]);
            assert_eq!(position, reader.end().unwrap());
        }
    }
    assert_eq!(reader.stats(&Filter::default()).unwrap().running, 27);
    assert_eq!(reader.entries_of(&first.audit_id).unwrap().len(), 2);
    drop(log);
    let incomplete = reader.list(&Filter { incomplete: true, ..Filter::default() }).unwrap();
    assert_eq!(incomplete.len(), 27);
    assert!(incomplete.iter().all(|row| row.incomplete));
    assert!(reader.call(&incomplete[0].audit_id).unwrap().unwrap().incomplete);
    let mut start = crate::LogPosition::default();
    assert_eq!(reader.ended_after(&mut start, 5).unwrap().len(), 5);
    assert_eq!(reader.ended_after(&mut start, 50).unwrap().len(), 8);
}
