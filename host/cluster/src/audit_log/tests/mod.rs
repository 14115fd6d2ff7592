//! The audit log in a real PostgreSQL: by one host, by several, by processes that are killed, and over lost connections.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod approvals;
mod faults;
mod processes;
mod support;
mod verified;

use std::sync::Arc;

use cofferdam_audit::{
    ActionSet, AuditErrorKind, AuditLog, CallOutcome, CallStatus, CloseCall, Entry, Filter, HistoryQuery,
    HistoryStep, JournalLog, KeyClaim, KeyDisposition, KeyState, LogSettings, OpenCall, OpenOutcome,
    OperatorEventFilter, PruneBlocker, StatsQuery, wait,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::digest::Digest;
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};
use cofferdam_core::event::recorded::{Ended, EventLine, RecordedEvent, UnknownEvent};
use cofferdam_core::failure::FailureClass;
use cofferdam_test_support::traffic;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::PostgresLog;
use support::*;

#[test]
fn calls_are_written_and_found() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    assert_eq!(log.reader().err().map(|it| it.kind()), Some(AuditErrorKind::Absent));
    let calls: Vec<_> = (0..3).map(|_| call(None, true)).collect();
    for call in &calls {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
        assert!(matches!(open(&log, call), OpenOutcome::Started), "it is open already");
        drop(log.append(&call.audit_id, Entry::new(Vec::new())));
    }
    close(&log, value(&calls[0]));
    close(&log, end(&calls[1], CallStatus::Failure, KeyDisposition::Release));
    let mut reader = log.reader().unwrap();
    let rows = reader.list(&Filter::default()).unwrap();
    let statuses: Vec<_> = rows.iter().map(|row| (row.audit_id.clone(), row.status)).collect();
    let expected = [CallStatus::Running, CallStatus::Failure, CallStatus::Value];
    let expected: Vec<_> =
        calls.iter().rev().zip(expected).map(|(call, status)| (call.audit_id.clone(), status)).collect();
    assert_eq!(statuses, expected);
    let failed = reader.list(&Filter { failed: true, ..Filter::default() }).unwrap();
    assert_eq!(failed.len(), 1);
    let before = Filter { before: Some(calls[2].audit_id.clone()), limit: 1, ..Filter::default() };
    assert_eq!(reader.list(&before).unwrap()[0].audit_id, calls[1].audit_id);
    let of_other = Filter { connector: Some("github://acme/other".into()), ..Filter::default() };
    assert!(reader.list(&of_other).unwrap().is_empty());
    let of_this = Filter { connector: Some("github://acme/a".into()), ..Filter::default() };
    assert_eq!(reader.list(&of_this).unwrap().len(), 3);
    let of_actor = |name: &str| Filter { actor: Some(name.into()), ..Filter::default() };
    assert_eq!(reader.list(&of_actor("ada")).unwrap().len(), 3);
    assert!(reader.list(&of_actor("bob")).unwrap().is_empty());
    let of_bob = reader.stats(&of_actor("bob"), StatsQuery::default()).unwrap();
    assert_eq!((of_bob.running, of_bob.groups.len()), (0, 0));
    let entries = reader.entries_of(&calls[0].audit_id).unwrap();
    assert_eq!(entries.len(), 2);
    for entry in &entries {
        let hash = "SELECT encode(sha256(convert_to(line, 'UTF8')), 'hex') FROM cofferdam.entries";
        let stored = cluster.psql(&format!("{hash} WHERE writer = '{}' AND n = {}", entry.writer, entry.n));
        assert_eq!(stored, entry.sha256());
    }
    let (request, outcome) = reader.sealed(&calls[0].audit_id).unwrap();
    assert_eq!(request.unwrap().bytes(), b"the request");
    assert_eq!(outcome.unwrap().bytes(), b"the outcome");
    let stats = reader.stats(&Filter::default(), StatsQuery::default()).unwrap();
    assert_eq!((stats.running, stats.incomplete, stats.groups.len()), (1, 0, 2));
    let mut position = reader.end().unwrap();
    assert_eq!(log.end().unwrap(), position);
    close(&log, value(&calls[2]));
    let ended = reader.ended_after(&mut position, 10).unwrap();
    assert_eq!(ended.iter().map(|row| &row.audit_id).collect::<Vec<_>>(), [&calls[2].audit_id]);
    assert!(reader.ended_after(&mut position, 10).unwrap().is_empty());
    assert_eq!(reader.sealed_usage().unwrap()[0].bytes, 3 * 22);
    drop(reader);
    assert!(cluster.findings(&log).is_empty());
    assert_eq!(log.reindex(&mut |_, _| ()).unwrap(), cluster.count("entries"));
    assert_eq!(log.reader().unwrap().list(&Filter::default()).unwrap().len(), 3);
}

/// Each step finds that another host has written meanwhile.
#[test]
fn calls_are_listed_while_hosts_write() {
    let Some(cluster) = Cluster::start() else { return };
    let (log, other) = (cluster.host("a"), Arc::new(cluster.host("b")));
    assert!(matches!(open(&log, &call(None, true)), OpenOutcome::Started));
    let running = log.running().unwrap();
    let (shared, writing) = (Arc::clone(&running.shared), Arc::clone(&other));
    let steps = running.spawn(async move {
        let (mut session, mut steps) = (shared.pool.get().await?, 0);
        let mut write = |_: u64| {
            steps += 1;
            if steps < 20 {
                assert!(matches!(open(&writing, &call(None, true)), OpenOutcome::Started));
            }
        };
        super::calls::fill(session.client(), &mut write).await?;
        session.give_back();
        Ok(steps)
    });
    assert!(wait(steps).unwrap() <= 1);
}

#[test]
fn usage_is_counted_after_an_older_version() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let (begun, ended) = traffic::Calls::new(1).next(Timestamp::now());
    assert!(matches!(open(&log, &begun), OpenOutcome::Started));
    close(&log, ended);
    let query = StatsQuery { usage: true, ..StatsQuery::default() };
    let usage = |log: &super::PostgresLog| {
        let mut groups = log.reader().unwrap().stats(&Filter::default(), query).unwrap().groups;
        groups.remove(0).usage.unwrap()
    };
    let requests = |log: &super::PostgresLog| log.reader().unwrap().requests(&Filter::default()).unwrap();
    let (before, requested) = (usage(&log), requests(&log));
    let [fuel, .., bytes, largest] = &before.used;
    assert_eq!((fuel.count(), largest.count(), before.limits[2]), (1, 1, 30_000));
    assert!(largest.max() > Some(0) && largest.max() < bytes.max());
    drop(log);
    cluster.psql(
        "ALTER TABLE cofferdam.calls DROP COLUMN largest_responses, DROP COLUMN request_connectors, \
         DROP COLUMN request_hosts, DROP COLUMN request_kinds, DROP COLUMN request_counts; \
         DROP INDEX cofferdam.calls_of_key; \
         DELETE FROM cofferdam.migrations WHERE name = '0005_requests'",
    );
    let log = cluster.host("a");
    assert_eq!((usage(&log), requests(&log)), (before, requested));
}

#[test]
fn requests_are_counted_as_in_a_home() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let home = tempfile::tempdir().unwrap();
    let alone = JournalLog::new(home.path(), LogSettings::default(), Arc::new(SystemClock));
    let mut calls = traffic::Calls::new(3);
    for _ in 0..60 {
        let (begun, ended) = calls.next(Timestamp::now());
        // An attempt of a fallback, which is another connector.
        let requests = json!([{"host": "b.example:443", "method": "POST", "status": 500}]);
        let attempt = json!({"attempt": 2, "connector": "github://acme/other@1.0.0", "requests": requests});
        let payload = serde_json::value::to_raw_value(&attempt).unwrap();
        let event = RecordedEvent::Unknown(UnknownEvent { name: "attempt_ended".into(), payload });
        let fallback = Entry::new(vec![EventLine { at: begun.at, seq: 9, event }.to_text()]);
        for log in [&log as &dyn AuditLog, &alone] {
            assert!(matches!(wait(log.open(begun.clone())).unwrap(), OpenOutcome::Started));
            wait(log.append(&begun.audit_id, fallback.clone())).unwrap();
            wait(log.close(None, ended.clone())).unwrap();
        }
    }
    let counted = |log: &dyn AuditLog, filter: &Filter| {
        let mut sums = log.reader().unwrap().requests(filter).unwrap();
        sums.sort_by_key(|sum| (sum.connector.clone(), sum.op.clone(), sum.host.clone(), sum.kind));
        sums
    };
    let all = counted(&log, &Filter::default());
    assert!(all.len() > 10, "{all:?}");
    let of = |connector: &str| Filter { connector: Some(connector.to_owned()), ..Filter::default() };
    let (own, name) = (&all[0].connector, all[0].connector.split('@').next().unwrap());
    let later = Filter { since: Some(Timestamp::now() + SignedDuration::from_hours(2)), ..Filter::default() };
    let other = of("github://acme/other");
    let fallbacks: u64 = counted(&log, &other).iter().map(|sum| sum.requests).sum();
    assert_eq!(fallbacks, 60);
    for (filter, is_empty) in
        [(Filter::default(), false), (of(own), false), (of(name), false), (other, false), (later, true)]
    {
        let sums = counted(&log, &filter);
        assert_eq!((&sums, sums.is_empty()), (&counted(&alone, &filter), is_empty), "{filter:?}");
    }
}

#[test]
fn calls_are_found_by_their_idempotency_key() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let calls = [call(Some("order-1"), true), call(None, true), call(Some("order-2"), true)];
    for call in &calls {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
    }
    let mut reader = log.reader().unwrap();
    let mut found = |key: &str, limit: usize| {
        let mut filter = Filter { limit, ..Filter::default() };
        assert!(filter.select_key(key), "{key}");
        let rows = reader.list(&filter).unwrap().into_iter();
        rows.map(|row| row.audit_id).collect::<Vec<_>>()
    };
    let hash = Digest::sha256(b"order-2");
    assert_eq!(found("order-1", 0), [calls[0].audit_id.clone()]);
    assert_eq!(found(&format!("sha256:{hash}"), 1), [calls[2].audit_id.clone()]);
    assert!(found("order-3", 0).is_empty());
    let index = "SELECT indexdef FROM pg_indexes WHERE indexname = 'calls_of_key'";
    assert!(cluster.psql(index).contains("WHERE (key IS NOT NULL)"));
}

#[test]
fn the_pages_of_an_operator_read_the_shared_log() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let calls: Vec<_> = (0..3).map(|_| call(None, true)).collect();
    for call in &calls {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
    }
    let failed = |call: &OpenCall, class: FailureClass| {
        let (status, class) = (CallStatus::Failure, Some(class.name()));
        let ended = Ended { status: status.name().into(), class: class.map(Into::into), ..Ended::default() };
        let line = EventLine { at: call.at, seq: 4, event: RecordedEvent::Final(ended) }.to_text();
        CloseCall {
            verdict: CallOutcome { status, class, code: None },
            entry: Entry::new(vec![line]),
            ..end(call, status, KeyDisposition::Release)
        }
    };
    close(&log, value(&calls[0]));
    close(&log, failed(&calls[1], FailureClass::HashMismatch));
    close(&log, failed(&calls[2], FailureClass::ConnectorRuntimeError));
    let mut reader = log.reader().unwrap();
    let now = Timestamp::now();
    let since = now - SignedDuration::from_hours(2);
    let history = HistoryQuery { since, until: now, step: HistoryStep::Hour };
    let parts = reader.history(&Filter::default(), history).unwrap();
    let mut groups: Vec<_> = parts.iter().flat_map(|part| &part.groups).collect();
    groups.sort_by_key(|group| group.class.clone());
    let counted: Vec<_> =
        groups.iter().map(|group| (group.class.as_deref(), &*group.name, group.calls)).collect();
    // A class of several boundaries has none here.
    let [boundary] = FailureClass::HashMismatch.boundaries() else { panic!() };
    let expected = [
        (None, "", 1),
        (Some("connector_runtime_error"), "", 1),
        (Some("hash_mismatch"), boundary.name(), 1),
    ];
    assert_eq!(counted, expected);
    let storage = reader.storage().unwrap();
    assert!(
        [storage.entries_bytes, storage.sealed_bytes, storage.index_bytes].iter().all(|bytes| *bytes > 0)
    );
    let micros = |at: Timestamp| at.as_microsecond();
    assert_eq!(storage.oldest.map(micros), Some(micros(calls[0].at)));
    assert_eq!(reader.requests(&Filter::default()).unwrap(), [], "these calls had none");
}

#[test]
fn a_key_is_claimed_once_over_all_hosts() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other) = (cluster.host("a"), cluster.host("b"));
    let first = call(Some("k"), false);
    assert!(matches!(state(&one, "k"), KeyState::Free));
    assert!(matches!(open(&one, &first), OpenOutcome::Started));
    for log in [&one, &other] {
        assert!(matches!(state(log, "k"), KeyState::Running { .. }));
        let opened = open(log, &call(Some("k"), false));
        assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{opened:?}");
    }
    close(&one, value(&first));
    for log in [&one, &other] {
        let KeyState::Done { audit_id, outcome, .. } = state(log, "k") else { panic!() };
        assert_eq!((audit_id, outcome.unwrap().bytes()), (first.audit_id.clone(), &b"the outcome"[..]));
        let different = KeyClaim { fingerprint: [8; 32], ..claim("k") };
        assert!(matches!(wait(log.key_state(different)).unwrap(), KeyState::Different { .. }));
        let opened = open(log, &call(Some("k"), false));
        assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Done { .. })), "{opened:?}");
    }
    assert!(cluster.findings(&one).is_empty());
}

#[test]
fn a_released_key_is_free_and_an_unknown_one_is_not() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other) = (cluster.host("a"), cluster.host("b"));
    for log in [&one, &other, &one] {
        let call = call(Some("k"), false);
        assert!(matches!(open(log, &call), OpenOutcome::Started));
        close(log, end(&call, CallStatus::Failure, KeyDisposition::Release));
    }
    let unknown = call(Some("k"), false);
    assert!(matches!(open(&one, &unknown), OpenOutcome::Started));
    close(&one, end(&unknown, CallStatus::Failure, KeyDisposition::Undetermined));
    assert!(matches!(state(&other, "k"), KeyState::Unknown { .. }));
    assert_eq!(
        other.reader().unwrap().undecided_keys(None).unwrap(),
        std::slice::from_ref(&unknown.audit_id)
    );
    assert!(skip(&other, &unknown, false), "it stays taken");
    assert!(matches!(state(&one, "k"), KeyState::Unknown { .. }));
    assert!(skip(&one, &unknown, true), "a second review may know better");
    assert!(matches!(state(&other, "k"), KeyState::Free));
    assert!(!skip(&other, &unknown, true), "nothing is left to decide");
    assert!(cluster.findings(&other).is_empty());
}

/// No process holds the journal of the call whose key is decided about, before or after.
#[test]
fn a_decision_about_a_key_takes_no_journal() {
    let Some(cluster) = Cluster::start() else { return };
    let (gone, one, other) = (cluster.host("a"), cluster.host("b"), cluster.host("c"));
    let unknown = call(Some("unknown"), false);
    assert!(matches!(open(&gone, &unknown), OpenOutcome::Started));
    close(&gone, end(&unknown, CallStatus::Failure, KeyDisposition::Undetermined));
    assert!(matches!(open(&gone, &call(Some("again"), true)), OpenOutcome::Started));
    cluster.psql("UPDATE cofferdam.processes SET is_released = true");
    assert!(skip(&one, &unknown, true));
    assert!(matches!(state(&other, "unknown"), KeyState::Free));
    assert!(matches!(state(&other, "again"), KeyState::Free), "it may be repeated by any host");
}

/// Both claim each key at the same time, many at once.
#[test]
fn keys_that_hosts_race_for_are_one_hosts() {
    let Some(cluster) = Cluster::start() else { return };
    let hosts = [cluster.host("a"), cluster.host("b"), cluster.host("c")];
    let keys: Vec<_> = (0..60).map(|n| format!("key-{n}")).collect();
    let started: Vec<usize> = std::thread::scope(|scope| {
        let race = |log: &super::PostgresLog| {
            let opened: Vec<_> = keys.iter().map(|key| log.open(call(Some(key), false))).collect();
            let outcomes: Vec<_> = opened.into_iter().map(|opened| wait(opened).unwrap()).collect();
            outcomes.iter().filter(|outcome| matches!(outcome, OpenOutcome::Started)).count()
        };
        let threads: Vec<_> = hosts.iter().map(|log| scope.spawn(move || race(log))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(started.iter().sum::<usize>(), keys.len(), "{started:?}");
    assert_eq!(cluster.count("keys"), 60);
    assert!(cluster.findings(&hosts[0]).is_empty());
}

/// The caller has gone while its call was to begin.
#[test]
fn a_call_that_never_began_has_no_end() {
    let Some(cluster) = Cluster::start() else { return };
    let (first, second) = (cluster.host("a"), cluster.host("b"));
    assert!(matches!(open(&first, &call(Some("k"), false)), OpenOutcome::Started));
    let late = call(Some("k"), false);
    // Both are there before the session is.
    let opening = second.open(late.clone());
    let closing = second.close(None, end(&late, CallStatus::Cancelled, KeyDisposition::Release));
    assert!(matches!(wait(opening).unwrap(), OpenOutcome::KeyInUse(KeyState::Running { .. })));
    assert!(wait(closing).is_err());
    assert!(second.reader().unwrap().entries_of(&late.audit_id).unwrap().is_empty());
    assert!(matches!(state(&first, "k"), KeyState::Running { .. }));
}

#[test]
fn outcomes_expire_by_the_clock_of_the_database() {
    let Some(cluster) = Cluster::start() else { return };
    // Hosts whose clocks are ten minutes apart from the database's, one on each side.
    let (behind, ahead) = (cluster.host_at("a", -600), cluster.host_at("b", 600));
    for (log, other, key) in [(&behind, &ahead, "a"), (&ahead, &behind, "b")] {
        let call = call(Some(key), false);
        assert!(matches!(open(log, &call), OpenOutcome::Started));
        let now = Cluster::clock_of(log);
        close(
            log,
            end(&call, CallStatus::Value, KeyDisposition::Retain(now + SignedDuration::from_secs(60))),
        );
        for log in [log, other] {
            assert!(matches!(state(log, key), KeyState::Done { .. }), "{key}");
        }
    }
    cluster.psql("UPDATE cofferdam.keys SET expires = clock_timestamp() - interval '1 second'");
    assert!(matches!(state(&ahead, "a"), KeyState::Free));
    assert!(matches!(open(&behind, &call(Some("b"), false)), OpenOutcome::Started));
}

/// Records a call whose value is kept for an hour, and returns it.
fn keep_for_an_hour(log: &PostgresLog, clock: &HandClock, key: &str) -> OpenCall {
    let kept = call_at(Some(key), false, clock.now());
    assert!(matches!(open(log, &kept), OpenOutcome::Started));
    let until = clock.now() + SignedDuration::from_hours(1);
    close(log, end(&kept, CallStatus::Value, KeyDisposition::Retain(until)));
    kept
}

#[test]
fn no_key_expires_by_a_clock_that_leaps() {
    let Some(cluster) = Cluster::start() else { return };
    let clock = cluster.manual_clock();
    let log = cluster.host_with_clock("a", &clock);
    keep_for_an_hour(&log, &clock, "k");
    clock.advance(SignedDuration::from_hours(20));
    assert!(matches!(state(&log, "k"), KeyState::Free), "an hour has passed");
    keep_for_an_hour(&log, &clock, "l");
    clock.advance(SignedDuration::from_hours(24 * 30));
    assert!(matches!(state(&log, "l"), KeyState::Done { .. }), "a leap is not believed");
    assert!(!wait(log.time()).unwrap().is_believed);
    accept_clock(&log, clock.now());
    assert!(matches!(state(&log, "l"), KeyState::Free), "the operator accepted it");
    clock.advance(SignedDuration::from_hours(-24 * 30));
    let refused = wait(log.key_state(claim("l"))).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::ClockBehind);
    assert!(matches!(open(&log, &call(None, true)), OpenOutcome::Started), "calls without a key go on");
}

#[test]
fn a_leap_that_was_set_back_lets_no_outcome_go() {
    let Some(cluster) = Cluster::start() else { return };
    let clock = cluster.manual_clock();
    let log = cluster.host_with_clock("a", &clock);
    let kept = keep_for_an_hour(&log, &clock, "k");
    clock.advance(SignedDuration::from_hours(24 * 30));
    accept_clock(&log, clock.now());
    clock.advance(SignedDuration::from_hours(-24 * 30));
    let before = clock.now() + SignedDuration::from_mins(1);
    let stop = wait(log.prune(before, true, "ada".into())).unwrap().stopped.unwrap();
    assert_eq!((stop.why, stop.audit_id), (PruneBlocker::KeyStands, Some(kept.audit_id)));
}

#[test]
fn an_action_holds_the_keys_of_its_steps() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other) = (cluster.host("a"), cluster.host("b"));
    let action = |key: &str| {
        let of = action_scope("act@1", &["k/one", "k/two"]);
        let key = KeyClaim { of, ..claim(key) };
        OpenCall { key: Some(key), ..call(Some("k"), false) }
    };
    let stranger = call(Some("k/one"), false);
    assert!(matches!(open(&other, &stranger), OpenOutcome::Started));
    let refused = open(&one, &action("k"));
    assert!(matches!(refused, OpenOutcome::KeyInUse(KeyState::Different { .. })), "{refused:?}");
    close(&other, end(&stranger, CallStatus::Failure, KeyDisposition::Release));
    let begun = action("k");
    assert!(matches!(open(&one, &begun), OpenOutcome::Started));
    assert!(matches!(open(&other, &action("k")), OpenOutcome::KeyInUse(KeyState::Running { .. })));
    close(&one, value(&begun));
    assert!(matches!(open(&other, &action("k")), OpenOutcome::KeyInUse(KeyState::Done { .. })));
}

/// Their outcomes may have been kept for longer, by another setting or by a clock that was ahead.
#[test]
fn steps_stand_no_longer_than_their_action() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let old = Timestamp::now() - SignedDuration::from_hours(4);
    let (begun, step) = (run_at(old), step_at(old));
    for call in [&begun, &step] {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
    }
    close(&log, value(&step));
    let until = old + SignedDuration::from_hours(1);
    close(&log, end(&begun, CallStatus::Value, KeyDisposition::Retain(until)));
    for call in [run_at(Timestamp::now()), step_at(Timestamp::now())] {
        let opened = open(&log, &call);
        assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
    }
    assert_eq!(cluster.findings(&log), []);
}

#[test]
fn a_host_of_another_home_has_another_name() {
    let Some(cluster) = Cluster::start() else { return };
    let first = cluster.host("twin");
    assert!(matches!(open(&first, &call(None, true)), OpenOutcome::Started));
    let second = cluster.other_home("twin");
    let refused = wait(second.open(call(None, true))).unwrap_err();
    assert!(refused.to_string().contains("\"twin\""), "{refused}");
    assert!(refused.fix().contains("[cluster] host"), "{}", refused.fix());
    assert!(wait(second.ready()).is_err());
    drop(first);
    // Its host is gone: the name is free.
    let third = cluster.other_home("twin");
    assert!(matches!(open(&third, &call(None, true)), OpenOutcome::Started));
}

#[test]
fn old_calls_are_removed_with_a_signed_statement() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let old = Timestamp::now() - SignedDuration::from_hours(240);
    let run = |at, key: Option<&str>| {
        let call = call_at(key, false, at);
        run_call(&log, &call);
        call
    };
    let gone: Vec<_> = (0..5).map(|_| run(old, None)).collect();
    let kept = run(old, Some("k"));
    let young = run(Timestamp::now(), None);
    let before = Timestamp::now() - SignedDuration::from_hours(24);
    let dry = wait(log.prune(before, true, "ada".into())).unwrap();
    assert_eq!((dry.calls, cluster.count("calls") > 0), (5, true));
    assert_eq!(dry.stopped.and_then(|stop| stop.audit_id), Some(kept.audit_id.clone()));
    let pruned = wait(log.prune(before, false, "ada".into())).unwrap();
    assert_eq!((pruned.calls, pruned.entries), (dry.calls, dry.entries));
    let mut reader = log.reader().unwrap();
    assert!(reader.call(&gone[0].audit_id).unwrap().is_none());
    assert!(
        reader.call(&kept.audit_id).unwrap().is_some() && reader.call(&young.audit_id).unwrap().is_some()
    );
    assert!(cluster.findings(&log).is_empty());
    let changes = reader.operator_events(&OperatorEventFilter::default()).unwrap();
    assert!(changes.len() == 1 && changes[0].event.before.is_some(), "{changes:?}");
    // A journal without its beginning goes on, also in the next process.
    drop((reader, log));
    let log = cluster.host("a");
    assert!(matches!(open(&log, &call(None, true)), OpenOutcome::Started));
    assert!(cluster.findings(&log).is_empty());
}

/// The run that goes on with it is younger than the steps that are done.
#[test]
fn an_action_that_goes_on_keeps_its_older_steps() {
    for is_interrupted in [true, false] {
        let Some(cluster) = Cluster::start() else { return };
        let (gone, log) = (cluster.host("a"), cluster.host("b"));
        let old = Timestamp::now() - SignedDuration::from_hours(240);
        let (begun, step) = (run_at(old), step_at(old));
        for call in [&begun, &step] {
            assert!(matches!(open(&gone, call), OpenOutcome::Started));
        }
        close(&gone, value(&step));
        if !is_interrupted {
            close(&gone, end(&begun, CallStatus::Failure, KeyDisposition::Release));
        }
        wait(gone.sign()).unwrap();
        cluster.psql("UPDATE cofferdam.processes SET is_released = true");
        cluster.psql(
            "UPDATE cofferdam.keys SET expires = clock_timestamp() - interval '1 minute' WHERE state = 1",
        );
        let opened = open(&log, &call(Some("k/one"), true));
        assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Done { .. })), "{opened:?}");
        assert!(matches!(open(&log, &run_at(Timestamp::now())), OpenOutcome::Started));
        let before = Timestamp::now() - SignedDuration::from_hours(24);
        let pruned = wait(log.prune(before, false, "ada".into())).unwrap();
        let stop = pruned.stopped.unwrap();
        assert_eq!((stop.why, stop.audit_id), (PruneBlocker::KeyStands, Some(step.audit_id)));
    }
}

/// They stay, and would be taken for those of a run that failed.
#[test]
fn steps_of_a_pruned_action_are_not_done() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let begun = run_at(Timestamp::now() - SignedDuration::from_hours(240));
    let step = step_at(Timestamp::now());
    for call in [&begun, &step] {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
    }
    for call in [&step, &begun] {
        close(&log, value(call));
    }
    cluster.psql("UPDATE cofferdam.keys SET expires = clock_timestamp() - interval '1 minute'");
    let before = Timestamp::now() - SignedDuration::from_hours(24);
    assert_eq!(wait(log.prune(before, false, "ada".into())).unwrap().calls, 1);
    assert!(cluster.findings(&log).is_empty());
    // Another call has the expired key, and gives it back.
    let other = call(Some("k"), true);
    assert!(matches!(open(&log, &other), OpenOutcome::Started));
    close(&log, end(&other, CallStatus::Failure, KeyDisposition::Release));
    for call in [run_at(Timestamp::now()), step_at(Timestamp::now())] {
        let opened = open(&log, &call);
        assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
    }
}

#[test]
fn a_journal_that_was_pruned_as_a_whole_goes_on() {
    let Some(cluster) = Cluster::start() else { return };
    let (log, ended) = (cluster.host("a"), cluster.host("b"));
    assert!(matches!(open(&log, &call(None, true)), OpenOutcome::Started));
    run_call(&ended, &call_at(None, true, Timestamp::now() - SignedDuration::from_hours(240)));
    drop(ended);
    let before = Timestamp::now() - SignedDuration::from_hours(24);
    assert_eq!(wait(log.prune(before, false, "ada".into())).unwrap().calls, 1);
    assert_eq!(cluster.psql("SELECT count(DISTINCT writer) FROM cofferdam.entries"), "1");
    let next = cluster.host("c");
    assert!(matches!(open(&next, &call(None, true)), OpenOutcome::Started));
    assert_eq!(cluster.count("writers"), 2);
    assert!(cluster.findings(&next).is_empty());
}

#[test]
fn calls_by_a_clock_that_was_behind_stay_their_time() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let hours_ago = |hours| Timestamp::now() - SignedDuration::from_hours(hours);
    for hours in [100, 300] {
        run_call(&log, &call_at(None, false, hours_ago(hours)));
    }
    let pruned = wait(log.prune(hours_ago(200), false, "ada".into())).unwrap();
    assert_eq!((pruned.calls, pruned.stopped.is_none()), (0, true), "{pruned:?}");
    let pruned = wait(log.prune(hours_ago(50), false, "ada".into())).unwrap();
    assert_eq!(pruned.calls, 2);
    assert!(pruned.since < pruned.until && pruned.since < Some(hours_ago(250)), "{pruned:?}");
    assert!(cluster.findings(&log).is_empty());
}

#[test]
fn operator_changes_are_selected_by_action() {
    use OperatorAction::{Approve, Bind, Trust};
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    for action in [Trust, Bind, Approve] {
        wait(log.record(Timestamp::now(), OperatorEvent { action, ..OperatorEvent::default() })).unwrap();
    }
    let mut reader = log.reader().unwrap();
    let mut selected = |actions: ActionSet, limit: usize| -> Vec<OperatorAction> {
        let filter = OperatorEventFilter { actions, limit, ..OperatorEventFilter::default() };
        reader.operator_events(&filter).unwrap().into_iter().map(|change| change.event.action).collect()
    };
    assert_eq!(selected(ActionSet::default(), 0), [Approve, Bind, Trust]);
    assert_eq!(selected(ActionSet::Only(vec![Trust]), 1), [Trust]);
    assert_eq!(selected(ActionSet::Except(vec![Approve]), 1), [Bind]);
}

#[test]
fn parts_of_tables_are_dropped_as_a_whole() {
    let Some(cluster) = Cluster::start() else { return };
    let clock = cluster.manual_clock();
    clock.set("2025-03-05T00:00:00Z".parse().unwrap());
    let log = cluster.host_with_clock("a", &clock);
    let run = || run_call(&log, &call_at(None, false, clock.now()));
    (0..3).for_each(|_| run());
    let parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'cofferdam.entries'::regclass";
    assert_eq!(cluster.psql(parts), "2", "the month, and the one after it");
    for _ in 0..6 {
        clock.advance(SignedDuration::from_hours(23 * 5));
        run();
    }
    let had: u32 = cluster.psql(parts).parse().unwrap();
    let before = clock.now() - SignedDuration::from_hours(24);
    assert_eq!(wait(log.prune(before, false, "ada".into())).unwrap().calls, 8);
    let has: u32 = cluster.psql(parts).parse().unwrap();
    assert!(has < had, "{has} of {had}");
    assert!(cluster.findings(&log).is_empty());
}

#[test]
fn the_quota_of_sealed_bytes_drops_the_oldest() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host_with_quota("a", 200);
    let calls: Vec<_> = (0..20).map(|_| call(None, true)).collect();
    for call in &calls {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
        close(&log, value(call));
    }
    let has_dropped =
        || cluster.psql("SELECT coalesce(sum(length(part)), 0) < 200 FROM cofferdam.sealed") == "t";
    until(has_dropped);
    let mut reader = log.reader().unwrap();
    assert_eq!(reader.sealed(&calls[0].audit_id).unwrap(), (None, None));
    assert!(reader.sealed(&calls[19].audit_id).unwrap().1.is_some());
    assert!(cluster.findings(&log).is_empty());
}
