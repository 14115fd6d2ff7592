//! Where the audit logs of tests are: in their homes, or each in a database of its own.
//!
//! With `COFFERDAM_TEST_STORE=postgres`, the hosts and commands of every home have their audit log in PostgreSQL, and the
//! bodies of the tests are the same. `tests/stores.txt` lists the tests that are run so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cofferdam::HostBuilder;
use cofferdam_cluster::audit_log::{PostgresLog, PostgresSettings};
use cofferdam_cluster::database::{Database, DatabaseSettings};
use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_egress::egress::default_tls;

use crate::services::{Postgres, Tools};

/// The variable that names the store.
const STORE: &str = "COFFERDAM_TEST_STORE";

/// The variable by which a process that a test starts gets the database of its home.
pub const URL: &str = "COFFERDAM_TEST_STORE_URL";

/// True if the audit logs of tests are in PostgreSQL.
///
/// # Panics
/// Another store is named.
#[must_use]
pub fn is_postgres() -> bool {
    match std::env::var(STORE).as_deref() {
        Ok("postgres") => true,
        Ok("embedded") | Err(_) => false,
        Ok(other) => panic!("{STORE} is {other}: write `embedded` or `postgres`"),
    }
}

/// The URL of the database with the audit log of this home; none if the log is in the home.
///
/// # Panics
/// There is no PostgreSQL.
#[must_use]
pub fn url_of(home: &Path) -> Option<String> {
    static URLS: Mutex<Option<HashMap<PathBuf, String>>> = Mutex::new(None);
    if !is_postgres() {
        return None;
    }
    if let Ok(url) = std::env::var(URL) {
        return Some(url);
    }
    let mut urls = URLS.lock().expect("no test panics here");
    let urls = urls.get_or_insert_default();
    let make = || Postgres::shared(&Tools::find().expect("tests/services/tools/install.sh")).database();
    Some(urls.entry(home.to_owned()).or_insert_with(make).clone())
}

/// The lines of the journals of this home by their writers; none if they are in the home.
///
/// # Panics
/// They cannot be read.
#[must_use]
pub fn journals_of(home: &Path) -> Option<Vec<(String, Vec<String>)>> {
    let url = url_of(home)?;
    let server = Postgres::shared(&Tools::find().expect("tests/services/tools/install.sh"));
    let database = url.rsplit('/').next().unwrap_or_default();
    let mut journals = Vec::<(String, Vec<String>)>::new();
    if server.psql(database, "SELECT to_regclass('cofferdam.entries')").is_empty() {
        return Some(journals);
    }
    let rows = server.psql(database, "SELECT writer, line FROM cofferdam.entries ORDER BY writer, n");
    for (writer, line) in rows.lines().filter_map(|row| row.split_once('|')) {
        match journals.last_mut().filter(|(last, _)| last == writer) {
            Some((_, lines)) => lines.push(line.to_owned()),
            None => journals.push((writer.to_owned(), vec![line.to_owned()])),
        }
    }
    Some(journals)
}

/// The builder of a host in this home, at the machine's own time.
///
/// # Panics
/// There is no PostgreSQL.
#[must_use]
pub fn with_log(builder: HostBuilder, home: &Path) -> HostBuilder {
    match log_of(home, Arc::new(SystemClock)) {
        Some(log) => shared(builder, log),
        None => builder,
    }
}

/// The builder of a host with this audit log, and the approvals beside it.
pub(crate) fn shared(builder: HostBuilder, log: Arc<PostgresLog>) -> HostBuilder {
    builder.approval_store(Arc::<PostgresLog>::clone(&log)).audit_log(log)
}

/// The audit log of a host in this home with this clock, by which the log goes, too; none if it is in the home.
///
/// # Panics
/// There is no PostgreSQL.
#[must_use]
pub fn log_of(home: &Path, clock: Arc<dyn Clock>) -> Option<Arc<PostgresLog>> {
    let url = DatabaseSettings::parse(&url_of(home)?, false).expect("a URL");
    let database = Database::new(url, default_tls([]).expect("TLS"), home);
    let settings = PostgresSettings { follows_clock: true, ..PostgresSettings::new("test") };
    Some(Arc::new(PostgresLog::new(database, home, settings, clock)))
}
