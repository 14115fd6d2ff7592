//! Tests: every filter finds what a look at each call finds, no query goes through a whole table, and what is counted
//! once is what is counted anew.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::OnceLock;

use cofferdam_core::digest::Digest;
use cofferdam_core::event::recorded::Received;
use cofferdam_core::failure::AuditId;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::find::Scan;
use super::rollup::{CallCount, RollupChanges};
use super::tests::{index_of, log, reader_of};
use super::usage::CallUsage;
use super::{IndexReader, LogIndex, batch, find, reader, rollup, traffic};
use crate::log_calls::{claim, opening};
use crate::{
    AuditLog as _, AuditReader as _, CallRow, CallStatus, Filter, Histogram, HistoryQuery, HistoryStep,
    KeyClaim, OpenCall, OpenOutcome, Stats, StatsGrouping, StatsQuery, UsageStats, wait,
};

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

fn reader() -> IndexReader {
    reader_of(&home())
}

/// Every call, from one pass through the table.
fn all() -> &'static [CallRow] {
    static ALL: OnceLock<Vec<CallRow>> = OnceLock::new();
    ALL.get_or_init(|| {
        let rows = reader().list(&Filter::default()).unwrap();
        assert_eq!(rows.len(), CALLS);
        assert!(rows.is_sorted_by(|a, b| a.at >= b.at));
        assert_eq!(
            rows.iter().filter(|row| row.status == CallStatus::Incomplete).count(),
            traffic::INCOMPLETE
        );
        rows
    })
}

/// Returns true if the filter matches this call, according to the documentation of the filter.
fn fits(filter: &Filter, row: &CallRow) -> bool {
    let same = |asked: &Option<String>, own: &Option<String>| asked.is_none() || asked == own;
    let name = row.connector.split('@').next().unwrap();
    let failed = row.status != CallStatus::Value && row.status.has_end();
    (!filter.failed || failed)
        && filter.status.is_none_or(|status| status == row.status)
        && same(&filter.class, &row.class)
        && same(&filter.code, &row.code)
        && filter.connector.as_ref().is_none_or(|asked| *asked == row.connector || asked == name)
        && filter.op.as_ref().is_none_or(|asked| *asked == row.op)
        && same(&filter.action, &row.action)
        && filter.actor.as_ref().is_none_or(|asked| *asked == row.actor)
        && filter.since.is_none_or(|since| row.at >= since)
        && filter.until.is_none_or(|until| row.at < until)
        && filter.before.as_ref().is_none_or(|before| position(&row.audit_id) > position(before))
}

/// Returns the position of a call in the list of all calls.
fn position(id: &AuditId) -> usize {
    static POSITIONS: OnceLock<HashMap<AuditId, usize>> = OnceLock::new();
    let positions = || all().iter().enumerate().map(|(at, row)| (row.audit_id.clone(), at)).collect();
    POSITIONS.get_or_init(positions)[id]
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
        status in one_of(CallStatus::ALL.to_vec()),
        class in texts(&["network_error", "hash_mismatch", "never"]),
        code in texts(&["timeout", "busy", "hash", "never"]),
        connector in texts(&["github://acme/c00", "github://acme/c00@1.1.0", "github://acme/c19", "never"]),
        op in texts(&["op_0", "op_4", "rare", "never"]),
        action in texts(&["action-0", "action-16", "never"]),
        actor in texts(&["ada", "ci", "never"]),
        since in proptest::option::weighted(0.3, 0i64..80 * 3600),
        until in proptest::option::weighted(0.3, 0i64..80 * 3600),
        before in proptest::option::weighted(0.2, 0..CALLS),
        // So that several of the others seldom exclude each other.
        kept in 0u32..7,
    ) -> Filter {
        let at = |ago: i64| until_moment(ago);
        let mut filter = Filter { since: since.map(at), until: until.map(at), ..Filter::default() };
        filter.before = before.map(|at| all()[at].audit_id.clone());
        match kept {
            0 => Filter { failed, connector, op, actor, ..filter },
            1 => Filter { status, connector, action, ..filter },
            2 => Filter { class, code, op, ..filter },
            3 => Filter { status, op, connector, ..filter },
            4 => Filter { failed, class, action, ..filter },
            5 => Filter { actor, ..filter },
            _ => Filter { failed, status, class, code, connector, op, action, actor, ..filter },
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
        let stats = reader().stats(&filter, StatsQuery::default()).unwrap();
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
        if !row.status.has_end() {
            let open = Filter { status: None, ..whole.clone() };
            let asked = filter.status.is_none_or(|status| !status.has_end()) && !filter.failed;
            if asked && fits(&open, row) {
                let is_incomplete = row.status == CallStatus::Incomplete;
                *if is_incomplete { &mut stats.incomplete } else { &mut stats.running } += 1;
            }
        } else if fits(&whole, row) {
            let key = (row.connector.clone(), row.status.number(), row.class.clone());
            let (calls, durations) = groups.entry(key).or_default();
            *calls += 1;
            durations.record(row.duration_us.unwrap());
        }
    }
    let group = |((connector, status, class), (calls, durations))| crate::StatsGroup {
        name: connector,
        status: CallStatus::ALL[usize::from(status)],
        class,
        calls,
        durations,
        usage: None,
    };
    stats.groups = groups.into_iter().map(group).collect();
    stats.groups.sort_by_key(|group| std::cmp::Reverse(group.calls));
    stats
}

#[test]
fn no_query_scans_a_whole_table() {
    let index = index_of(&home());
    let connection = &index.file.connection;
    let scans = [
        Scan::All,
        Scan::Open,
        Scan::Target(1),
        Scan::Outcome(2),
        Scan::Pair { outcome: 2, target: 1 },
        Scan::Key([0; 32]),
    ];
    let queries =
        batch::QUERIES.into_iter().chain(find::QUERIES).chain(reader::QUERIES).chain(rollup::QUERIES);
    for query in queries.map(str::to_owned).chain(scans.map(Scan::select)) {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let count = explain.parameter_count();
        let params = rusqlite::params_from_iter((0..count).map(|_| 1));
        let steps = explain.query_map(params, |row| row.get::<_, String>(3)).unwrap();
        for step in steps.map(Result::unwrap) {
            // Open calls are few, and asked for all together.
            let open = step.contains("calls_open");
            assert!(open || !step.starts_with("SCAN calls"), "{query}: {step}");
            assert!(!step.starts_with("SCAN rollup"), "{query}: {step}");
            assert!(!step.starts_with("SCAN request_rollup"), "{query}: {step}");
            assert!(!step.contains("TEMP B-TREE"), "{query}: {step}");
        }
    }
}

/// Returns true if the stored counts are those of the calls.
pub(super) fn counts_match(index: &LogIndex) -> bool {
    let mut counts = RollupChanges::default();
    let select = "SELECT at, target, outcome, actor, duration, usage FROM calls WHERE outcome <> 0";
    let mut select = index.file.connection.prepare(select).unwrap();
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let number = |at| row.get::<_, i64>(at).unwrap();
        let usage = &CallUsage::from_bytes(row.get_ref(5).unwrap().as_blob().unwrap());
        let (at, target, outcome, actor) = (number(0), number(1), number(2), number(3));
        let duration = row.get(4).unwrap();
        counts.add(&CallCount { at, target, outcome, actor, duration, usage });
    }
    counts.are_stored(&index.file.connection).unwrap()
}

#[test]
fn rollups_match_a_recount() {
    let index = index_of(&home());
    assert!(counts_match(&index));
    let connection = &index.file.connection;
    let transaction = connection.unchecked_transaction().unwrap();
    connection.execute("UPDATE rollup SET calls = calls + 1 WHERE span = 3600 AND calls > 3", []).unwrap();
    assert!(!counts_match(&index));
    transaction.rollback().unwrap();
    let transaction = connection.unchecked_transaction().unwrap();
    connection.execute("UPDATE request_rollup SET requests = requests + 1 WHERE span = 3600", []).unwrap();
    assert!(!counts_match(&index));
    transaction.rollback().unwrap();
}

#[test]
fn usage_is_grouped_by_operation_host_code_and_actor() {
    let mut reader = reader();
    let mut usage_by = |by| {
        let stats = reader.stats(&Filter::default(), StatsQuery { by, usage: true }).unwrap();
        let mut all = UsageStats::default();
        stats.groups.iter().for_each(|group| all.merge(group.usage.as_ref().unwrap()));
        let names: BTreeSet<_> = stats.groups.iter().map(|group| group.name.clone()).collect();
        (stats.ended(), all, names)
    };
    let (ended, all, connectors) = usage_by(StatsGrouping::Connector);
    let [fuel, .., largest] = &all.used;
    assert_eq!((ended, fuel.count()), ((CALLS - traffic::INCOMPLETE) as u64, ended));
    assert_eq!(all.limits, [1_000_000_000, 67_108_864, 30_000]);
    assert!(fuel.percentile(50).unwrap().abs_diff(600_000) < 30_000);
    assert_eq!(largest.count(), ended);
    assert!(largest.percentile(50).unwrap().abs_diff(5_000) < 500, "{largest:?}");
    assert!(largest.max() > Some(9_000) && largest.max() < Some(10_000), "{largest:?}");
    assert!(connectors.contains("github://acme/c00@1.1.0"));
    for (by, name) in [
        (StatsGrouping::Operation, "github://acme/c00@1.1.0 op_0"),
        (StatsGrouping::Code, "timeout"),
        (StatsGrouping::Actor, "ada"),
    ] {
        let (calls, usage, names) = usage_by(by);
        assert_eq!((calls, &usage), (ended, &all), "{by:?}");
        assert!(names.contains(name), "{names:?}");
    }
    let rows = all_of(|row| row.actor == "ada" && row.status.has_end());
    let stats =
        reader.stats(&Filter::default(), StatsQuery { by: StatsGrouping::Actor, usage: false }).unwrap();
    let ada = stats.groups.iter().filter(|group| group.name == "ada").map(|group| group.calls).sum::<u64>();
    assert_eq!(ada, rows as u64);
    let hosts = stats_by_host(&mut reader);
    assert_eq!(hosts.keys().collect::<Vec<_>>(), ["api.example:443", "files.example:443"]);
    assert!(hosts["api.example:443"] == ended && hosts["files.example:443"] < ended / 4);
}

#[test]
fn a_history_has_the_statistics_of_each_step() {
    let mut reader = reader();
    let by = StatsQuery { by: StatsGrouping::Boundary, usage: false };
    let filter = Filter { connector: Some("github://acme/c00".to_owned()), ..Filter::default() };
    for (step, hours, most) in [(HistoryStep::Hour, 80, 81), (HistoryStep::Day, 72, 4)] {
        let query = HistoryQuery { since: until() - SignedDuration::from_hours(hours), until: until(), step };
        let parts = reader.history(&filter, query).unwrap();
        let starts: Vec<_> = query.starts().collect();
        assert_eq!(starts.len(), most, "{step:?}");
        assert!(parts.len() > 3 && parts.iter().all(|part| starts.contains(&part.start)), "{step:?}");
        for start in starts {
            let end = start + SignedDuration::from_secs(step.seconds());
            let hour = Filter { since: Some(start), until: Some(end), ..filter.clone() };
            let counted = reader.stats(&hour, by).unwrap().groups;
            let part = parts.iter().find(|part| part.start == start);
            assert_eq!(part.map(|part| part.groups.clone()).unwrap_or_default(), counted, "{start}");
        }
    }
}

#[test]
fn requests_are_counted_by_operation_and_host() {
    let mut reader = reader();
    let all = reader.requests(&Filter::default()).unwrap();
    let to = |host: &str| all.iter().filter(|sum| sum.host == host).map(|sum| sum.requests).sum::<u64>();
    let calls = stats_by_host(&mut reader);
    // Each call has one request to a host.
    assert_eq!(
        [to("api.example:443"), to("files.example:443")],
        ["api.example:443", "files.example:443"].map(|host| calls[host])
    );
    let of = |sum: &&crate::RequestSum| {
        sum.connector == "github://acme/c00@1.0.0" && sum.op == "op_0" && sum.host == "api.example:443"
    };
    let of_op: Vec<_> = all.iter().filter(of).collect();
    assert_eq!(of_op.len(), 1, "{of_op:?}");
    let ended = |row: &CallRow| {
        row.connector == "github://acme/c00@1.0.0" && row.op == "op_0" && row.status.has_end()
    };
    assert_eq!(of_op[0].requests, all_of(ended) as u64);
    let hour = until() - SignedDuration::from_hours(5);
    let filter = Filter {
        connector: Some("github://acme/c00@1.0.0".to_owned()),
        since: Some(hour),
        ..Filter::default()
    };
    let some = reader.requests(&filter).unwrap();
    let since = |row: &CallRow| {
        row.connector == "github://acme/c00@1.0.0"
            && row.status.has_end()
            && row.at >= "2024-11-22T06:00:00Z".parse().unwrap()
    };
    let to_first = some.iter().filter(|sum| sum.host == "api.example:443").map(|sum| sum.requests);
    assert_eq!(to_first.sum::<u64>(), all_of(since) as u64);
}

/// Returns the call with an idempotency key of its caller.
fn with_key(call: OpenCall, key: &str) -> OpenCall {
    let received = Received {
        actor: (&*call.actor).into(),
        connector: (&*call.route.connector).into(),
        op: (&*call.route.op).into(),
        ..Received::default()
    };
    let OpenCall { entry, .. } = opening(received, Some(key), true, call.at);
    OpenCall { key: Some(KeyClaim { at: call.at, ..claim(key) }), entry, ..call }
}

#[test]
fn calls_are_found_by_their_idempotency_key() {
    let home = tempfile::tempdir().unwrap();
    let (log, mut calls) = (log(home.path()), traffic::Calls::new(7));
    let mut ids = Vec::new();
    for key in [Some("order-1"), None, Some("order-2"), Some("order-1")] {
        let (mut call, end) = calls.next(Timestamp::now());
        if let Some(key) = key {
            call = with_key(call, key);
        }
        ids.push(call.audit_id.clone());
        assert!(matches!(wait(log.open(call)).unwrap(), OpenOutcome::Started));
        // It frees the key.
        wait(log.close(None, end)).unwrap();
    }
    let of_key = |key: &str| {
        let mut filter = Filter::default();
        assert!(filter.select_key(key), "{key}");
        filter
    };
    let mut reader = reader_of(home.path());
    let mut found = |filter: Filter| -> Vec<AuditId> {
        reader.list(&filter).unwrap().into_iter().map(|row| row.audit_id).collect()
    };
    assert_eq!(found(of_key("order-1")), [ids[3].clone(), ids[0].clone()]);
    assert_eq!(found(Filter { limit: 1, ..of_key("order-1") }), [ids[3].clone()]);
    assert_eq!(found(Filter { before: Some(ids[3].clone()), ..of_key("order-1") }), [ids[0].clone()]);
    assert_eq!(found(of_key(&format!("sha256:{}", Digest::sha256(b"order-2")))), [ids[2].clone()]);
    assert!(found(of_key("order-3")).is_empty());
    for other in [
        Filter { actor: Some("never".to_owned()), ..of_key("order-1") },
        Filter { op: Some("never".to_owned()), ..of_key("order-1") },
        Filter { code: Some("never".to_owned()), ..of_key("order-1") },
        Filter { until: Some(until()), ..of_key("order-1") },
    ] {
        assert!(found(other.clone()).is_empty(), "{other:?}");
    }
}

#[test]
fn only_a_key_or_its_hash_selects_calls() {
    let selected = |key: &str| {
        let mut filter = Filter::default();
        assert_eq!(filter.select_key(key), filter.key.is_some());
        filter.key
    };
    let hash = Digest::sha256(b"order-17");
    assert_eq!(selected("order-17"), Some(*hash.as_bytes()));
    assert_eq!(selected(&format!("sha256:{hash}")), Some(*hash.as_bytes()));
    // 64 digits alone are a key.
    assert_eq!(selected(&hash.to_string()), Some(*Digest::sha256(hash.to_string().as_bytes()).as_bytes()));
    assert!(selected(&"k".repeat(200)).is_some());
    for wrong in ["", "a b", "a:b", "a~b", "\u{e9}", "sha256:", "sha256:00", &"k".repeat(201)] {
        assert_eq!(selected(wrong), None, "{wrong}");
    }
}

#[test]
fn no_call_is_both_running_and_incomplete() {
    let with = |status| Filter { status: Some(status), ..Filter::default() };
    let mut reader = reader();
    assert_eq!(reader.list(&with(CallStatus::Incomplete)).unwrap().len(), traffic::INCOMPLETE);
    assert_eq!(reader.list(&with(CallStatus::Running)).unwrap(), []);
}

fn all_of(fits: impl Fn(&CallRow) -> bool) -> usize {
    all().iter().filter(|row| fits(row)).count()
}

/// Returns the number of calls by the host of their requests.
fn stats_by_host(reader: &mut IndexReader) -> BTreeMap<String, u64> {
    let by = StatsQuery { by: StatsGrouping::Host, usage: true };
    let mut hosts = BTreeMap::new();
    for group in reader.stats(&Filter::default(), by).unwrap().groups {
        *hosts.entry(group.name).or_default() += group.calls;
    }
    hosts
}
