//! The cost of the audit log in PostgreSQL for a call, beside a bare insert of the same bytes in the same run.
//!
//! A call is two rows: its beginning and its end, with a sealed part each, and with a key a row that is claimed and ended.
//! The floor is the best that `tokio-postgres` does with them on one connection: one statement with the rows of all
//! callers, and one commit. The log also chains the entries, and fills the table from which calls are found.
//!
//! It needs PostgreSQL, as the tests do: `COFFERDAM_SERVICES`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{AuditLog, CallStatus, CloseCall, KeyDisposition, OpenCall, Sealed};
use cofferdam_cluster::audit_log::{PostgresLog, PostgresSettings};
use cofferdam_cluster::database::{Database, DatabaseSettings};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::digest::Digest;
use cofferdam_core::event::recorded::Received;
use cofferdam_core::failure::AuditId;
use cofferdam_egress::egress::default_tls;
use cofferdam_test_support::log_calls::{ending, opening};
use cofferdam_test_support::services::{Postgres, Tools};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use tokio_postgres::types::ToSql;

const CALLS: usize = 4_000;
const ROUNDS: usize = 5;
const CALLERS: [usize; 3] = [1, 16, 128];

/// The bytes of what is sealed of a call: its request, and its outcome.
const SEALED: usize = 200;

fn call(key: Option<&str>) -> (OpenCall, CloseCall) {
    let at = Timestamp::now();
    let received = Received {
        actor: "ada".into(),
        connector: "github://acme/hello@1.0.0".into(),
        op: "greet".into(),
        ..Received::default()
    };
    let part = || Some(Sealed::from_bytes(vec![b'x'; SEALED]));
    let open = OpenCall { request: part(), ..opening(received, key, false, at) };
    let kept = KeyDisposition::Retain(at + SignedDuration::from_hours(24));
    let close = CloseCall { outcome: part(), ..ending(&open, CallStatus::Value, kept, at) };
    (open, close)
}

/// The costs of a log for the database until now.
struct Spent {
    entries: u64,
    transactions: u64,
    /// Bytes of the write-ahead log.
    written: u64,
    /// Bytes of tables and indexes.
    kept: u64,
    processors: Duration,
}

impl Spent {
    fn until_now(postgres: &Postgres, database: &str) -> Self {
        // All entries of a transaction have its time.
        let query = "SELECT count(*), count(DISTINCT at), pg_current_wal_lsn() - '0/0', \
                     pg_database_size(current_database()) FROM cofferdam.entries";
        let row = postgres.psql(database, query);
        let numbers: Vec<u64> = row.split('|').map(|number| number.parse().unwrap()).collect();
        let [entries, transactions, written, kept] = numbers[..] else { unreachable!() };
        Self { entries, transactions, written, kept, processors: postgres.processor_time() }
    }

    /// Prints what a call has cost since `before`.
    fn report(&self, before: &Self) {
        let calls = (self.entries - before.entries) as f64 / 2.0;
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / calls;
        println!(
            "    a call: {:.3} transactions, {:.0} us of PostgreSQL's processors, {:.0} bytes of write-ahead log, \
             {:.0} bytes of tables and indexes",
            each(self.transactions, before.transactions),
            (self.processors - before.processors).as_secs_f64() * 1e6 / calls,
            each(self.written, before.written),
            each(self.kept, before.kept),
        );
    }
}

/// The time of `CALLS` calls by so many callers at once, for each call.
fn recorded(runtime: &Runtime, log: &Arc<PostgresLog>, callers: usize, keyed: bool) -> Duration {
    let all: Vec<_> =
        (0..CALLS).map(|_| call(keyed.then(|| AuditId::mint().to_string()).as_deref())).collect();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for own in all.chunks(CALLS / callers) {
            let (log, own) = (Arc::clone(log), own.to_vec());
            tasks.spawn(async move {
                for (open, close) in own {
                    log.open(open).await.unwrap();
                    log.close(None, close).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        start.elapsed() / u32::try_from(CALLS).unwrap()
    })
}

/// The time for each call if only its bytes are inserted: each statement has the rows of all callers, and a commit.
fn bare(runtime: &Runtime, url: &str, [begin, end]: [&str; 2], callers: usize, keyed: bool) -> Duration {
    let lines = [begin, end].map(|line| vec![line; callers]);
    let part = [b'x'; SEALED];
    let parts = vec![&part[..]; callers];
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let traffic = tokio::spawn(connection);
        let tables = "CREATE TABLE IF NOT EXISTS bare (n bigserial PRIMARY KEY, line text NOT NULL, part bytea NOT NULL); \
                      CREATE TABLE IF NOT EXISTS keys (key bytea PRIMARY KEY, call bytea, state smallint) \
                      WITH (fillfactor = 70)";
        client.batch_execute(tables).await.unwrap();
        let insert = "INSERT INTO bare (line, part) SELECT * FROM unnest($1::text[], $2::bytea[])";
        let claim = "WITH k AS (INSERT INTO keys SELECT key, key, 0 FROM unnest($3::bytea[]) AS key)";
        let keep = "WITH k AS (UPDATE keys SET state = 1 WHERE key = ANY($3::bytea[]))";
        let statements = match keyed {
            true => [format!("{claim} {insert}"), format!("{keep} {insert}")],
            false => [insert.to_owned(), insert.to_owned()],
        };
        let statements =
            [client.prepare(&statements[0]).await.unwrap(), client.prepare(&statements[1]).await.unwrap()];
        let rounds = CALLS / callers;
        let start = Instant::now();
        for _ in 0..rounds {
            let keys: Vec<_> = (0..callers).map(|_| Digest::sha256(AuditId::mint().as_str().as_bytes())).collect();
            let keys: Vec<_> = keys.iter().map(|key| &key.as_bytes()[..]).collect();
            for (statement, lines) in statements.iter().zip(&lines) {
                let parameters: &[&(dyn ToSql + Sync)] = &[lines, &parts, &keys];
                client.execute(statement, &parameters[..if keyed { 3 } else { 2 }]).await.unwrap();
            }
        }
        let each = start.elapsed() / u32::try_from(rounds * callers).unwrap();
        client.batch_execute("TRUNCATE bare, keys").await.unwrap();
        drop(client);
        drop(traffic.await);
        each
    })
}

/// The time for each call if each caller inserts its own rows, all in the pipeline of one connection.
fn pipelined(runtime: &Runtime, url: &str, [begin, end]: [&str; 2], callers: usize) -> Duration {
    let rounds = (CALLS / 4 / callers).max(1);
    let lines = [begin, end].map(str::to_owned);
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let traffic = tokio::spawn(connection);
        let insert = client.prepare("INSERT INTO bare (line, part) VALUES ($1, $2)").await.unwrap();
        let (client, start, mut tasks) = (Arc::new(client), Instant::now(), JoinSet::new());
        for _ in 0..callers {
            let (client, insert, lines) = (Arc::clone(&client), insert.clone(), lines.clone());
            tasks.spawn(async move {
                for _ in 0..rounds {
                    for line in &lines {
                        client.execute(&insert, &[line, &&[b'x'; SEALED][..]]).await.unwrap();
                    }
                }
            });
        }
        tasks.join_all().await;
        let each = start.elapsed() / u32::try_from(rounds * callers).unwrap();
        client.batch_execute("TRUNCATE bare").await.unwrap();
        drop(client);
        drop(traffic.await);
        each
    })
}

fn main() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let (runtime, postgres) = (Runtime::new().unwrap(), Postgres::start(&tools));
    let home = tempfile::tempdir().unwrap();
    let url = postgres.database();
    let database =
        Database::new(DatabaseSettings::parse(&url, false).unwrap(), default_tls([]).unwrap(), home.path());
    let settings = PostgresSettings::new("bench");
    let log = Arc::new(PostgresLog::new(database, home.path(), settings, Arc::new(SystemClock)));
    let (open, close) = call(None);
    recorded(&runtime, &log, 1, false);
    let mut reader = log.reader().unwrap();
    let id =
        reader.list(&cofferdam_audit::Filter { limit: 1, ..Default::default() }).unwrap()[0].audit_id.clone();
    let entries = reader.entries_of(&id).unwrap();
    let bytes = [&*entries[0].text, &*entries[1].text];
    drop((open, close));
    let plain = postgres.database();
    bare(&runtime, &plain, bytes, 16, false);
    let name = url.rsplit('/').next().unwrap();
    for callers in CALLERS {
        let mut least = [Duration::MAX; 5];
        let mut spent = Vec::new();
        for _ in 0..ROUNDS {
            let before = Spent::until_now(&postgres, name);
            let own = recorded(&runtime, &log, callers, false);
            spent.push((before, Spent::until_now(&postgres, name)));
            let now = [
                pipelined(&runtime, &plain, bytes, callers),
                bare(&runtime, &plain, bytes, callers, false),
                own,
                bare(&runtime, &plain, bytes, callers, true),
                recorded(&runtime, &log, callers, true),
            ];
            least = std::array::from_fn(|at| least[at].min(now[at]));
        }
        let [pipeline, floor, own, floor_keyed, own_keyed] = least.map(|time| time.as_secs_f64() * 1e6);
        println!("{callers} callers, microseconds a call:");
        println!("    a statement a row, in a pipeline  {pipeline:8.1}");
        println!("    a statement for all callers       {floor:8.1}");
        println!("    the log                           {own:8.1}, {:.2} x", own / floor);
        println!("    a statement for all, with keys    {floor_keyed:8.1}");
        println!("    the log, with keys                {own_keyed:8.1}, {:.2} x", own_keyed / floor_keyed);
        for (before, after) in &spent {
            after.report(before);
        }
    }
    drop(reader);
}
