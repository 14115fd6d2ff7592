//! Tests of the quota of sealed bytes: the dropped and the kept ones, and that the sums match.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_core::event::recorded::{Ended, EventLine, EventText, Received, RecordedEvent, RecordedKeyEnd};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::LogIndex;
use super::tests::{index_of, journal_dir, log, reader_of, remove_index};
use crate::{
    AuditLog as _, AuditReader as _, CallOutcome, CallStatus, CallTarget, CloseCall, Entry, JournalLog,
    KeyDisposition, OpenCall, Sealed, SealedQuota,
};

const OUTCOME: usize = 3_000;

const AMPLE: u64 = 1 << 30;

fn quota(per_client: u64, in_all: u64) -> SealedQuota {
    SealedQuota { per_client, in_all }
}

fn sealed(bytes: usize) -> Option<Sealed> {
    (bytes > 0).then(|| Sealed::from_bytes(vec![b'x'; bytes]))
}

fn line(seq: u32, event: RecordedEvent<'_>) -> EventText {
    EventLine { at: Timestamp::now(), seq, event }.to_text()
}

/// Begins a call of a client, with a request of so many bytes.
fn begin(log: &JournalLog, client: &str, step: Option<&str>, request: usize) -> AuditId {
    let audit_id = AuditId::mint();
    let received = Received {
        action: step.map(|_| "ship@1.0.0".into()),
        actor: client.into(),
        connector: "github://acme/a@1.0.0".into(),
        op: "b".into(),
        step: step.map(Into::into),
        ..Received::default()
    };
    let route = CallTarget { connector: "".into(), op: "".into(), action: None, step: None };
    let call = OpenCall {
        audit_id: audit_id.clone(),
        at: Timestamp::now(),
        route,
        actor: client.into(),
        idempotent: false,
        key: None,
        resumes: None,
        entry: Entry::new(vec![line(1, RecordedEvent::Received(received))]),
        request: sealed(request),
    };
    drop(log.open(call));
    audit_id
}

fn end(log: &JournalLog, audit_id: &AuditId, key_end: &str) {
    let key_end = Some(RecordedKeyEnd { state: key_end.into(), ..RecordedKeyEnd::default() });
    let ended = Ended { attempts: Some(1), key_end, status: "value".into(), ..Ended::default() };
    drop(log.close(
        None,
        CloseCall {
            audit_id: audit_id.clone(),
            attempts: 1,
            verdict: CallOutcome { status: CallStatus::Value, class: None, code: None },
            key: KeyDisposition::Release,
            entry: Entry::new(vec![line(2, RecordedEvent::Final(ended))]),
            outcome: sealed(OUTCOME),
        },
    ));
}

fn finished(log: &JournalLog, client: &str) -> AuditId {
    let id = begin(log, client, None, 0);
    end(log, &id, "keeps");
    id
}

fn is_kept(home: &Path, id: &AuditId) -> bool {
    reader_of(home).sealed(id).unwrap().1.is_some()
}

/// Returns the sealed bytes of all clients, which are those of the parts that are there.
#[track_caller]
fn usage(home: &Path, index: &mut LogIndex) -> u64 {
    index.update().unwrap();
    let mut reader = reader_of(home);
    let usage: u64 = reader.sealed_usage().unwrap().iter().map(|usage| usage.bytes).sum();
    let rows = reader.list(&crate::Filter::default()).unwrap();
    let mut parts = 0;
    for row in rows {
        let (request, outcome) = reader.sealed(&row.audit_id).unwrap();
        parts += [request, outcome].iter().flatten().map(|sealed| sealed.bytes().len() as u64).sum::<u64>();
    }
    assert_eq!(usage, parts);
    usage
}

#[test]
fn a_clients_oldest_outcomes_go_first() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = log(home);
    let quiet = finished(&log, "quiet");
    let loud: Vec<_> = (0..10).map(|_| finished(&log, "loud")).collect();
    let mut index = index_of(home);
    assert_eq!(usage(home, &mut index), 33_000);
    let outcome = index.enforce_quota(quota(20_000, AMPLE)).unwrap();
    assert_eq!(outcome.dropped, 4);
    assert!(!outcome.is_full("loud") && !outcome.is_full("quiet"));
    let kept: Vec<_> = loud.iter().map(|id| is_kept(home, id)).collect();
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 6);
    assert!(kept.is_sorted() && is_kept(home, &quiet));
    assert_eq!(usage(home, &mut index), 21_000);
    assert_eq!(index.enforce_quota(quota(20_000, AMPLE)).unwrap().dropped, 0);
    // An index that is made again counts what is there.
    remove_index(home);
    assert_eq!(usage(home, &mut index_of(home)), 21_000);
}

#[test]
fn dropped_parts_free_the_disk() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = log(home);
    let ids: Vec<_> = (0..100).map(|_| finished(&log, "a")).collect();
    let mut index = index_of(home);
    let file = journal_dir(home).join("000000000001.sealed");
    let size = || fs::metadata(&file).map(|file| (file.len(), file.blocks() * 512)).unwrap();
    assert!(size().1 >= 300_000);
    assert_eq!(index.enforce_quota(quota(60_000, AMPLE)).unwrap().dropped, 82);
    assert_eq!(size().0, 300_000);
    // Where the file system has holes.
    assert!(size().1 < 80_000 || size().1 >= 300_000, "{:?}", size());
    assert!(is_kept(home, &ids[99]) && !is_kept(home, &ids[81]));
}

#[test]
fn a_running_or_undetermined_call_keeps_its_request() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = log(home);
    let running = begin(&log, "a", None, 12_000);
    let undetermined = begin(&log, "a", None, 0);
    end(&log, &undetermined, "unknown");
    let ended = finished(&log, "a");
    let mut index = index_of(home);
    let outcome = index.enforce_quota(quota(10_000, AMPLE)).unwrap();
    assert_eq!(outcome.dropped, 1);
    assert!(outcome.is_full("a") && !outcome.is_full("b"));
    assert!(!is_kept(home, &ended) && is_kept(home, &undetermined));
    assert!(reader_of(home).sealed(&running).unwrap().0.is_some());
    end(&log, &running, "free");
    index.update().unwrap();
    let outcome = index.enforce_quota(quota(10_000, AMPLE)).unwrap();
    assert!(outcome.dropped == 1 && !outcome.is_full("a"));
    assert_eq!(usage(home, &mut index), 3_000);
}

#[test]
fn the_largest_client_loses_outcomes_first() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = log(home);
    let quiet = finished(&log, "quiet");
    let loud: Vec<_> = (0..20).map(|_| finished(&log, "loud")).collect();
    let mut index = index_of(home);
    assert_eq!(index.enforce_quota(quota(AMPLE, 30_000)).unwrap().dropped, 12);
    assert!(is_kept(home, &quiet) && is_kept(home, &loud[19]) && !is_kept(home, &loud[0]));
    assert_eq!(usage(home, &mut index), 27_000);
    let running = begin(&log, "loud", None, 40_000);
    index.update().unwrap();
    assert!(index.enforce_quota(quota(AMPLE, 30_000)).unwrap().is_full("quiet"));
    assert!(reader_of(home).sealed(&running).unwrap().0.is_some());
}

#[test]
fn step_outcomes_are_dropped_last() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = log(home);
    let step = begin(&log, "a", Some("first"), 0);
    end(&log, &step, "keeps");
    let calls: Vec<_> = (0..10).map(|_| finished(&log, "a")).collect();
    let mut index = index_of(home);
    index.enforce_quota(quota(20_000, AMPLE)).unwrap();
    assert!(is_kept(home, &step) && !is_kept(home, &calls[0]));
    index.enforce_quota(quota(1_000, AMPLE)).unwrap();
    assert!(!is_kept(home, &step));
}
