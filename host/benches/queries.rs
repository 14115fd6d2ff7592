//! The time to find calls in a log of a million: every kind of query, and the worst of each kind.
//!
//! `cargo bench --bench queries` fills an audit log once, below `target`, and keeps it for the next time.
//! `COFFERDAM_BENCH_CALLS=20000` makes a smaller one.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a benchmark")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{
    AuditLog as _, AuditReader, CallStatus, Filter, HistoryQuery, HistoryStep, JournalLog, LogSettings,
    StatsGrouping, StatsQuery,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_test_support::traffic;
use jiff::{SignedDuration, Timestamp};

/// The number of runs of each query.
const RUNS: usize = 21;

const DAYS: u32 = 30;

fn main() {
    let calls = std::env::var("COFFERDAM_BENCH_CALLS").ok().and_then(|calls| calls.parse().ok());
    let calls = calls.unwrap_or(1_000_000);
    // The same each time, so that what was filled once can be used again.
    let until: Timestamp = "2024-11-22T11:30:00Z".parse().unwrap();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("journals-of-{calls}"));
    let began = Instant::now();
    if !home.join("filled").exists() {
        drop(std::fs::remove_dir_all(&home));
        traffic::fill(&home, calls, DAYS, until);
        std::fs::write(home.join("filled"), "").unwrap();
        let took = began.elapsed();
        println!("filled in {took:.1?}: {:.0} calls a second", calls as f64 / took.as_secs_f64());
    }
    let size = size_of(&home.join("audit"));
    println!("{calls} calls, {size} bytes: {} a call", size / calls as u64);
    let log = JournalLog::new(&home, LogSettings::default(), Arc::new(SystemClock));
    let mut reader = log.reader().unwrap();
    let ago = |hours: i64| Some(until - SignedDuration::from_hours(hours));
    let newest = || Filter { limit: 100, ..Filter::default() };
    let text = |text: &str| Some(text.to_owned());
    let deep = Filter { until: ago(360), limit: 1, ..Filter::default() };
    let deep = reader.list(&deep).unwrap().pop().map(|row| row.audit_id);
    let lists = [
        ("the newest", newest()),
        ("all failures", Filter { failed: true, ..newest() }),
        ("the commonest class", Filter { class: text("network_error"), ..newest() }),
        ("the rarest class", Filter { class: text("hash_mismatch"), ..newest() }),
        ("a code", Filter { code: text("dns"), ..newest() }),
        ("the commonest connector", Filter { connector: text("github://acme/c00"), ..newest() }),
        ("one version of the rarest", Filter { connector: text("github://acme/c19@1.0.0"), ..newest() }),
        ("an operation called three times", Filter { op: text("rare"), ..newest() }),
        ("a common operation, failed", Filter { op: text("op_0"), failed: true, ..newest() }),
        (
            "a common operation, the rarest class",
            Filter { op: text("op_0"), class: text("hash_mismatch"), ..newest() },
        ),
        ("a rare operation, failed", Filter { op: text("rare"), failed: true, ..newest() }),
        ("an action", Filter { action: text("action-0"), ..newest() }),
        ("with a value", Filter { status: Some(CallStatus::Value), ..newest() }),
        (
            "a rare operation, with a value",
            Filter { op: text("rare"), status: Some(CallStatus::Value), ..newest() },
        ),
        ("cancelled", Filter { status: Some(CallStatus::Cancelled), ..newest() }),
        ("incomplete", Filter { status: Some(CallStatus::Incomplete), ..newest() }),
        ("running: none", Filter { status: Some(CallStatus::Running), ..newest() }),
        ("a code that no call has", Filter { code: text("never"), ..newest() }),
        ("an operation that no call has", Filter { op: text("never"), ..newest() }),
        ("since the middle", Filter { since: ago(360), ..newest() }),
        ("until the middle", Filter { until: ago(360), ..newest() }),
        (
            "an hour in the middle, failed",
            Filter { since: ago(360), until: ago(359), failed: true, ..newest() },
        ),
        ("a page from the middle", Filter { before: deep.clone(), ..newest() }),
        ("a page of failures from the middle", Filter { before: deep, failed: true, ..newest() }),
        ("the newest 1000", Filter { limit: 1000, ..newest() }),
    ];
    println!("| query | found | median | slowest |\n|---|---|---|---|");
    for (name, filter) in lists {
        row(&format!("list: {name}"), || reader.list(&filter).unwrap().len() as u64);
    }
    let all = Filter::default;
    let stats = [
        ("all", all()),
        ("one connector", Filter { connector: text("github://acme/c00"), ..all() }),
        ("failures", Filter { failed: true, ..all() }),
        ("the last hour", Filter { since: ago(1), ..all() }),
        ("a week in the middle", Filter { since: ago(400), until: ago(232), ..all() }),
    ];
    for (name, filter) in stats {
        row(&format!("stats: {name}"), || reader.stats(&filter, StatsQuery::default()).unwrap().ended());
    }
    for (name, by) in [("connectors", StatsGrouping::Connector), ("operations", StatsGrouping::Operation)] {
        let query = StatsQuery { by, usage: true };
        row(&format!("stats: {name}, with usage"), || reader.stats(&all(), query).unwrap().ended());
    }
    for (name, step, hours) in [
        ("a day by hour", HistoryStep::Hour, 24),
        ("a week by hour", HistoryStep::Hour, 168),
        ("a month by day", HistoryStep::Day, 720),
    ] {
        let query = HistoryQuery { since: ago(hours).unwrap(), until, step };
        row(&format!("history: {name}"), || {
            let parts = reader.history(&all(), query).unwrap();
            parts.iter().flat_map(|part| &part.groups).map(|group| group.calls).sum()
        });
    }
    row("requests: all", || {
        let requests = reader.requests(&all()).unwrap();
        requests.iter().map(|sum| sum.requests).sum()
    });
    row("storage", || reader.storage().unwrap().bytes());
    let one = reader.list(&Filter { limit: 1, ..all() }).unwrap().remove(0).audit_id;
    row("show: one call", || shown(&mut *reader, &one));
}

/// The bytes of all files below a directory.
fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let size = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => size_of(&entry.path()),
        metadata => metadata.len(),
    };
    entries.map(size).sum()
}

fn shown(reader: &mut dyn AuditReader, id: &cofferdam::AuditId) -> u64 {
    reader.call(id).unwrap().unwrap();
    reader.entries_of(id).unwrap().len() as u64
}

/// Measures it, and prints the row of the table.
fn row(name: &str, mut query: impl FnMut() -> u64) {
    let mut found = 0;
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            found = query();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("| {name} | {found} | {:.2?} | {:.2?} |", times[RUNS / 2], times[RUNS - 1]);
}
