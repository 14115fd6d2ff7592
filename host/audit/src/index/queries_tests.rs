//! Tests: every filter finds what a look at each call finds, no query goes through a whole table, and what is counted
//! once is what is counted anew.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use cofferdam_test_support::traffic;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rusqlite::Connection;

use super::find::Scan;
use super::read::Reader;
use super::{rollup, schema};
use crate::{AuditReader as _, CallRow, CallStatus, Filter, Histogram, LogSettings, Stats};

const CALLS: usize = 20_000;

/// One audit log for all tests here; no test writes to it.
fn home() -> PathBuf {
    static HOME: OnceLock<(tempfile::TempDir, Vec<CallRow>)> = OnceLock::new();
    let (dir, _) = HOME.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        traffic::fill(dir.path(), CALLS, 3, until());
        (dir, Vec::new())
    });
    dir.path().to_owned()
}

/// Its end: not on the hour.
fn until() -> Timestamp {
    "2024-11-22T11:30:00Z".parse().unwrap()
}

fn reader() -> Reader {
    Reader::open(&home().join("audit.db"), home().join("running")).unwrap()
}

/// Every call, from one pass through the table.
fn all() -> &'static [CallRow] {
    static ALL: OnceLock<Vec<CallRow>> = OnceLock::new();
    ALL.get_or_init(|| {
        let rows = reader().list(&Filter::default()).unwrap();
        assert_eq!(rows.len(), CALLS);
        assert!(rows.is_sorted_by(|a, b| a.audit_id.as_str() > b.audit_id.as_str()));
        assert_eq!(rows.iter().filter(|row| row.incomplete).count(), traffic::INCOMPLETE);
        rows
    })
}

/// Returns true if the filter matches this call, according to the documentation of the filter.
fn fits(filter: &Filter, row: &CallRow) -> bool {
    let same = |asked: &Option<String>, own: &Option<String>| asked.is_none() || asked == own;
    let name = row.connector.split('@').next().unwrap();
    let failed = !matches!(row.status, CallStatus::Value | CallStatus::Running);
    (!filter.failed || failed)
        && filter.status.is_none_or(|status| status == row.status && !row.incomplete)
        && (!filter.incomplete || row.incomplete)
        && same(&filter.class, &row.class)
        && same(&filter.code, &row.code)
        && filter.connector.as_ref().is_none_or(|asked| *asked == row.connector || asked == name)
        && filter.op.as_ref().is_none_or(|asked| *asked == row.op)
        && same(&filter.action, &row.action)
        && filter.since.is_none_or(|since| row.at >= since)
        && filter.until.is_none_or(|until| row.at < until)
        && filter.before.as_ref().is_none_or(|before| row.audit_id.as_str() < before.as_str())
}

fn one_of<T: Clone + std::fmt::Debug + 'static>(all: Vec<T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.4, proptest::sample::select(all))
}

fn texts(all: &[&str]) -> impl Strategy<Value = Option<String>> + use<> {
    one_of(all.iter().map(ToString::to_string).collect())
}

prop_compose! {
    fn filters()(
        failed in proptest::bool::weighted(0.2),
        incomplete in proptest::bool::weighted(0.1),
        status in one_of(CallStatus::ALL.to_vec()),
        class in texts(&["network_error", "hash_mismatch", "never"]),
        code in texts(&["timeout", "busy", "hash", "never"]),
        connector in texts(&["github://acme/c00", "github://acme/c00@1.1.0", "github://acme/c19", "never"]),
        op in texts(&["op_0", "op_4", "rare", "never"]),
        action in texts(&["action-0", "action-16", "never"]),
        since in proptest::option::weighted(0.3, 0i64..80 * 3600),
        until in proptest::option::weighted(0.3, 0i64..80 * 3600),
        before in proptest::option::weighted(0.2, 0..CALLS),
        // So that several of the others seldom exclude each other.
        kept in 0u32..6,
    ) -> Filter {
        let at = |ago: i64| until_moment(ago);
        let mut filter = Filter { since: since.map(at), until: until.map(at), ..Filter::default() };
        filter.before = before.map(|at| all()[at].audit_id.clone());
        match kept {
            0 => Filter { failed, connector, op, ..filter },
            1 => Filter { status, connector, action, ..filter },
            2 => Filter { class, code, op, ..filter },
            3 => Filter { incomplete, op, connector, ..filter },
            4 => Filter { failed, class, action, ..filter },
            _ => Filter { failed, incomplete, status, class, code, connector, op, action, ..filter },
        }
    }
}

fn until_moment(seconds_before: i64) -> Timestamp {
    until() - SignedDuration::from_secs(seconds_before)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_filter_matches_a_scan_of_all_calls(filter in filters(), limit in 1usize..60) {
        let mut reader = reader();
        let wanted: Vec<_> = all().iter().filter(|row| fits(&filter, row)).cloned().collect();
        let first: Vec<_> = wanted.iter().take(limit).cloned().collect();
        prop_assert_eq!(reader.list(&Filter { limit, ..filter.clone() }).unwrap(), first);
        // And page by page all of them, if they are not very many.
        if wanted.len() > 2_000 {
            return Ok(());
        }
        let mut pages: Vec<CallRow> = Vec::new();
        let size = (wanted.len() / 3).max(1);
        loop {
            let before = pages.last().map(|row| row.audit_id.clone()).or_else(|| filter.before.clone());
            let page = reader.list(&Filter { before, limit: size, ..filter.clone() }).unwrap();
            if page.is_empty() {
                break;
            }
            pages.extend(page);
        }
        prop_assert_eq!(pages, wanted);
    }

    #[test]
    fn statistics_match_the_calls(filter in filters()) {
        let stats = reader().stats(&filter).unwrap();
        prop_assert_eq!(stats, counted(&filter, all()));
    }
}

/// The statistics, from a look at each call.
fn counted(filter: &Filter, rows: &[CallRow]) -> Stats {
    let hour = |at: Timestamp| at.as_second().div_euclid(3600) * 3600;
    let second = |second| Timestamp::from_second(second).unwrap();
    let since = filter.since.map(|since| second(hour(since)));
    let end =
        |until: Timestamp| if hour(until) == until.as_second() { hour(until) } else { hour(until) + 3600 };
    let until = filter.until.map(|until| second(end(until)));
    let whole = Filter { since, until, before: None, ..filter.clone() };
    let mut stats = Stats { since, until, ..Stats::default() };
    let mut groups = BTreeMap::<_, (u64, Histogram)>::new();
    for row in rows {
        // Those that run and those that were cut short have one status here, and are told apart after it.
        if row.status == CallStatus::Running {
            let open = Filter { incomplete: false, status: None, ..whole.clone() };
            let asked =
                (filter.status.is_none() || filter.status == Some(CallStatus::Running)) && !filter.failed;
            if asked && fits(&open, row) {
                *if row.incomplete { &mut stats.incomplete } else { &mut stats.running } += 1;
            }
        } else if fits(&whole, row) {
            let key = (row.connector.clone(), row.status.number(), row.class.clone());
            let (calls, durations) = groups.entry(key).or_default();
            *calls += 1;
            durations.record(row.duration_us.unwrap());
        }
    }
    let group = |((connector, status, class), (calls, durations))| crate::StatsGroup {
        connector,
        status: CallStatus::ALL[usize::from(status)],
        class,
        calls,
        durations,
    };
    stats.groups = groups.into_iter().map(group).collect();
    stats.groups.sort_by_key(|group| std::cmp::Reverse(group.calls));
    stats
}

#[test]
fn no_query_scans_a_whole_table() {
    let connection = schema::open_to_read(&home().join("audit.db")).unwrap();
    let scans =
        [Scan::All, Scan::Open, Scan::Route(1), Scan::Verdict(2), Scan::Pair { verdict: 2, route: 1 }];
    let queries = scans.iter().map(|scan| scan.select()).chain(super::read::QUERIES).chain(rollup::QUERIES);
    for query in queries {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let count = explain.parameter_count();
        let params = rusqlite::params_from_iter((0..count).map(|_| 1));
        let steps = explain.query_map(params, |row| row.get::<_, String>(3)).unwrap();
        for step in steps.map(Result::unwrap) {
            // Open calls are few, and asked for all together.
            let open = step.contains("calls_open");
            assert!(open || !step.starts_with("SCAN calls"), "{query}: {step}");
            assert!(
                open || !step.starts_with("SCAN entries") && !step.starts_with("SCAN rollup"),
                "{query}: {step}"
            );
            assert!(!step.contains("TEMP B-TREE"), "{query}: {step}");
        }
    }
}

#[test]
fn rollups_match_a_recount() {
    let dir = tempfile::tempdir().unwrap();
    traffic::fill(dir.path(), 6_000, 2, until());
    let path = dir.path().join("audit.db");
    let connection = schema::open(&path, &LogSettings::default()).unwrap();
    let stats = || {
        let mut reader = Reader::open(&path, dir.path().join("running")).unwrap();
        reader.stats(&Filter { since: Some(until_moment(30 * 3600)), ..Filter::default() }).unwrap()
    };
    let rows = |table: &str| {
        let count = format!("SELECT count(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert!(rows("rollup") > 0, "the writer counts");
    let before = stats();
    assert!(before.ended() > 3_000, "{before:?}");
    // All of it, at once.
    while rollup::is_behind(&connection, 0).unwrap() {
        rollup::advance(&connection, Timestamp::now(), 1_000).unwrap();
    }
    assert_eq!(stats(), before);
    assert!(rollup::recount(&connection).unwrap());
    // None of it.
    connection.execute_batch("UPDATE rolled SET upto = zeroblob(16); DELETE FROM rollup").unwrap();
    assert_eq!(stats(), before);
    // Pruned calls are no longer counted.
    rollup::advance(&connection, Timestamp::now(), 4_000).unwrap();
    let transaction = connection.unchecked_transaction().unwrap();
    let gone: Vec<_> = {
        let delete = "DELETE FROM calls WHERE id IN (SELECT id FROM calls ORDER BY id LIMIT 1500) AND verdict <> 0 \
                      RETURNING id, at, route, verdict, duration";
        let mut delete = transaction.prepare(delete).unwrap();
        delete.query_map([], rollup::call).unwrap().map(Result::unwrap).collect()
    };
    assert!(gone.len() > 1_400);
    rollup::removed(&transaction, gone).unwrap();
    transaction.commit().unwrap();
    assert!(rollup::recount(&connection).unwrap());
    connection.execute_batch("UPDATE rolled SET upto = zeroblob(16); DELETE FROM rollup").unwrap();
    // Somebody changes a count.
    rollup::advance(&connection, Timestamp::now(), 4_000).unwrap();
    assert!(rollup::recount(&connection).unwrap());
    connection.execute("UPDATE rollup SET calls = calls + 1 WHERE span = 3600 AND calls > 3", []).unwrap();
    assert!(!rollup::recount(&connection).unwrap());
}

#[test]
fn the_calls_table_has_every_call() {
    let connection: Connection = schema::open_to_read(&home().join("audit.db")).unwrap();
    let count: usize = connection.query_row("SELECT count(*) FROM calls", [], |row| row.get(0)).unwrap();
    assert_eq!((count, all().len()), (CALLS, CALLS));
}
