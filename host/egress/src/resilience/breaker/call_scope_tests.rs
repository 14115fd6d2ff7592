//! Visits without a call: many threads at one circuit, every kind of ending, an unusable directory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cofferdam_core::failure::{AuditId, FailureCause};
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;

use super::*;

const HOST: &str = "api.example.com:443";

fn circuits(dir: &Path) -> Arc<CircuitStore> {
    CircuitStore::new(dir.join("circuits"))
}

fn visit(circuits: &Arc<CircuitStore>) -> BreakerGuard {
    let connector = ConnectorName::parse("github://acme/example").unwrap();
    circuits.call_scope(&connector, &Arc::new(BreakerPolicy::at_once()), &AuditId::mint())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Runs a visit to [`HOST`] that observes this status, and returns the changes.
fn visits(circuits: &Arc<CircuitStore>, second: i64, status: u16) -> Vec<(&'static str, &'static str)> {
    let visit = visit(circuits);
    // The observation of an earlier visit may still be on its way into the file, with its slot held.
    let mut tries = 0..400;
    while visit.admit(HOST, None, at(second)).is_err() {
        assert!(tries.next().is_some(), "it stays shut");
        std::thread::sleep(Duration::from_millis(5));
    }
    let cause = (status >= 400).then(|| FailureCause::from_status(status));
    visit.observe(HOST, cause, cause.map(|_| status), None);
    visit.finish(at(second));
    visit.take_changes().into_iter().map(|change| (change.from, change.to)).collect()
}

/// Threads of two hosts of one home, repeatedly: one probe at a time, and never one after it was decided.
#[test]
fn concurrent_threads_send_one_probe() {
    const THREADS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    // On a busy machine a thread must not look like a suspended process.
    let patient = || CircuitStore::with_patience(dir.path().join("circuits"), Duration::from_secs(1));
    let hosts = [patient(), patient()];
    for round in 0..150_u64 {
        let second = i64::try_from(round).unwrap() * 1_000;
        visits(&hosts[0], second, 503);
        let (barrier, sent, out) = (Barrier::new(THREADS), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (circuits, barrier, sent, out) = (&hosts[thread % 2], &barrier, &sent, &out);
                scope.spawn(move || {
                    barrier.wait();
                    let visit = visit(circuits);
                    if visit.admit(HOST, None, at(second + 30)).is_err() {
                        return;
                    }
                    assert_eq!(out.fetch_add(1, Ordering::SeqCst), 0, "two are out at once");
                    sent.fetch_add(1, Ordering::SeqCst);
                    // Other visits arrive during the probe, or just when it has decided.
                    std::thread::sleep(Duration::from_micros(500 * (round % 3)));
                    // The probe fails, so that later visits find the circuit open and not closed.
                    visit.observe(HOST, Some(FailureCause::Unavailable), Some(503), None);
                    out.fetch_sub(1, Ordering::SeqCst);
                    visit.finish(at(second + 30));
                });
            }
        });
        assert_eq!(sent.load(Ordering::SeqCst), 1, "round {round}");
        assert_eq!(visits(&hosts[1], second + 60, 200), [("open", "half_open"), ("half_open", "closed")]);
    }
}

#[test]
fn a_dropped_scope_releases_its_probe_uncounted() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let dropped = visit(&circuits);
    dropped.admit(HOST, None, at(0)).unwrap();
    dropped.observe(HOST, Some(FailureCause::Unavailable), Some(503), None);
    drop(dropped);
    assert!(circuits.views(at(0)).unwrap().is_empty());

    visits(&circuits, 0, 503);
    let probe = visit(&circuits);
    probe.admit(HOST, None, at(30)).unwrap();
    assert_eq!(visit(&circuits).admit(HOST, None, at(30)).unwrap_err().state, "half_open");
    // A gate's task may still hold a reference to it.
    let gate = Arc::clone(&probe);
    drop(probe);
    gate.observe(HOST, Some(FailureCause::Unavailable), Some(503), None);
    gate.finish(at(30));
    assert!(gate.take_changes().iter().all(|change| change.to == "half_open"));
    assert_eq!(visits(&circuits, 30, 200), [("open", "half_open"), ("half_open", "closed")]);
}

/// A call's later candidates pass the circuits that its earlier ones opened, permanently or not, and retry
/// there; they do not pass those that other calls open meanwhile.
#[test]
fn circuits_opened_by_a_call_stop_only_others() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let connector = ConnectorName::parse("github://acme/example").unwrap();
    let audit_id = AuditId::mint();
    let own = || circuits.call_scope(&connector, &Arc::new(BreakerPolicy::at_once()), &audit_id);
    for status in [503, 402] {
        let first = own();
        first.admit(HOST, Some("api_key/acme x".to_owned()), at(0)).unwrap();
        first.observe(HOST, Some(FailureCause::from_status(status)), Some(status), None);
        first.finish(at(0));
        visit(&circuits).admit(HOST, Some("api_key/acme x".to_owned()), at(0)).unwrap_err();
        // This also holds when a probe is due: the slot is for other calls.
        for second in [0, 30] {
            let next = own();
            next.admit(HOST, Some("api_key/acme x".to_owned()), at(second)).unwrap();
            next.observe(HOST, Some(FailureCause::Unavailable), Some(503), None);
            assert!(!next.forbids_retry(at(second)), "{status}");
            next.finish(at(second));
            assert_eq!(next.take_changes(), [], "{status}");
        }
        let next = own();
        next.admit(HOST, Some("api_key/acme x".to_owned()), at(30)).unwrap();
        next.observe(HOST, Some(FailureCause::Unavailable), Some(503), None);
        circuits.reset(None, None, at(30)).unwrap();
        visits(&circuits, 30, 503);
        assert!(next.forbids_retry(at(30)), "{status}");
        drop(next);
        circuits.reset(None, None, at(30)).unwrap();
    }
}

/// The last observation at a host counts, once, whatever came before.
#[test]
fn the_last_observation_of_each_host_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let visit = visit(&circuits);
    for host in [HOST, "other.example.com:443"] {
        visit.admit(host, None, at(0)).unwrap();
    }
    let trouble = |host| visit.observe(host, Some(FailureCause::Unavailable), Some(503), None);
    trouble(HOST);
    trouble("other.example.com:443");
    visit.observe(HOST, None, None, None);
    assert!(!visit.forbids_retry(at(0)));
    visit.finish(at(0));
    visit.finish(at(0));
    let views = circuits.views(at(0)).unwrap();
    assert_eq!(views.iter().map(|view| view.host.as_str()).collect::<Vec<_>>(), ["other.example.com:443"]);
}

/// Calls continue if a home cannot be written, or if another file is in the way.
#[test]
fn directory_errors_stop_no_call() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("circuits"), "in the way").unwrap();
    let circuits = circuits(dir.path());
    assert_eq!(visits(&circuits, 0, 503), []);
    assert_eq!(visits(&circuits, 0, 200), []);
    assert!(circuits.views(at(0)).is_err());
    assert!(circuits.reset(None, None, at(0)).is_err());
}

/// A reset removes the damaged circuits that it is about, and a damaged database.
#[test]
fn resetting_all_removes_damaged_files() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    visits(&circuits, 0, 503);
    let file = dir.path().join("circuits/circuits.db");
    let table = rusqlite::Connection::open(&file).unwrap();
    table.execute("INSERT INTO circuits VALUES ('github://acme/other', 'damaged:1', '{')", []).unwrap();
    let rows = || table.query_row("SELECT count(*) FROM circuits", [], |row| row.get::<_, u32>(0)).unwrap();
    let reset = circuits.reset(None, Some("other:1"), at(0)).unwrap();
    assert_eq!((reset.closed.len(), reset.damaged_removed), (0, 0));
    assert_eq!((circuits.views(at(0)).unwrap().len(), rows()), (1, 2));
    let reset = circuits.reset(None, None, at(0)).unwrap();
    assert_eq!((reset.closed.len(), reset.damaged_removed), (1, 1));
    assert_eq!((circuits.views(at(0)).unwrap().len(), rows()), (0, 0));
    drop(table);

    // All that a damaged database has had counts as closed.
    fs::write(&file, "no database").unwrap();
    assert!(circuits.views(at(0)).unwrap().is_empty());
    let reset = circuits.reset(None, Some("other:1"), at(0)).unwrap();
    assert_eq!((reset.closed.len(), reset.damaged_removed, file.exists()), (0, 1, false));
}

/// A clock that is set back makes no cooldown longer: the next request is let through.
#[test]
fn a_clock_set_back_allows_the_next_probe() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    visits(&circuits, 1_000_000, 503);
    assert!(visit(&circuits).admit(HOST, None, at(1_000_000)).is_err());
    assert_eq!(visits(&circuits, 0, 200), [("open", "half_open"), ("half_open", "closed")]);
}

/// Another process keeps the write lock: a call with an observation continues at once, holds the slot, and is
/// counted once the lock is free.
#[test]
fn a_held_write_lock_delays_only_the_count() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    visits(&circuits, 0, 503);
    let probe = visit(&circuits);
    probe.admit(HOST, None, at(30)).unwrap();
    probe.observe(HOST, None, None, None);
    let turn = rusqlite::Connection::open(dir.path().join("circuits/circuits.db")).unwrap();
    turn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { probe.finish(at(30)) });
    assert!(probe.take_changes().iter().all(|change| change.to == "half_open"));
    drop(probe);
    assert_eq!(visit(&circuits).admit(HOST, None, at(30)).unwrap_err().state, "half_open");
    drop(turn);
    // Waits for the thread that counts it.
    drop(runtime);
    assert!(circuits.views(at(30)).unwrap().is_empty());
}

/// Observations of other calls during a wait stop the next attempt, also at hosts where the call did not
/// fail.
#[test]
fn each_attempt_is_admitted_separately() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let waits = visit(&circuits);
    waits.admit(HOST, None, at(0)).unwrap();
    waits.observe(HOST, None, None, None);
    visits(&circuits, 0, 503);
    // The requests of one attempt count as one.
    waits.admit(HOST, None, at(0)).unwrap();
    waits.begin_attempt();
    assert_eq!(waits.admit(HOST, None, at(0)).unwrap_err().state, "open");
    let probe = visit(&circuits);
    probe.admit(HOST, None, at(30)).unwrap();
    waits.begin_attempt();
    assert_eq!(waits.admit(HOST, None, at(30)).unwrap_err().state, "half_open");
    drop(probe);
    // It may then be the probe itself, and its observation counts.
    waits.begin_attempt();
    waits.admit(HOST, None, at(30)).unwrap();
    assert_eq!(visit(&circuits).admit(HOST, None, at(30)).unwrap_err().state, "half_open");
    waits.observe(HOST, None, None, None);
    waits.finish(at(30));
    assert!(circuits.views(at(30)).unwrap().is_empty());
}

/// A rejection of a request without a credential blocks no other request, and shows that the host responds.
#[test]
fn a_refusal_without_a_credential_blocks_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    for status in [401, 402] {
        assert_eq!(visits(&circuits, 0, status), []);
        assert!(circuits.views(at(0)).unwrap().is_empty(), "{status}");
        visits(&circuits, 0, 503);
        assert_eq!(visits(&circuits, 30, status), [("open", "half_open"), ("half_open", "closed")]);
    }
}
