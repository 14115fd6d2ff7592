//! Lost connections and servers that end: what was acknowledged is there, once, and what was not may be written again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_audit::{
    AuditErrorKind, AuditLog as _, CallStatus, CloseCall, Entry, Filter, KeyDisposition, KeyState, OpenCall,
    OpenOutcome, Sealed, wait,
};

use super::super::PostgresLog;
use super::support::*;

/// Runs calls until `is_over`, several at once, and returns how many were acknowledged.
fn run_until(log: &PostgresLog, is_over: &AtomicBool) -> usize {
    std::thread::scope(|scope| {
        let work = |of: usize| {
            let mut done = 0_usize;
            while !is_over.load(Ordering::SeqCst) {
                let key = format!("{of}-{done}-{:p}", log);
                let call = call(done.is_multiple_of(2).then_some(&*key), false);
                let opened = retried(|| log.open(call.clone()));
                assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
                let end = value(&call);
                retried(|| log.close(None, end.clone()));
                done += 1;
            }
            done
        };
        let threads: Vec<_> = (0..4).map(|of| scope.spawn(move || work(of))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// All calls are there once, with a value, and the log holds.
fn check(cluster: &Cluster, log: &PostgresLog, acknowledged: usize) {
    assert!(acknowledged > 0);
    let rows = log.reader().unwrap().list(&Filter::default()).unwrap();
    assert_eq!(rows.len(), acknowledged);
    assert!(rows.iter().all(|row| row.status == CallStatus::Value), "{rows:?}");
    let found = cluster.findings(log);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn cut_connections_lose_and_double_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let hosts = [cluster.host("a"), cluster.host("b")];
    let is_over = AtomicBool::new(false);
    let acknowledged: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = hosts.iter().map(|log| scope.spawn(|| run_until(log, &is_over))).collect();
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(100));
            cluster.cut();
        }
        is_over.store(true, Ordering::SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    check(&cluster, &hosts[0], acknowledged);
}

#[test]
fn a_server_that_crashes_loses_and_doubles_nothing() {
    let Some(mut cluster) = Cluster::alone() else { return };
    let log = cluster.host("a");
    let is_over = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let calls = scope.spawn(|| run_until(&log, &is_over));
        for kills in [true, false, true] {
            std::thread::sleep(Duration::from_millis(700));
            match kills {
                true => cluster.server().kill(),
                false => cluster.server().stop(),
            }
            std::thread::sleep(Duration::from_millis(300));
            cluster.server().start_again();
        }
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::SeqCst);
        calls.join().unwrap()
    });
    check(&cluster, &log, acknowledged);
}

/// A call whose beginning could not be acknowledged is not run, and its end is recorded once the database is back.
#[test]
fn what_fails_is_not_begun_and_ends_later() {
    let Some(mut cluster) = Cluster::alone() else { return };
    let log = cluster.host("a");
    let (first, second) = (call(Some("k"), false), call(None, true));
    assert!(matches!(open(&log, &first), OpenOutcome::Started));
    cluster.server().stop();
    assert!(wait(log.open(second.clone())).is_err());
    let late = value(&first);
    assert!(wait(log.close(None, late.clone())).is_err());
    cluster.server().start_again();
    retried(|| log.close(None, late.clone()));
    retried(|| log.flush());
    let mut reader = log.reader().unwrap();
    assert_eq!(reader.call(&first.audit_id).unwrap().unwrap().status, CallStatus::Value);
    assert!(reader.call(&second.audit_id).unwrap().is_none());
    assert!(matches!(state(&log, "k"), cofferdam_audit::KeyState::Done { .. }));
    assert!(cluster.findings(&log).is_empty());
}

/// Returns true if a transaction with this statement is committed on the server, and waits for a standby to confirm it.
fn awaits_standby(cluster: &Cluster, statement: &str) -> bool {
    let select = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE";
    cluster.psql(&format!("{select} '{statement}%'")) != "0"
}

/// Has commits wait for a standby that does not exist. A commit is durable before it waits for one, and is confirmed to
/// no client.
fn miss_standby(cluster: &Cluster) {
    cluster.psql("ALTER SYSTEM SET synchronous_standby_names = 'missing'");
    cluster.psql("SELECT pg_reload_conf()");
    // The server applies the setting some time later. The renewals of the lease show when.
    until(|| awaits_standby(cluster, "UPDATE cofferdam.processes"));
}

/// The call ends while the database is away, when it is not known whether its beginning was committed. It was.
#[test]
fn an_end_waits_for_a_beginning_in_doubt() {
    let Some(mut cluster) = Cluster::alone() else { return };
    let log = cluster.host("a");
    // From here on the process has a journal, so that the append is the next write of its session.
    run_call(&log, &call(None, true));

    miss_standby(&cluster);
    let begun = call(Some("k"), false);
    let opening = log.open(begun.clone());
    until(|| awaits_standby(&cluster, "SELECT cofferdam.append"));
    cluster.psql("ALTER SYSTEM RESET synchronous_standby_names");
    cluster.server().stop();
    assert!(wait(opening).is_err(), "the reply is lost");

    // The runtime ends such a call without its last event, which did not happen, and its beginning claims no key.
    let earlier = begun.entry.events()[..2].to_vec();
    let refused = OpenCall { entry: Entry::new(earlier), ..begun.clone() };
    let end = end(&refused, CallStatus::Refused, KeyDisposition::Release);
    let end = CloseCall { attempts: 0, outcome: None, ..end };
    let begin = Box::new(OpenCall { key: None, ..refused });
    assert!(wait(log.close(Some(begin), end)).is_err(), "the database is away");

    cluster.server().start_again();
    retried(|| log.flush());
    assert!(matches!(state(&log, "k"), KeyState::Free));
    run_call(&log, &call(Some("k"), false));
    let mut reader = log.reader().unwrap();
    assert_eq!(reader.call(&begun.audit_id).unwrap().unwrap().status, CallStatus::Refused);
    let entries = reader.entries_of(&begun.audit_id).unwrap();
    let events: Vec<_> = entries.iter().flat_map(|entry| entry.events().unwrap()).collect();
    let events: Vec<_> = events.iter().map(|event| (event.seq, &*event.name)).collect();
    assert_eq!(events, [(1, "received"), (2, "admitted"), (3, "attempt_started"), (4, "final")]);
    let found = cluster.findings(&log);
    assert!(found.is_empty(), "{found:#?}");
}

/// It says so in time, and finds out later that the beginning of the call was committed.
#[test]
fn without_a_standby_the_log_is_unavailable() {
    let Some(cluster) = Cluster::alone() else { return };
    let log = cluster.host("a");
    run_call(&log, &call(None, true));
    miss_standby(&cluster);
    let (begun, other) = (call(Some("k"), false), call(None, true));
    for call in [&begun, &other] {
        let asked = Instant::now();
        let refused = wait(log.open(call.clone())).unwrap_err();
        assert_eq!(refused.kind(), AuditErrorKind::Unreachable, "{refused}");
        assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    }
    cluster.psql("ALTER SYSTEM RESET synchronous_standby_names");
    cluster.psql("SELECT pg_reload_conf()");
    for call in [&begun, &other] {
        let opened = retried(|| log.open(call.clone()));
        assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
        let end = value(call);
        retried(|| log.close(None, end.clone()));
    }
    let entries = log.reader().unwrap().entries_of(&begun.audit_id).unwrap();
    assert_eq!(entries.len(), 2, "its beginning is there once: {entries:?}");
    check(&cluster, &log, 3);
}

/// Another process has taken the journal, and given it back, as one does that resumes a call of it.
#[test]
fn a_call_of_a_lost_journal_runs_until_its_end() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let running = call(Some("k"), true);
    assert!(matches!(open(&log, &running), OpenOutcome::Started));
    cluster.psql("UPDATE cofferdam.writers SET holder = gen_random_uuid(), epoch = epoch + 1");
    // The next write finds it.
    run_call(&log, &call(None, true));
    assert!(matches!(state(&log, "k"), KeyState::Running { .. }));
    let opened = open(&log, &call(Some("k"), true));
    assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{opened:?}");
    assert!(matches!(open(&log, &resuming(&running)), OpenOutcome::AlreadyResolved));
    assert_eq!(log.reader().unwrap().call(&running.audit_id).unwrap().unwrap().status, CallStatus::Running);

    let refused = wait(log.close(None, value(&running))).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::Replaced);
    assert_eq!(
        log.reader().unwrap().call(&running.audit_id).unwrap().unwrap().status,
        CallStatus::Incomplete
    );
    run_call(&log, &call(Some("k"), true));
    assert!(matches!(state(&log, "k"), KeyState::Done { .. }));
    let found = cluster.findings(&log);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_full_database_begins_and_loses_nothing() {
    let Some(cluster) = Cluster::alone() else { return };
    let log = cluster.host("a");
    let large = || Some(Sealed::from_bytes(vec![7; 1 << 20]));
    let early = call(Some("early"), false);
    assert!(matches!(open(&log, &early), OpenOutcome::Started));
    cluster.postgres.limit_files(Some(17_000_001));
    let mut begun = vec![early.clone()];
    let refused = loop {
        let mut next = call(None, true);
        next.request = large();
        match wait(log.open(next.clone())) {
            Ok(_) => begun.push(next),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), AuditErrorKind::Full, "{refused:?}");
    assert!((10..20).contains(&begun.len()), "{} calls", begun.len());
    let mut late = value(&early);
    late.outcome = large();
    let refused = wait(log.close(None, late.clone())).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::Full, "{refused:?}");

    cluster.postgres.limit_files(None);
    retried(|| log.close(None, late.clone()));
    for call in &begun[1..] {
        close(&log, value(call));
    }
    check(&cluster, &log, begun.len());
    assert!(matches!(state(&log, "early"), cofferdam_audit::KeyState::Done { .. }));
}
