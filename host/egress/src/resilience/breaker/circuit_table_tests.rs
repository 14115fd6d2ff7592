//! The table of circuits: what is written is read, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_core::failure::{AuditId, FailureCause};
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;
use proptest::prelude::*;
use rusqlite::Connection;

use super::circuit_table::{CircuitKey, CircuitRows, CircuitTable, TableError};
use super::{Circuit, CircuitTrip, PermanentTrip, TripCause};

const PATIENCE: Duration = Duration::from_millis(2);

fn whys() -> impl Strategy<Value = TripCause> {
    let parts =
        (-4_000_000_000_i64..250_000_000_000, 0..FailureCause::ALL.len(), prop::option::of(100_u16..600));
    (parts, 0_u32..1_000_000_000).prop_map(|((second, cause, status), nano)| TripCause {
        at: Timestamp::new(second, nano.try_into().unwrap()).unwrap(),
        cause: FailureCause::ALL.get(cause).copied().unwrap(),
        status,
        audit_id: AuditId::mint().to_string(),
    })
}

fn circuits() -> impl Strategy<Value = Circuit> {
    let failures = prop::collection::vec(whys().prop_map(|why| why.at), 1..5);
    let open = prop::option::of((whys(), 0_u64..1_000_000, 0_u64..1_000_000));
    let shut = prop::collection::vec((whys(), prop::option::of("[ -~\n]{0,60}")), 0..3);
    (failures, open, shut).prop_map(|(failures, open, shut)| Circuit {
        failures,
        open: open.map(|(why, one, other)| CircuitTrip {
            why,
            cooldown: Duration::from_millis(one.max(other)),
            probe_after: Duration::from_millis(one.min(other)),
        }),
        permanent_trips: shut
            .into_iter()
            .map(|(why, credential)| PermanentTrip { why, credential })
            .collect(),
    })
}

fn table(dir: &Path) -> CircuitTable {
    CircuitTable::new(dir.join("circuits/circuits.db"))
}

fn key(host: &str) -> CircuitKey {
    CircuitKey { connector: ConnectorName::parse("github://acme/slack").unwrap(), host: host.to_owned() }
}

fn set(table: &CircuitTable, host: &str, circuit: &Circuit) {
    table.change(&key(host), PATIENCE, |stored| *stored = circuit.clone()).unwrap();
}

fn one_failure() -> Circuit {
    Circuit { failures: vec![Timestamp::UNIX_EPOCH], ..Circuit::default() }
}

/// Writes `state` as it is into the row of `host`.
fn put(dir: &Path, host: &str, state: &str) {
    let connection = Connection::open(dir.join("circuits/circuits.db")).unwrap();
    let sql = "INSERT OR REPLACE INTO circuits VALUES ('github://acme/slack', ?, ?)";
    connection.execute(sql, [host, state]).unwrap();
}

fn is_unusable<T>(result: Result<T, TableError>) -> bool {
    matches!(result, Err(TableError::Damaged(_)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_what_is_read(circuit in circuits(), cut in 0.0_f64..1.0) {
        let dir = tempfile::tempdir().unwrap();
        let table = table(dir.path());
        set(&table, "slack.com:443", &circuit);
        prop_assert_eq!(table.get(&key("slack.com:443"), PATIENCE).unwrap(), Some(circuit.clone()));
        prop_assert_eq!(table.get(&key("other.com:443"), PATIENCE).unwrap(), None);
        // A truncated text is not a circuit.
        let text = serde_json::to_string(&circuit).unwrap();
        let end = (text.len() as f64 * cut) as usize;
        put(dir.path(), "slack.com:443", text.get(..end).unwrap());
        prop_assert!(is_unusable(table.get(&key("slack.com:443"), PATIENCE)));
    }

    #[test]
    fn no_text_is_too_strange_to_read(text in "[^\0]*") {
        let dir = tempfile::tempdir().unwrap();
        let table = table(dir.path());
        set(&table, "slack.com:443", &one_failure());
        put(dir.path(), "slack.com:443", &text);
        prop_assert!(is_unusable(table.get(&key("slack.com:443"), PATIENCE)));
        let bytes = text.as_bytes();
        fs::write(dir.path().join("circuits/circuits.db"), bytes).unwrap();
        let read = table.get(&key("slack.com:443"), PATIENCE);
        // SQLite takes a file of one byte for an empty one.
        let expected = if bytes.len() < 2 { matches!(read, Ok(None)) } else { is_unusable(read) };
        prop_assert!(expected);
    }
}

/// A circuit in its initial state has no row, and the rows are in order.
#[test]
fn only_what_is_not_closed_has_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    assert!(
        table.rows(PATIENCE).unwrap().0.is_empty()
            && table.remove(None, None, PATIENCE).unwrap().0.is_empty()
    );
    for host in ["b:1", "a:1", "c:1"] {
        set(&table, host, &one_failure());
    }
    set(&table, "c:1", &Circuit::default());
    let hosts = |(rows, _): CircuitRows| rows.into_iter().map(|(key, _)| key.host).collect::<Vec<_>>();
    assert_eq!(hosts(table.rows(PATIENCE).unwrap()), ["a:1", "b:1"]);
    assert!(table.remove(Some("github://acme/other"), None, PATIENCE).unwrap().0.is_empty());
    assert_eq!(hosts(table.remove(None, Some("b:1"), PATIENCE).unwrap()), ["b:1"]);
    assert_eq!(hosts(table.remove(None, None, PATIENCE).unwrap()), ["a:1"]);
    assert!(table.rows(PATIENCE).unwrap().0.is_empty());
}

/// A file that is no table of this version counts as damaged, and the next change replaces it.
#[test]
fn what_is_no_table_is_replaced_by_the_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let (table, file) = (table(dir.path()), dir.path().join("circuits/circuits.db"));
    set(&table, "a:1", &one_failure());
    let good = fs::read(&file).unwrap();
    let half = good.len() / 2;
    // The second page has the rows.
    let mut torn = good.clone();
    torn.get_mut(half..).unwrap().fill(0x5a);
    let other = |sql: &str| {
        let path = dir.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        bytes
    };
    let newer = other("CREATE TABLE circuits (id INTEGER); PRAGMA user_version = 2;");
    let foreign = other("CREATE TABLE t (id INTEGER); PRAGMA user_version = 1;");
    for (name, bytes) in [("text", b"{}".to_vec()), ("torn", torn), ("newer", newer), ("foreign", foreign)] {
        fs::write(&file, bytes).unwrap();
        assert!(is_unusable(table.get(&key("a:1"), PATIENCE)), "{name}");
        assert_eq!(table.rows(PATIENCE).unwrap(), (Vec::new(), 1), "{name}");
        set(&table, "a:1", &one_failure());
        assert_eq!(table.get(&key("a:1"), PATIENCE).unwrap(), Some(one_failure()), "{name}");
    }
}

/// A process that never gives the lock back delays others by the time that they allow, and no longer.
#[test]
fn the_wait_for_another_process_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (table, file) = (table(dir.path()), dir.path().join("circuits/circuits.db"));
    set(&table, "a:1", &one_failure());
    let busy = |result: Result<(), TableError>| {
        let begun = Instant::now();
        assert!(matches!(result, Err(TableError::Busy)));
        assert!(begun.elapsed() < Duration::from_secs(1));
    };
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    busy(table.change(&key("a:1"), PATIENCE, |circuit| circuit.failures.clear()));
    assert_eq!(table.get(&key("a:1"), PATIENCE).unwrap(), Some(one_failure()), "it can be read");
    other.execute_batch("ROLLBACK; BEGIN EXCLUSIVE").unwrap();
    busy(table.get(&key("a:1"), PATIENCE).map(drop));
    busy(table.remove(None, None, PATIENCE).map(drop));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(table.get(&key("a:1"), PATIENCE).unwrap(), Some(one_failure()));
}
