//! Tests: an index that is missing, damaged, of other journals or of another version, and journals that change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam_core::clock::SystemClock;
use cofferdam_core::failure::AuditId;
use jiff::{SignedDuration, Timestamp};

use super::index_file::FORMAT_VERSION;
use super::journal_fill::{FillBudget, FillResult, IndexProgress, JournalFiles};
use super::queries_tests::counts_match;
use super::{IndexReader, LogIndex, ProcessCalls, traffic};
use crate::journal::{EntryDraft, Journal, JournalSettings, UnendedCache, UnendedCalls, segments};
use crate::{
    AuditError, AuditErrorKind, AuditLog as _, AuditReader as _, CallRow, CallStatus, Filter, JournalLog,
    LogSettings, Stats, StatsQuery,
};

/// A process without calls of its own.
struct NoCalls;

impl ProcessCalls for NoCalls {
    fn undecided(&self, _: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        Ok(Vec::new())
    }

    fn is_interrupted(&self, _: &AuditId) -> bool {
        false
    }

    fn unended(&self, journal: &Path) -> Result<Arc<UnendedCalls>, AuditError> {
        UnendedCache::default().read(journal)
    }
}

pub(super) fn reader_of(home: &Path) -> IndexReader {
    IndexReader::open(&home.join("audit"), Arc::new(NoCalls)).unwrap()
}

pub(super) fn index_of(home: &Path) -> LogIndex {
    let mut index = LogIndex::open(&home.join("audit")).unwrap();
    index.update().unwrap();
    index
}

pub(super) fn log(home: &Path) -> JournalLog {
    JournalLog::new(home, LogSettings::default(), Arc::new(SystemClock))
}

fn hour() -> Timestamp {
    "2024-11-22T11:30:00Z".parse().unwrap()
}

/// Everything that the index says.
fn answers(home: &Path) -> (Vec<CallRow>, Stats) {
    let mut reader = reader_of(home);
    (
        reader.list(&Filter::default()).unwrap(),
        reader.stats(&Filter::default(), StatsQuery::default()).unwrap(),
    )
}

fn file(home: &Path, name: &str) -> PathBuf {
    home.join("audit").join(name)
}

/// Returns the directory of a journal.
pub(super) fn journal_dir(home: &Path) -> PathBuf {
    let mut entries = fs::read_dir(file(home, "")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.is_dir()).unwrap()
}

pub(super) fn remove_index(home: &Path) {
    for name in ["index.db", "index.db-wal", "index.db-shm", "index.stamp", "index.lock"] {
        drop(fs::remove_file(file(home, name)));
    }
}

/// Records the next call with its end, and returns its id.
fn record(log: &JournalLog, calls: &mut traffic::Calls, at: Timestamp) -> AuditId {
    let (open, close) = calls.next(at);
    let id = open.audit_id.clone();
    drop(log.open(open));
    drop(log.close(None, close));
    id
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
        let opened = IndexReader::open(&home.path().join("audit"), Arc::new(NoCalls));
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
    LogIndex::rebuild(&home.path().join("audit"), &mut |lines, done, all| seen = (lines, done, all)).unwrap();
    assert!(seen.0 > 570 && seen.1 == seen.2 && seen.2 > 100_000, "{seen:?}");
    assert_eq!(answers(home.path()), before);
}

#[test]
fn an_index_may_be_deleted_under_its_reader() {
    let (home, before) = filled(60);
    let mut reader = reader_of(home.path());
    for is_alone in [true, false] {
        match is_alone {
            true => fs::remove_file(file(home.path(), "index.db")).unwrap(),
            false => remove_index(home.path()),
        }
        assert_eq!(reader.list(&Filter::default()).unwrap(), before.0);
        assert!(file(home.path(), "index.db").exists());
    }
}

#[test]
fn calls_are_found_while_they_are_written() {
    let home = tempfile::tempdir().unwrap();
    let (log, mut calls) = (log(home.path()), traffic::Calls::new(1));
    let (first, end) = calls.next(hour());
    drop(log.open(first.clone()));
    let mut reader = reader_of(home.path());
    let row = reader.call(&first.audit_id).unwrap().unwrap();
    assert_eq!(row.status, CallStatus::Running);
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
            assert_eq!(position, log.end().unwrap());
        }
    }
    assert_eq!(reader.stats(&Filter::default(), StatsQuery::default()).unwrap().running, 27);
    assert_eq!(reader.entries_of(&first.audit_id).unwrap().len(), 2);
    drop(log);
    let incomplete =
        reader.list(&Filter { status: Some(CallStatus::Incomplete), ..Filter::default() }).unwrap();
    assert_eq!(incomplete.len(), 27);
    assert!(incomplete.iter().all(|row| row.status == CallStatus::Incomplete));
    assert_eq!(reader.call(&incomplete[0].audit_id).unwrap().as_ref(), incomplete.first());
    let mut start = crate::LogPosition::default();
    assert_eq!(reader.ended_after(&mut start, 5).unwrap().len(), 5);
    assert_eq!(reader.ended_after(&mut start, 50).unwrap().len(), 8);
}

#[test]
fn an_entry_has_the_hash_that_the_next_one_names() {
    let home = tempfile::tempdir().unwrap();
    let id = record(&log(home.path()), &mut traffic::Calls::new(1), hour());
    let entries = reader_of(home.path()).entries_of(&id).unwrap();
    let [first, second] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!((&second.writer, second.n), (&first.writer, first.n + 1));
    assert!(second.text.contains(&format!("\"prev\":\"{}\"", first.sha256())), "{entries:?}");
}

#[test]
fn storage_has_all_files_and_the_oldest_call() {
    let (home, (rows, _)) = filled(300);
    fs::write(file(home.path(), "retained"), "2026-11-22T12:00:00Z").unwrap();
    fs::set_permissions(file(home.path(), "retained"), fs::Permissions::from_mode(0o600)).unwrap();
    let storage = reader_of(home.path()).storage().unwrap();
    assert_eq!(storage.oldest, rows.last().map(|row| row.at));
    assert_eq!(storage.retained, Some("2026-11-22T12:00:00Z".parse().unwrap()));
    let all = |dir: &Path| -> u64 {
        let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap());
        files.filter(fs::Metadata::is_file).map(|file| file.blocks() * 512).sum()
    };
    let journal = journal_dir(home.path());
    assert_eq!(storage.bytes(), all(&file(home.path(), "")) + all(&journal));
    let lines = fs::metadata(journal.join(format!("{:012}.jsonl", segments(&journal).unwrap()[0])));
    assert_eq!(storage.entries_bytes, lines.unwrap().blocks() * 512);
    assert!(storage.index_bytes > 0 && storage.other_bytes > 0, "{storage:?}");
}

/// Waits until the file system's clock has gone on, so that a change shows.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

fn copy_log(home: &Path) {
    // As if the write-ahead log was long.
    let index = index_of(home);
    index.file.copy_log_now().unwrap();
    assert_eq!(fs::metadata(file(home, "index.db-wal")).map_or(0, |log| log.len()), 0);
    tick();
}

#[test]
fn a_link_in_place_of_a_segment_does_not_cost_the_index() {
    let (home, _) = filled(20);
    let journal = journal_dir(home.path());
    let segment = journal.join(format!("{:012}.jsonl", segments(&journal).unwrap()[0]));
    let (mut reader, elsewhere) = (reader_of(home.path()), home.path().join("elsewhere"));
    let first = reader.list(&Filter::default()).unwrap().remove(0).audit_id;
    fs::rename(&segment, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &segment).unwrap();
    let before = fs::metadata(home.path().join("audit/index.db")).unwrap().ino();
    let refused = reader.entries_of(&first).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::Tampered, "{refused}");
    assert_eq!(fs::metadata(home.path().join("audit/index.db")).unwrap().ino(), before);
}

#[test]
fn a_truncated_index_is_made_again() {
    let (home, before) = filled(200);
    let home = home.path();
    copy_log(home);
    let whole = fs::read(file(home, "index.db")).unwrap();
    for length in (0..50).map(|part| whole.len() * part / 50) {
        fs::write(file(home, "index.db"), &whole[..length]).unwrap();
        assert_eq!(answers(home), before, "{length}");
        tick();
    }
}

#[test]
fn an_index_with_flipped_bits_is_made_again() {
    let (home, before) = filled(200);
    let home = home.path();
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..300 {
        let (name, whole) = match round % 2 {
            0 => {
                copy_log(home);
                ("index.db", fs::read(file(home, "index.db")).unwrap())
            }
            _ => ("index.db-wal", fs::read(file(home, "index.db-wal")).unwrap()),
        };
        let mut flipped = whole.clone();
        if flipped.is_empty() {
            continue;
        }
        flipped[rng.usize(..whole.len())] ^= 1 << rng.u8(..8);
        fs::write(file(home, name), flipped).unwrap();
        assert_eq!(answers(home), before, "{round}");
    }
}

#[test]
fn an_index_of_another_home_is_made_again() {
    let ((home, before), (other, _)) = (filled(100), filled(90));
    for name in ["index.db", "index.db-wal", "index.stamp"] {
        fs::copy(file(other.path(), name), file(home.path(), name)).unwrap();
    }
    drop(fs::remove_file(file(home.path(), "index.db-shm")));
    assert_eq!(answers(home.path()), before);
    // The journals themselves are other ones, for the same file.
    let (moved, away) = (file(home.path(), ""), home.path().join("away"));
    fs::create_dir(&away).unwrap();
    for entry in fs::read_dir(&moved).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        fs::rename(&entry, away.join(entry.file_name().unwrap())).unwrap();
    }
    traffic::fill(home.path(), 80, 1, hour());
    assert_eq!(answers(home.path()).0.len(), 80);
}

#[test]
fn a_journal_that_was_put_back_is_indexed_again() {
    let (home, before) = filled(100);
    let dir = journal_dir(home.path());
    let segment = dir.join("000000000001.jsonl");
    let old = fs::read(&segment).unwrap();
    let (log, mut calls) = (log(home.path()), traffic::Calls::new(9));
    (0..10).for_each(|_| drop(record(&log, &mut calls, hour())));
    drop(log);
    assert_eq!(answers(home.path()).0.len(), 110);
    fs::write(&segment, old).unwrap();
    for entry in fs::read_dir(file(home.path(), "")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && entry != dir {
            fs::remove_dir_all(entry).unwrap();
        }
    }
    assert_eq!(answers(home.path()), before);
}

#[test]
fn an_index_of_another_version_is_made_again() {
    let (home, before) = filled(100);
    let version = |index: LogIndex| {
        index.file.connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
    };
    for other in [99, FORMAT_VERSION - 1] {
        {
            let index = index_of(home.path());
            index.file.connection.pragma_update(None, "user_version", other).unwrap();
        }
        assert_eq!(answers(home.path()), before, "{other}");
        assert_eq!(version(index_of(home.path())), FORMAT_VERSION, "{other}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_can_be_read() {
    let (home, before) = filled(100);
    remove_index(home.path());
    let dir = file(home.path(), "");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).unwrap();
    let mut reader = reader_of(home.path());
    // Permissions do not stop root.
    if rustix::process::geteuid().is_root() {
        remove_index(home.path());
        reader.index = LogIndex::in_memory(&dir).unwrap();
    }
    let found = (
        reader.list(&Filter::default()).unwrap(),
        reader.stats(&Filter::default(), StatsQuery::default()).unwrap(),
    );
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(found, before);
    assert!(!file(home.path(), "index.db").exists());
}

#[test]
fn an_exposed_index_is_refused() {
    let (home, _) = filled(60);
    fs::set_permissions(file(home.path(), "index.db"), fs::Permissions::from_mode(0o644)).unwrap();
    let opened = LogIndex::open(&home.path().join("audit"));
    assert_eq!(opened.err().map(|error| error.kind()), Some(AuditErrorKind::Exposed));
}

#[test]
fn several_readers_fill_one_index_while_calls_are_written() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = log(home);
    let mut calls = traffic::Calls::new(3);
    let (first, _) = calls.next(hour());
    drop(log.open(first));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = reader_of(home);
                let mut before = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let found = reader.list(&Filter::default()).unwrap().len();
                    assert!(found >= before);
                    before = found;
                }
            });
        }
        for n in 1..2_000 {
            record(&log, &mut calls, hour() + SignedDuration::from_micros(n));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let found = answers(home);
    assert_eq!((found.0.len(), found.1.ended(), found.1.running), (2_000, 1_999, 1));
    remove_index(home);
    assert_eq!(answers(home), found);
}

#[test]
fn a_leap_of_the_clock_does_not_change_the_order() {
    let home = tempfile::tempdir().unwrap();
    let (log, mut calls, now) = (log(home.path()), traffic::Calls::new(5), Timestamp::now());
    let mut ids = Vec::new();
    let mut indexed = Vec::new();
    for n in 0..30 {
        let at = match n {
            10 => now + SignedDuration::from_hours(24 * 365),
            20 => now - SignedDuration::from_hours(24 * 365 * 50),
            _ => now + SignedDuration::from_secs(n),
        };
        ids.insert(0, record(&log, &mut calls, at));
        let listed = reader_of(home.path()).list(&Filter::default()).unwrap();
        indexed.push(listed.into_iter().map(|row| row.audit_id).collect::<Vec<_>>());
        assert_eq!(indexed.last().unwrap(), &ids, "{n}");
    }
    let mut reader = reader_of(home.path());
    let since = Filter { since: Some(now - SignedDuration::from_secs(1)), ..Filter::default() };
    assert_eq!(reader.list(&since).unwrap().len(), 29);
    let future = Filter { since: Some(now + SignedDuration::from_hours(100)), ..Filter::default() };
    assert_eq!(reader.list(&future).unwrap().len(), 1);
    // Calls of another writer come after them, and are not below the call of the wrong year.
    drop(log);
    let before = answers(home.path());
    remove_index(home.path());
    assert_eq!(answers(home.path()), before);
    let seqs = "SELECT max(seq) FROM calls";
    let newest: i64 = index_of(home.path()).file.connection.query_row(seqs, [], |row| row.get(0)).unwrap();
    assert!(newest < (now + SignedDuration::from_secs(60)).as_microsecond());
}

#[test]
fn a_journal_of_a_leap_is_not_on_top_of_all() {
    let home = tempfile::tempdir().unwrap();
    let (mut calls, now) = (traffic::Calls::new(5), Timestamp::now());
    let leap = now + SignedDuration::from_hours(24 * 365);
    let leapt = log(home.path());
    let mut ids = vec![record(&leapt, &mut calls, leap)];
    let dir = journal_dir(home.path());
    let other = log(home.path());
    for (log, second) in [(&other, 1), (&leapt, 2), (&other, 3), (&leapt, 4)] {
        ids.push(record(log, &mut calls, now + SignedDuration::from_secs(second)));
    }
    drop((leapt, other));
    // Its name is of the leap as well.
    let (name, begun) =
        (dir.file_name().unwrap().to_str().unwrap(), format!("{:012x}", leap.as_millisecond()));
    let name = format!("{}-{}{}", &begun[..8], &begun[8..], &name[13..]);
    fs::rename(&dir, dir.with_file_name(name)).unwrap();
    remove_index(home.path());
    let listed = reader_of(home.path()).list(&Filter::default()).unwrap();
    let listed: Vec<_> = listed.into_iter().map(|row| row.audit_id).collect();
    assert_eq!(listed, [4, 3, 2, 0, 1].map(|n| ids[n].clone()));
}

#[test]
fn a_changed_line_is_reported() {
    let (home, _) = filled(60);
    let mut reader = reader_of(home.path());
    let rows = reader.list(&Filter { status: Some(CallStatus::Value), ..Filter::default() }).unwrap();
    let segment = journal_dir(home.path()).join("000000000001.jsonl");
    let text = fs::read_to_string(&segment).unwrap();
    let row = &rows[rows.len() / 2];
    let id = row.audit_id.as_str();
    let line = text.lines().rfind(|line| line.contains(id)).unwrap();
    let kind = |changed: &str| {
        fs::write(&segment, text.replace(line, changed)).unwrap();
        let (mut reader, id) = (reader_of(home.path()), row.audit_id.clone());
        let entries = reader.entries_of(&id);
        fs::write(&segment, &text).unwrap();
        entries.map(|entries| entries.len()).map_err(|error| error.kind())
    };
    assert_eq!(kind(line), Ok(2));
    assert_eq!(kind(&line.replacen("value", "valve", 1)), Err(AuditErrorKind::Tampered));
    assert_eq!(kind(&line.replacen("\"n\"", "\"m\"", 1)), Err(AuditErrorKind::Tampered));
    // Another length: the index is made again before it is reported.
    assert_eq!(kind(&line.replacen("\"attempts\":1", "\"attempts\":100", 1)), Err(AuditErrorKind::Tampered));
    assert_eq!(kind(line), Ok(2));
    // A line that cannot be read is skipped, and the rest is there.
    fs::write(&segment, text.replace(line, &line.replacen("\"n\"", "\"m\"", 1))).unwrap();
    remove_index(home.path());
    assert_eq!(reader_of(home.path()).list(&Filter::default()).unwrap().len(), 60);
}

#[test]
fn pruned_calls_leave_the_index() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("audit");
    let settings = JournalSettings { segment_bytes: 20_000, ..JournalSettings::default() };
    let mut journal = Journal::take(&root, settings, &BTreeMap::new()).unwrap();
    let (mut calls, mut firsts) = (traffic::Calls::new(4), Vec::new());
    for n in 0..300 {
        let (open, close) = calls.next(hour() + SignedDuration::from_secs(n * 60));
        let mut drafts = [
            EntryDraft::of_call(&open.audit_id, false, &open.entry),
            EntryDraft::of_call(&open.audit_id, true, &close.entry),
        ];
        journal.write(&mut drafts.each_mut(), hour()).unwrap();
        firsts.push((open.audit_id, journal.head().n - 1));
    }
    let dir = root.join(journal.writer());
    let mut index = index_of(home.path());
    let numbers = segments(&dir).unwrap();
    assert!(numbers.len() > 8);
    let remove = |gone: &u64| fs::remove_file(dir.join(format!("{gone:012}.jsonl"))).unwrap();
    numbers[..numbers.len() / 2].iter().for_each(remove);
    let first = numbers[numbers.len() / 2];
    let kept: Vec<AuditId> =
        firsts.into_iter().filter(|(_, n)| *n >= first).map(|(id, _)| id).rev().collect();
    let listed = |home: &Path| {
        let rows = reader_of(home).list(&Filter::default()).unwrap();
        rows.into_iter().map(|row| row.audit_id).collect::<Vec<_>>()
    };
    assert_eq!(listed(home.path()), kept);
    index.update().unwrap();
    assert!(counts_match(&index));
    remove_index(home.path());
    assert_eq!(listed(home.path()), kept);
    // A journal that was pruned further than its index was.
    let (open, _) = calls.next(hour() + SignedDuration::from_hours(10));
    let mut draft = EntryDraft::of_call(&open.audit_id, false, &open.entry);
    for _ in 0..100 {
        journal.write(&mut [&mut draft], hour()).unwrap();
    }
    segments(&dir).unwrap().iter().rev().skip(1).for_each(remove);
    assert_eq!(listed(home.path()), [open.audit_id]);
}

#[test]
fn segments_that_are_pruned_meanwhile_are_left_out() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("audit");
    let settings = JournalSettings { segment_bytes: 20_000, ..JournalSettings::default() };
    let mut journal = Journal::take(&root, settings, &BTreeMap::new()).unwrap();
    let mut calls = traffic::Calls::new(4);
    let mut begun = Vec::new();
    while segments(&root.join(journal.writer())).unwrap().len() < 4 {
        let (open, _) = calls.next(hour());
        journal.write(&mut [&mut EntryDraft::of_call(&open.audit_id, false, &open.entry)], hour()).unwrap();
        begun.push((journal.head().n, open.audit_id));
    }
    let listed = JournalFiles::list(&root, journal.writer().to_owned()).unwrap().unwrap();
    let mut index = LogIndex::open(&root).unwrap();
    let mut own = IndexProgress::begin(&index.file.connection, &listed).unwrap().unwrap();
    let mut fill = |index: &mut LogIndex| {
        let LogIndex { file, interner, buffer, .. } = index;
        own.fill(&file.connection, interner, &listed, &mut FillBudget::new(), buffer).unwrap()
    };
    let remove = |first: u64| fs::remove_file(listed.dir.join(format!("{first:012}.jsonl"))).unwrap();
    // The second segment, and then the first one, which was read.
    for first in [listed.firsts[1], listed.firsts[0]] {
        remove(first);
        assert!(matches!(fill(&mut index), FillResult::Partial));
    }
    index.update().unwrap();
    let kept = begun.iter().filter(|(n, _)| *n >= listed.firsts[2]).count();
    assert_eq!(reader_of(home.path()).list(&Filter::default()).unwrap().len(), kept);
}

#[test]
fn ends_are_followed_past_a_pruned_segment() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("audit");
    let mut journal = Journal::take(&root, JournalSettings::default(), &BTreeMap::new()).unwrap();
    let mut calls = traffic::Calls::new(4);
    let mut run = |journal: &mut Journal| {
        let (open, close) = calls.next(hour());
        let mut drafts = [
            EntryDraft::of_call(&open.audit_id, false, &open.entry),
            EntryDraft::of_call(&open.audit_id, true, &close.entry),
        ];
        journal.write(&mut drafts.each_mut(), hour()).unwrap();
        open.audit_id
    };
    (0..20).for_each(|_| drop(run(&mut journal)));
    let (mut reader, mut position) = (reader_of(home.path()), crate::LogPosition::default());
    assert_eq!(reader.ended_after(&mut position, 100).unwrap().len(), 20);
    journal.begin_segment(hour()).unwrap();
    fs::remove_file(root.join(journal.writer()).join("000000000001.jsonl")).unwrap();
    let id = run(&mut journal);
    let ended = reader.ended_after(&mut position, 100).unwrap();
    assert_eq!(ended.into_iter().map(|row| row.audit_id).collect::<Vec<_>>(), [id]);
}

/// A process was killed before it wrote the first line of a segment. The next one goes on in the segment before it.
#[test]
fn calls_after_a_removed_segment_are_found() {
    let home = tempfile::tempdir().unwrap();
    let mut calls = traffic::Calls::new(7);
    let mut run = || drop(record(&log(home.path()), &mut calls, hour()));
    run();
    let dir = journal_dir(home.path());
    let lines = fs::read_to_string(dir.join("000000000001.jsonl")).unwrap().lines().count();
    let empty = dir.join(format!("{:012}.jsonl", lines + 1));
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(answers(home.path()).0.len(), 1);
    run();
    assert_eq!(segments(&dir).unwrap(), [1], "the journal goes on");
    assert_eq!(answers(home.path()).0.len(), 2);
}

#[test]
fn a_resumed_call_has_another_outcome() {
    let home = tempfile::tempdir().unwrap();
    let mut calls = traffic::Calls::new(6);
    let (interrupted, _) = calls.next(hour());
    drop(log(home.path()).open(interrupted.clone()));
    let mut reader = reader_of(home.path());
    assert_eq!(reader.call(&interrupted.audit_id).unwrap().unwrap().status, CallStatus::Incomplete);
    let (resuming, end) = calls.next(hour() + SignedDuration::from_secs(1));
    let resuming =
        crate::OpenCall { resumes: Some((interrupted.audit_id.clone(), "ada".into())), ..resuming };
    let log = log(home.path());
    drop(log.open(resuming.clone()));
    let before = reader.call(&interrupted.audit_id).unwrap().unwrap();
    assert_eq!((before.status, before.duration_us, before.attempts), (CallStatus::Resumed, None, None));
    assert_eq!(reader.call(&resuming.audit_id).unwrap().unwrap().status, CallStatus::Running);
    drop(log.close(None, end));
    drop(log);
    assert_eq!(
        reader.list(&Filter { status: Some(CallStatus::Incomplete), ..Filter::default() }).unwrap(),
        []
    );
    assert_eq!(reader.entries_of(&interrupted.audit_id).unwrap().len(), 2);
    assert_eq!(reader.entries_of(&resuming.audit_id).unwrap().len(), 2);
    assert_eq!(reader.stats(&Filter::default(), StatsQuery::default()).unwrap().ended(), 2);
}

#[test]
fn incomplete_calls_are_those_of_the_journals() {
    let (home, before) = filled(100);
    let incomplete = Filter { status: Some(CallStatus::Incomplete), ..Filter::default() };
    let wanted: Vec<_> =
        before.0.iter().filter(|row| row.status == CallStatus::Incomplete).cloned().collect();
    for change in ["UPDATE calls SET outcome = 1 WHERE outcome = 0", "UPDATE calls SET outcome = 0"] {
        index_of(home.path()).file.connection.execute(change, []).unwrap();
        let mut reader = reader_of(home.path());
        assert_eq!(reader.list(&incomplete).unwrap(), wanted);
        assert_eq!(reader.call(&wanted[0].audit_id).unwrap().as_ref(), wanted.first());
        assert_eq!(answers(home.path()), before);
    }
}

#[test]
fn a_torn_last_line_is_replaced_by_a_whole_one() {
    let home = tempfile::tempdir().unwrap();
    let (log, mut calls) = (log(home.path()), traffic::Calls::new(8));
    let (open, close) = calls.next(hour());
    drop(log.open(open.clone()));
    let segment = journal_dir(home.path()).join("000000000001.jsonl");
    let begun = fs::read(&segment).unwrap();
    drop(log.close(None, close));
    let whole = fs::read(&segment).unwrap();
    drop(log);
    let mut torn = begun.clone();
    torn.resize(whole.len(), b'x');
    fs::write(&segment, torn).unwrap();
    let mut reader = reader_of(home.path());
    assert!(!reader.call(&open.audit_id).unwrap().unwrap().status.has_end());
    fs::write(&segment, &whole).unwrap();
    assert!(reader.call(&open.audit_id).unwrap().unwrap().status.has_end());
    // A first line that is not whole, and then not there at all.
    fs::write(&segment, &begun[..30]).unwrap();
    remove_index(home.path());
    let mut index = index_of(home.path());
    fs::remove_file(&segment).unwrap();
    index.update().unwrap();
    fs::write(&segment, &whole).unwrap();
    fs::set_permissions(&segment, fs::Permissions::from_mode(0o600)).unwrap();
    index.update().unwrap();
    assert_eq!(answers(home.path()).0.len(), 1);
}
