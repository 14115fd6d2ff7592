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
    circuits.visit(&connector, &Arc::new(BreakerPolicy::at_once()), &AuditId::mint())
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
    visit.saw(HOST, cause, cause.map(|_| status), None);
    visit.settle(at(second));
    visit.take_changes().into_iter().map(|change| (change.from, change.to)).collect()
}

/// Threads of two hosts of one home, repeatedly: one probe at a time, and never one after it was decided.
#[test]
fn many_threads_at_a_half_open_circuit_are_one_probe() {
    const THREADS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    let hosts = [circuits(dir.path()), circuits(dir.path())];
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
                    visit.saw(HOST, Some(FailureCause::Unavailable), Some(503), None);
                    out.fetch_sub(1, Ordering::SeqCst);
                    visit.settle(at(second + 30));
                });
            }
        });
        assert_eq!(sent.load(Ordering::SeqCst), 1, "round {round}");
        assert_eq!(visits(&hosts[1], second + 60, 200), [("open", "half_open"), ("half_open", "closed")]);
    }
}

#[test]
fn what_is_dropped_without_being_settled_lets_go_and_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let dropped = visit(&circuits);
    dropped.admit(HOST, None, at(0)).unwrap();
    dropped.saw(HOST, Some(FailureCause::Unavailable), Some(503), None);
    drop(dropped);
    assert!(circuits.views(at(0)).unwrap().is_empty());

    visits(&circuits, 0, 503);
    let probe = visit(&circuits);
    probe.admit(HOST, None, at(30)).unwrap();
    assert_eq!(visit(&circuits).admit(HOST, None, at(30)).unwrap_err().state, "half_open");
    // A gate's task may still hold a reference to it.
    let gate = Arc::clone(&probe);
    drop(probe);
    gate.saw(HOST, Some(FailureCause::Unavailable), Some(503), None);
    gate.settle(at(30));
    assert!(gate.take_changes().iter().all(|change| change.to == "half_open"));
    assert_eq!(visits(&circuits, 30, 200), [("open", "half_open"), ("half_open", "closed")]);
}

/// A call's later candidates pass the circuits that its earlier ones opened, permanently or not, and retry
/// there; they do not pass those that other calls open meanwhile.
#[test]
fn what_a_call_opened_itself_stops_the_others_alone() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let connector = ConnectorName::parse("github://acme/example").unwrap();
    let audit_id = AuditId::mint();
    let own = || circuits.visit(&connector, &Arc::new(BreakerPolicy::at_once()), &audit_id);
    for status in [503, 402] {
        let first = own();
        first.admit(HOST, Some("api_key/acme x".to_owned()), at(0)).unwrap();
        first.saw(HOST, Some(FailureCause::from_status(status)), Some(status), None);
        first.settle(at(0));
        visit(&circuits).admit(HOST, Some("api_key/acme x".to_owned()), at(0)).unwrap_err();
        // This also holds when a probe is due: the slot is for other calls.
        for second in [0, 30] {
            let next = own();
            next.admit(HOST, Some("api_key/acme x".to_owned()), at(second)).unwrap();
            next.saw(HOST, Some(FailureCause::Unavailable), Some(503), None);
            assert!(!next.forbids_retry(at(second)), "{status}");
            next.settle(at(second));
            assert_eq!(next.take_changes(), [], "{status}");
        }
        let next = own();
        next.admit(HOST, Some("api_key/acme x".to_owned()), at(30)).unwrap();
        next.saw(HOST, Some(FailureCause::Unavailable), Some(503), None);
        circuits.reset(None, None, at(30)).unwrap();
        visits(&circuits, 30, 503);
        assert!(next.forbids_retry(at(30)), "{status}");
        drop(next);
        circuits.reset(None, None, at(30)).unwrap();
    }
}

/// The last observation at a host counts, once, whatever came before.
#[test]
fn the_last_sight_of_each_host_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let visit = visit(&circuits);
    for host in [HOST, "other.example.com:443"] {
        visit.admit(host, None, at(0)).unwrap();
    }
    let trouble = |host| visit.saw(host, Some(FailureCause::Unavailable), Some(503), None);
    trouble(HOST);
    trouble("other.example.com:443");
    visit.saw(HOST, None, None, None);
    assert!(!visit.forbids_retry(at(0)));
    visit.settle(at(0));
    visit.settle(at(0));
    let views = circuits.views(at(0)).unwrap();
    assert_eq!(views.iter().map(|view| view.host.as_str()).collect::<Vec<_>>(), ["other.example.com:443"]);
}

/// Calls continue if a home cannot be written, or if another file is in the way.
#[test]
fn trouble_with_the_directory_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("circuits"), "in the way").unwrap();
    let circuits = circuits(dir.path());
    assert_eq!(visits(&circuits, 0, 503), []);
    assert_eq!(visits(&circuits, 0, 200), []);
    assert!(circuits.views(at(0)).is_err());
    assert!(circuits.reset(None, None, at(0)).is_err());
}

/// Only a reset of everything removes damaged files.
#[test]
fn a_reset_of_all_clears_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    visits(&circuits, 0, 503);
    let damaged = dir.path().join("circuits/damaged.json");
    fs::write(&damaged, "{").unwrap();
    assert_eq!(circuits.reset(None, Some("other:1"), at(0)).unwrap().closed, []);
    assert_eq!((circuits.views(at(0)).unwrap().len(), damaged.exists()), (1, true));
    let reset = circuits.reset(None, None, at(0)).unwrap();
    assert_eq!((reset.closed.len(), reset.damaged_removed), (1, 1));
    assert_eq!((circuits.views(at(0)).unwrap().len(), damaged.exists()), (0, false));
}

/// A clock that is set back makes no cooldown longer: the next request is let through.
#[test]
fn a_clock_that_was_set_back_lets_the_next_one_try() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    visits(&circuits, 1_000_000, 503);
    assert!(visit(&circuits).admit(HOST, None, at(1_000_000)).is_err());
    assert_eq!(visits(&circuits, 0, 200), [("open", "half_open"), ("half_open", "closed")]);
}

/// Another process keeps the write lock: a call with an observation continues at once, holds the slot, and is
/// counted once the lock is free.
#[test]
fn nobody_waits_for_the_turn_and_what_was_seen_is_counted_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    visits(&circuits, 0, 503);
    let probe = visit(&circuits);
    probe.admit(HOST, None, at(30)).unwrap();
    probe.saw(HOST, None, None, None);
    let turn = fs::File::open(dir.path().join("circuits/lock")).unwrap();
    turn.lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { probe.settle(at(30)) });
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
fn each_attempt_is_admitted_anew() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    let waits = visit(&circuits);
    waits.admit(HOST, None, at(0)).unwrap();
    waits.saw(HOST, None, None, None);
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
    waits.saw(HOST, None, None, None);
    waits.settle(at(30));
    assert!(circuits.views(at(30)).unwrap().is_empty());
}

/// A rejection of a request without a credential blocks no other request, and shows that the host responds.
#[test]
fn a_refusal_of_nobody_shuts_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let circuits = circuits(dir.path());
    for status in [401, 402] {
        assert_eq!(visits(&circuits, 0, status), []);
        assert!(circuits.views(at(0)).unwrap().is_empty(), "{status}");
        visits(&circuits, 0, 503);
        assert_eq!(visits(&circuits, 30, status), [("open", "half_open"), ("half_open", "closed")]);
    }
}
