//! Journals on a real file system: reopened, torn, full, replaced, and written by many threads.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::recorded::{Ended, EventLine, Received, RecordedEvent};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::commit::{AfterCommit, JournalCommitter, allow_waiting};

use super::*;
use crate::entry::Entry;
use crate::hex::hex;
use crate::log::wait;
use crate::log_calls::DateClock;
use crate::seal::Sealed;

impl Journal {
    /// Has the next write fail.
    pub(crate) fn break_segment(&mut self) {
        self.segment.iter_mut().for_each(Segment::break_lines);
    }

    /// Has the next write panic at this failpoint.
    pub(crate) fn panic_at(&mut self, failpoint: &'static str) {
        self.panics_at = Some(failpoint);
    }
}

pub(super) fn panic_if(failpoint: Option<&str>) {
    if failpoint.is_some() {
        std::panic::resume_unwind(Box::new("a failpoint"));
    }
}

/// Takes a free journal, whatever was signed of it: the end that it has.
fn take(root: &Path, settings: JournalSettings) -> Result<Journal, AuditError> {
    let end = |name: String| {
        let dir = root.join(&name);
        let (mut head, mut firsts) = (ChainHead::EMPTY, segments(&dir).unwrap());
        if let Some(first) = firsts.pop() {
            let mut reader = SegmentReader::open(&dir, first).unwrap().unwrap();
            while let Some(read) = reader.next().unwrap() {
                if let (true, Ok(line)) = (read.is_whole, JournalLine::read(read.bytes)) {
                    head = ChainHead::at(line.n, read.bytes);
                }
            }
        }
        (name, head)
    };
    let signed = writer_dir::names(root).unwrap().into_iter().map(end).collect();
    Journal::take(root, settings, &signed)
}

fn small() -> JournalSettings {
    JournalSettings { segment_bytes: 2_000, ..JournalSettings::default() }
}

fn event(seq: u32, event: RecordedEvent<'_>) -> cofferdam_core::event::recorded::EventText {
    EventLine { at: Timestamp::UNIX_EPOCH, seq, event }.to_text()
}

fn begins(id: &AuditId) -> EntryDraft {
    let received = event(1, RecordedEvent::Received(Received { op: "greet".into(), ..Received::default() }));
    EntryDraft::of_call(id, false, &Entry::new(vec![received]))
        .with_sealed(Some(Sealed::from_bytes(b"request".to_vec())))
}

fn ends(id: &AuditId) -> EntryDraft {
    let end = event(2, RecordedEvent::Final(Ended { status: "value".into(), ..Ended::default() }));
    EntryDraft::of_call(id, true, &Entry::new(vec![end]))
}

fn write(journal: &mut Journal, draft: &EntryDraft) {
    journal.write(&mut [&mut draft.clone()], Timestamp::UNIX_EPOCH).unwrap();
}

/// Returns the ids of the calls of the only writer below `root`.
fn calls_in(root: &Path) -> Vec<AuditId> {
    check_chain(&only_writer(root))
}

/// Reads every line of a writer, checks the chain, and returns the calls' ids in order.
pub(super) fn check_chain(dir: &Path) -> Vec<AuditId> {
    let (mut head, mut calls) = (ChainHead::EMPTY, Vec::new());
    for first in segments(dir).unwrap() {
        assert_eq!(first, head.n + 1);
        let mut reader = SegmentReader::open(dir, first).unwrap().unwrap();
        while let Some(read) = reader.next().unwrap() {
            assert!(read.is_whole);
            let line = JournalLine::following(head, read.bytes).unwrap();
            head = head.after(read.bytes);
            calls.extend(line.audit_id.as_deref().map(|id| AuditId::parse(id).unwrap()));
            if let Some(place) = &line.sealed {
                let sealed = fs::read(dir.join(format!("{first:012}.sealed"))).unwrap();
                let at = usize::try_from(place.offset).unwrap();
                let part = &sealed[at..at + usize::try_from(place.bytes).unwrap()];
                assert_eq!(hex(&Sha256::digest(part).into()), place.sha256);
            }
        }
    }
    calls
}

fn only_writer(root: &Path) -> PathBuf {
    let names = writer_dir::names(root).unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    root.join(&names[0])
}

fn newest(root: &Path) -> PathBuf {
    let dir = only_writer(root);
    dir.join(format!("{:012}.jsonl", segments(&dir).unwrap().pop().unwrap()))
}

/// Writes calls that begin and end.
fn write_calls(journal: &mut Journal, count: usize) -> Vec<AuditId> {
    let ids: Vec<_> = (0..count).map(|_| AuditId::mint()).collect();
    for id in &ids {
        write(journal, &begins(id));
        write(journal, &ends(id));
    }
    ids
}

fn twice(ids: &[AuditId]) -> Vec<AuditId> {
    ids.iter().flat_map(|id| [id.clone(), id.clone()]).collect()
}

#[test]
fn a_journal_is_continued_by_the_next_process() {
    let root = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for round in 0..6 {
        let mut journal = take(root.path(), small()).unwrap();
        assert_eq!(journal.head().n > 0, round > 0);
        ids.extend(write_calls(&mut journal, 5));
        // Every other process is killed.
        if round % 2 == 0 {
            journal.release(Timestamp::UNIX_EPOCH).unwrap();
        }
    }
    assert_eq!(calls_in(root.path()), twice(&ids));
    assert!(segments(&only_writer(root.path())).unwrap().len() > 3);
}

#[test]
fn two_processes_write_to_two_journals() {
    let root = tempfile::tempdir().unwrap();
    let one = take(root.path(), small()).unwrap();
    let other = take(root.path(), small()).unwrap();
    assert_ne!(one.dir.name(), other.dir.name());
    assert!(WriterDir::is_held(root.path(), one.dir.name()));
    let name = one.dir.name().to_owned();
    drop(one);
    assert!(!WriterDir::is_held(root.path(), &name));
    assert_eq!(take(root.path(), small()).unwrap().dir.name(), name);
}

#[test]
fn calls_without_an_end_are_known_from_the_newest_segment() {
    let root = tempfile::tempdir().unwrap();
    let [open, resumed, again] = [(); 3].map(|()| AuditId::mint());
    let mut journal = take(root.path(), small()).unwrap();
    write(&mut journal, &begins(&open));
    write(&mut journal, &begins(&resumed));
    write(&mut journal, &begins(&again).resuming(resumed.clone()));
    write_calls(&mut journal, 40);
    let firsts = |journal: &mut Journal| {
        let unended = &journal.unended;
        [&open, &resumed, &again].map(|id| unended.first_entry(id))
    };
    let known = firsts(&mut journal);
    assert_eq!(known, [Some(3), None, Some(5)]);
    let name = journal.writer().to_owned();
    journal.release(Timestamp::UNIX_EPOCH).unwrap();
    // A process that only adds calls leaves it to one that resumes them.
    assert_ne!(take(root.path(), small()).unwrap().writer(), name);
    let dir = WriterDir::try_take(root.path(), &name).unwrap().unwrap();
    let mut journal = Journal::open(dir, small(), None).unwrap().unwrap();
    assert_eq!(firsts(&mut journal), known);
    [&open, &again].into_iter().for_each(|id| write(&mut journal, &ends(id)));
    journal.release(Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(take(root.path(), small()).unwrap().writer(), name);
}

#[test]
fn a_torn_last_line_is_cut_off_and_noted() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), JournalSettings::default()).unwrap();
    let id = AuditId::mint();
    write_calls(&mut journal, 2);
    write(&mut journal, &ends(&id));
    drop(journal);
    let whole = fs::read(newest(root.path())).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for length in last..whole.len() {
        fs::write(newest(root.path()), &whole[..length]).unwrap();
        let mut journal = take(root.path(), JournalSettings::default()).unwrap();
        write(&mut journal, &ends(&id));
        drop(journal);
        assert_eq!(&calls_in(root.path())[4..], std::slice::from_ref(&id));
        let cut = format!("\"cut_bytes\":{}", length - last);
        assert!(fs::read_to_string(newest(root.path())).unwrap().contains(&cut), "{cut}");
    }
}

#[test]
fn a_segment_without_a_line_is_begun_again() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), small()).unwrap();
    let mut ids = twice(&write_calls(&mut journal, 8));
    let next = format!("{:012}.jsonl", journal.head().n + 1);
    drop(journal);
    let first_line = fs::read(only_writer(root.path()).join("000000000001.jsonl")).unwrap();
    for length in [0, 1, 10, 20, 60] {
        let mut options = fs::OpenOptions::new();
        let file =
            options.write(true).create_new(true).mode(0o600).open(only_writer(root.path()).join(&next));
        file.unwrap().write_all(&first_line[..length]).unwrap();
        let journal = take(root.path(), small()).unwrap();
        assert_eq!((journal.untold, calls_in(root.path()).len()), (Some(length as u64), ids.len()));
    }
    let mut journal = take(root.path(), small()).unwrap();
    ids.extend(twice(&write_calls(&mut journal, 8)));
    assert_eq!(calls_in(root.path()), ids);
}

#[test]
fn a_segment_left_by_a_full_disk_is_begun() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), small()).unwrap();
    write_calls(&mut journal, 2);
    let later = Timestamp::from_second(3 * 86_400).unwrap();
    for is_pruned in [true, false] {
        // The file was created, and the write undone.
        let next = journal.head.n + 1;
        let mut segment = Segment::create(journal.dir.path(), next).unwrap();
        segment.begins(Timestamp::UNIX_EPOCH);
        journal.segment = Some(segment);
        match is_pruned {
            true => journal.begin_segment(later).unwrap(),
            false => journal.write(&mut [&mut ends(&AuditId::mint())], later).unwrap(),
        }
        assert_eq!(segments(&only_writer(root.path())).unwrap().last(), Some(&next));
    }
    assert_eq!(calls_in(root.path()).len(), 2 * 2 + 1);
}

#[test]
fn a_damaged_journal_is_left_and_another_begun() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), JournalSettings::default()).unwrap();
    write_calls(&mut journal, 2);
    let (name, head) = (journal.writer().to_owned(), journal.head());
    drop(journal);
    let path = newest(root.path());
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    // In the hash that the last line names.
    let at = damaged.len() - 20;
    damaged[at] ^= 1;
    let signed = BTreeMap::from([(name, head)]);
    for bytes in [damaged, vec![0; 4_096], b"{}\n".to_vec(), b"{}".to_vec()] {
        fs::write(&path, &bytes).unwrap();
        let other = Journal::take(root.path(), JournalSettings::default(), &signed).unwrap();
        let is_empty = bytes.is_empty();
        assert_ne!(other.dir.path(), path.parent().unwrap(), "{is_empty}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "it is evidence");
        fs::remove_dir_all(other.dir.path()).unwrap();
    }
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let ids = [(); 3].map(|()| AuditId::mint());
    let mut journal = take(root.path(), JournalSettings::default()).unwrap();
    write(&mut journal, &begins(&ids[0]));
    // The open file can neither be written nor cut: the entry goes to a new segment.
    journal.break_segment();
    assert!(journal.write(&mut [&mut begins(&ids[1])], Timestamp::UNIX_EPOCH).is_err());
    ids[1..].iter().for_each(|id| write(&mut journal, &begins(id)));
    assert_eq!(calls_in(root.path()), ids);
    assert_eq!(segments(&only_writer(root.path())).unwrap().len(), 2);
}

#[test]
fn a_replaced_or_foreign_file_gets_no_entry() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), JournalSettings::default()).unwrap();
    write(&mut journal, &begins(&AuditId::mint()));
    let path = newest(root.path());
    let copy = fs::read(&path).unwrap();
    let refused = |journal: &mut Journal| {
        let error = journal.write(&mut [&mut begins(&AuditId::mint())], Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(error.kind(), AuditErrorKind::Replaced, "{error}");
    };
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    refused(&mut journal);
    let mut journal = take(&root.path().join("other"), JournalSettings::default()).unwrap();
    write(&mut journal, &begins(&AuditId::mint()));
    let path = newest(&root.path().join("other"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, &copy).unwrap();
    refused(&mut journal);
}

/// The files of segments that ended since the last signature, and of segments that a killed process wrote.
#[test]
fn ended_segments_are_synced_before_a_signature() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), small()).unwrap();
    write_calls(&mut journal, 12);
    let dir = only_writer(root.path());
    let firsts = segments(&dir).unwrap();
    let (newest, ended) = firsts.split_last().unwrap();
    assert!(ended.len() > 2 && ended[2] > ended[1] + 1, "{firsts:?}");
    let files = |firsts: &[u64]| -> Vec<PathBuf> {
        let of = |first: &u64| ["jsonl", "sealed"].map(|ending| dir.join(format!("{first:012}.{ending}")));
        firsts.iter().flat_map(of).collect()
    };
    assert_eq!(journal.ended_files().unwrap(), files(ended));
    journal.note_synced(ended[1]);
    assert_eq!(journal.ended_files().unwrap(), files(&ended[1..]));
    journal.note_synced(newest - 1);
    assert_eq!(journal.ended_files().unwrap(), files(&[]));
    drop(journal);
    let name = dir.file_name().unwrap().to_str().unwrap();
    let dir = WriterDir::try_take(root.path(), name).unwrap().unwrap();
    let journal = Journal::open(dir, small(), Some(ChainHead::EMPTY)).unwrap().unwrap();
    assert_eq!(journal.ended_files().unwrap(), files(ended));
    journal.sync().unwrap();
}

/// A failure of the disk is reported to the thread that writes an entry, and to the one that signs.
#[test]
fn signing_uses_open_files_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let mut journal = take(root.path(), JournalSettings::default()).unwrap();
    write(&mut journal, &begins(&AuditId::mint()));
    let files = journal.files().unwrap();
    assert_eq!(files.len(), 3);
    for file in files {
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::APPEND), "{flags:?}");
    }
}

#[test]
fn a_journal_without_its_lock_or_sealed_file_is_not_signed_for() {
    for name in ["lock", "000000000001.sealed"] {
        let root = tempfile::tempdir().unwrap();
        let mut journal = take(root.path(), JournalSettings::default()).unwrap();
        write(&mut journal, &begins(&AuditId::mint()));
        assert!(journal.files().is_ok());
        let path = newest(root.path()).with_file_name(name);
        let copy = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, copy).unwrap();
        assert_eq!(journal.files().unwrap_err().kind(), AuditErrorKind::Replaced, "{name}");
    }
}

#[test]
fn entries_of_many_threads_are_written_once() {
    let root = tempfile::tempdir().unwrap();
    let journal = take(root.path(), small()).unwrap();
    let committer = JournalCommitter::new(journal, Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let calls = runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let committer = Arc::clone(&committer);
            callers.spawn(async move {
                for _ in 0..50 {
                    let id = AuditId::mint();
                    committer.commit(vec![begins(&id)], Box::new(|_| ()), None).await.unwrap();
                    drop(committer.commit(vec![ends(&id)], Box::new(|_| ()), None));
                }
            });
        }
        callers.join_all().await.len()
    });
    assert_eq!((calls, calls_in(root.path()).len()), (64, 64 * 50 * 2));
    committer.with_journal(|journal| assert!(journal.unended.is_empty()));
}

/// A committer to a journal with this many open calls, and the number of its writes so far. One of them panics.
fn busy(
    root: &Path,
    calls: usize,
    panics_at: Option<usize>,
) -> (Arc<JournalCommitter>, Vec<AuditId>, Arc<AtomicUsize>) {
    let mut journal = take(root, JournalSettings::default()).unwrap();
    let ids: Vec<_> = (0..calls).map(|_| AuditId::mint()).collect();
    ids.iter().for_each(|id| write(&mut journal, &begins(id)));
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    // Each write asks for the time once.
    let time = move || {
        if Some(counted.fetch_add(1, Ordering::SeqCst)) == panics_at {
            std::panic::resume_unwind(Box::new("no time"));
        }
        Timestamp::UNIX_EPOCH
    };
    (JournalCommitter::new(journal, Arc::new(DateClock(time))), ids, writes)
}

/// The results of commits that are asked for while another thread commits the end of the first call.
fn while_committing(
    committer: &Arc<JournalCommitter>,
    ids: &[AuditId],
    mut done: impl FnMut(usize) -> AfterCommit,
) -> Vec<Result<(), AuditError>> {
    let ((started_tx, started_rx), (resume_tx, resume_rx)) = (channel(), channel());
    let stops: AfterCommit = Box::new(move |_| {
        started_tx.send(()).unwrap();
        resume_rx.recv().unwrap();
    });
    std::thread::scope(|scope| {
        let own = Arc::clone(committer);
        let first = scope.spawn(move || wait(own.commit(vec![ends(&ids[0])], stops, None)));
        started_rx.recv().unwrap();
        let end = |(at, id)| committer.commit(vec![ends(id)], done(at), None);
        let others: Vec<_> = ids.iter().enumerate().skip(1).map(end).collect();
        resume_tx.send(()).unwrap();
        let results = others.into_iter().map(wait).collect();
        // It may have panicked.
        drop(first.join());
        results
    })
}

#[test]
fn one_write_has_the_entries_of_all_that_wait() {
    let root = tempfile::tempdir().unwrap();
    let (committer, ids, writes) = busy(root.path(), 64, None);
    let results = while_committing(&committer, &ids, |_| Box::new(|_| ()));
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(writes.load(Ordering::SeqCst), 2);
    committer.with_journal(|journal| assert!(journal.unended.is_empty()));
}

#[test]
fn a_panic_of_one_caller_is_not_the_others_failure() {
    let root = tempfile::tempdir().unwrap();
    let (committer, ids, writes) = busy(root.path(), 4, None);
    let told = Arc::new(AtomicUsize::new(0));
    let results = while_committing(&committer, &ids, |at| match at {
        2 => Box::new(|_| std::panic::resume_unwind(Box::new("no thread"))),
        _ => {
            let told = Arc::clone(&told);
            Box::new(move |_| _ = told.fetch_add(1, Ordering::SeqCst))
        }
    });
    assert!(matches!(results[..], [Ok(()), Ok(()), Ok(())]), "{results:?}");
    assert_eq!((told.load(Ordering::SeqCst), writes.load(Ordering::SeqCst)), (2, 2));
    committer.with_journal(|journal| assert!(journal.unended.is_empty()));
}

#[test]
fn callers_hear_of_a_panic_of_the_thread_that_writes() {
    let root = tempfile::tempdir().unwrap();
    let (committer, ids, _) = busy(root.path(), 4, Some(1));
    let results = while_committing(&committer, &ids, |_| Box::new(|_| ()));
    assert!(matches!(results[..], [Err(_), Err(_), Err(_)]), "{results:?}");
    wait(committer.commit(vec![ends(&ids[1])], Box::new(|_| ()), None)).unwrap();
}

/// A runtime catches the panic, and its thread makes other commits.
#[test]
fn a_thread_may_not_wait_after_a_panic() {
    let root = tempfile::tempdir().unwrap();
    let settings = JournalSettings { durability: Durability::Power, ..JournalSettings::default() };
    let committer = JournalCommitter::new(take(root.path(), settings).unwrap(), Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _runtime = runtime.enter();
    let panics = || allow_waiting::<()>(|| std::panic::resume_unwind(Box::new("no disk")));
    assert!(catch_unwind(panics).is_err());
    let (wrote, writer) = channel();
    let done: AfterCommit = Box::new(move |_| wrote.send(std::thread::current().id()).unwrap());
    wait(committer.commit(vec![begins(&AuditId::mint())], done, None)).unwrap();
    assert_ne!(writer.recv().unwrap(), std::thread::current().id());
}

/// While calls follow each other, something always waits to be written.
#[test]
fn a_thread_with_other_work_leaves_what_follows() {
    let root = tempfile::tempdir().unwrap();
    let settings = JournalSettings { durability: Durability::Power, ..JournalSettings::default() };
    let committer = JournalCommitter::new(take(root.path(), settings).unwrap(), Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _runtime = runtime.enter();
    let (wrote, writers) = channel();
    let own = Arc::clone(&committer);
    let done: AfterCommit = Box::new(move |_| {
        wrote.send(std::thread::current().id()).unwrap();
        let done: AfterCommit = Box::new(move |_| wrote.send(std::thread::current().id()).unwrap());
        drop(own.commit(vec![begins(&AuditId::mint())], done, None));
    });
    wait(allow_waiting(|| committer.commit(vec![begins(&AuditId::mint())], done, None))).unwrap();
    let [first, second] = [(); 2].map(|()| writers.recv().unwrap());
    let this = std::thread::current().id();
    assert!(first == this && second != this, "{first:?} and {second:?}, not {this:?}");
    committer.finish();
    assert_eq!(calls_in(root.path()).len(), 2);
}
