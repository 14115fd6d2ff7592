//! The store's throughput: recorded calls a second and bytes a call, against bare SQLite in the same run.
//!
//! Bare is one thread that inserts the same two texts a call into one table without an index, as many rows in one
//! transaction as the store had on average, with the same durability. In addition the store hands orders
//! and answers between threads, chains, keeps the list of calls with its indexes, and counts for statistics.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a benchmark")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{AuditLog as _, CloseCall, Durability, LogSettings, OpenCall, SqliteLog};
use cofferdam_test_support::traffic::Calls;
use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const ROUNDS: u64 = 5;

/// Callers, and how many calls they make together: many where nothing waits for the disk, and fewer where it does.
const PROCESS: [(usize, usize); 3] = [(1, 6_000), (8, 12_000), (64, 20_000)];
const POWER: [(usize, usize); 3] = [(1, 400), (8, 2_400), (64, 12_800)];

/// Ready-made calls, so that neither side is measured making them.
type Supply = Vec<(OpenCall, CloseCall)>;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!(
        "| durability | callers | rows in one commit | calls/s | commits/s | bare: calls/s | store against bare | \
         bytes a call | bare: bytes |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (durability, loads) in [(Durability::Process, PROCESS), (Durability::Power, POWER)] {
        // `cargo bench --bench audit -- process` measures those alone.
        let named = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
        for (callers, calls) in loads {
            if named.as_deref().is_some_and(|named| named != durability.name()) {
                continue;
            }
            row(&runtime, durability, callers, calls);
        }
    }
}

/// Measures both in turns, and prints the row of the table.
fn row(runtime: &Runtime, durability: Durability, callers: usize, calls: usize) {
    let at_once = rows_in_one_commit(runtime, durability, callers, calls);
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|round| {
            let supply = supply(calls, round);
            let bare = bare(durability, &supply, at_once);
            let store = store(runtime, durability, callers, supply);
            (store.0.as_secs_f64() / bare.0.as_secs_f64(), store, bare)
        })
        .collect();
    rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (ratio, (store, bytes), (bare, bare_bytes)) = &rounds[rounds.len() / 2];
    let count = calls as f64;
    let rate = |time: &Duration| count / time.as_secs_f64();
    println!(
        "| {} | {callers} | {at_once:.1} | {:.0} | {:.0} | {:.0} | {ratio:.2} | {:.0} | {:.0} |",
        durability.name(),
        rate(store),
        2.0 * rate(store) / at_once,
        rate(bare),
        *bytes as f64 / count,
        *bare_bytes as f64 / count,
    );
}

fn supply(calls: usize, seed: u64) -> Supply {
    let mut made = Calls::new(seed);
    (0..calls).map(|_| made.next(Timestamp::now())).collect()
}

/// A directory on the disk that builds are on: the usual place of temporary files is often memory.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn log(home: &Path, durability: Durability) -> Arc<SqliteLog> {
    let settings = LogSettings { durability, ..LogSettings::default() };
    Arc::new(SqliteLog::new(home, settings).unwrap())
}

/// The store's time for them, and its size in bytes at the end.
fn store(runtime: &Runtime, durability: Durability, callers: usize, supply: Supply) -> (Duration, u64) {
    let home = directory();
    let log = log(home.path(), durability);
    begun(runtime, &log);
    let took = recorded(runtime, &log, callers, supply);
    drop(log);
    (took, size(&home.path().join("audit.db")))
}

/// Has the file made.
fn begun(runtime: &Runtime, log: &SqliteLog) {
    let (open, close) = Calls::new(u64::MAX).next(Timestamp::now());
    runtime.block_on(one(log, open, close));
}

/// Has them recorded by so many callers at once.
fn recorded(runtime: &Runtime, log: &Arc<SqliteLog>, callers: usize, mut supply: Supply) -> Duration {
    let each = supply.len() / callers;
    let shares: Vec<Supply> = (0..callers).map(|_| supply.split_off(supply.len() - each)).collect();
    runtime.block_on(async {
        let start = Instant::now();
        let mut all = JoinSet::new();
        for share in shares {
            let log = Arc::clone(log);
            all.spawn(async move {
                for (open, close) in share {
                    one(&log, open, close).await;
                }
            });
        }
        all.join_all().await;
        start.elapsed()
    })
}

async fn one(log: &SqliteLog, open: OpenCall, close: CloseCall) {
    log.open(open).await.unwrap();
    log.close(None, close).await.unwrap();
}

/// Orders of calls in one transaction of the store, on average, in a run of its own. A reader that stays keeps the
/// write-ahead log from being begun anew, so that all commits can be counted in it.
fn rows_in_one_commit(runtime: &Runtime, durability: Durability, callers: usize, calls: usize) -> f64 {
    let home = directory();
    let log = log(home.path(), durability);
    begun(runtime, &log);
    let reader = Connection::open(home.path().join("audit.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM calls;").unwrap();
    let wal = home.path().join("audit.db-wal");
    let before = commits(&wal);
    let supply = supply(calls / 4, u64::MAX / 2);
    let calls = supply.len() / callers * callers;
    recorded(runtime, &log, callers, supply);
    let commits = commits(&wal) - before;
    2.0 * calls as f64 / commits as f64
}

/// Commits in a write-ahead log: frames that say how large the database is after them (sqlite.org/fileformat2.html).
fn commits(wal: &Path) -> usize {
    let bytes = std::fs::read(wal).unwrap();
    let page = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let salts = &bytes[16..24];
    let frames = bytes[32..].chunks_exact(24 + page).filter(|frame| &frame[8..16] == salts);
    frames.filter(|frame| frame[4..8] != [0; 4]).count()
}

/// The time of SQLite alone for them, and its size in bytes at the end.
fn bare(durability: Durability, supply: &Supply, at_once: f64) -> (Duration, u64) {
    let home = directory();
    let path = home.path().join("bare.db");
    let mut connection = Connection::open(&path).unwrap();
    let synchronous = if durability == Durability::Power { "full" } else { "normal" };
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.pragma_update(None, "synchronous", synchronous).unwrap();
    connection.pragma_update(None, "cache_size", -16_384).unwrap();
    let table = "CREATE TABLE entries (n INTEGER PRIMARY KEY, body TEXT NOT NULL, hash BLOB NOT NULL) STRICT";
    connection.execute_batch(table).unwrap();
    let rows: Vec<_> = supply.iter().flat_map(|(open, close)| [&open.entry, &close.entry]).collect();
    let start = Instant::now();
    let mut done = 0;
    let mut due = 0.0;
    while done < rows.len() {
        // 2.5 in one: by turns 2 and 3.
        due += at_once;
        let until = (due.round() as usize).clamp(done + 1, rows.len());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let insert = "INSERT INTO entries (body, hash) VALUES (?1, ?2)";
        let mut statement = transaction.prepare_cached(insert).unwrap();
        for row in &rows[done..until] {
            statement.execute(params![row.body(), row.digest()]).unwrap();
        }
        drop(statement);
        transaction.commit().unwrap();
        done = until;
    }
    let took = start.elapsed();
    drop(connection);
    (took, size(&path))
}

/// After the last connection is gone: the write-ahead log was copied into the file.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}
