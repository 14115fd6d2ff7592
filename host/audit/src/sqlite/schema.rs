//! The database file: made for its owner alone, opened the same way each time, brought to the newest version.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use cofferdam_core::private_file::{self, FilePolicy};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::{LogSettings, at_rest};
use crate::error::{AuditError, AuditErrorKind};

/// Every version, from the first on: what makes it of the one before. A released one is never edited.
const VERSIONS: [&str; 2] = [include_str!("v1.sql"), include_str!("v2.sql")];

/// The number in `application_id` by which the file is known: `cfdm`.
const APPLICATION: i64 = 0x6366_646d;

/// Other users may neither read nor write the calls on record.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The endings of the files that SQLite keeps beside the database and opens by name.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// The maximum wait of a reader for another process.
const BUSY: Duration = Duration::from_secs(2);

/// Opens the audit log for writing; makes it, or brings it to the newest version.
pub(super) fn open(path: &Path, settings: &LogSettings) -> Result<Connection, AuditError> {
    make(path)?;
    plain(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    #[cfg(not(test))]
    let mut connection = Connection::open_with_flags(path, flags)?;
    #[cfg(test)]
    let mut connection = match settings.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
        None => Connection::open_with_flags(path, flags)?,
    };
    connection.busy_timeout(settings.busy_timeout)?;
    // Before anything is changed in it.
    ours(&connection)?;
    use_write_ahead_log(&connection, settings.busy_timeout)?;
    // Of this connection alone.
    connection.pragma_update(None, "synchronous", settings.durability.synchronous())?;
    // So that no copy of a text stays behind where a page is split, which pruning would not find.
    connection.pragma_update(None, "secure_delete", "fast")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    // Pages that many commits change are copied into the file once: 16 MiB of them may wait in the log.
    #[cfg(not(test))]
    connection.pragma_update(None, "wal_autocheckpoint", 4_096)?;
    // With a disk of its own a test sees to it that pages are copied often.
    #[cfg(test)]
    connection.pragma_update(
        None,
        "wal_autocheckpoint",
        if settings.vfs.is_some() { 1_000 } else { 4_096 },
    )?;
    connection.set_prepared_statement_cache_capacity(64);
    // A plan is made once: without this, statements on `calls` are prepared anew for every value that is bound, since
    // one of its indexes is partial and the value could have a say in whether that can be used.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// The pause before the database is asked again for write-ahead logging.
const SWITCH_PAUSE: Duration = Duration::from_millis(5);

/// Switches the database to write-ahead logging, which is written into its file once. While another process does the
/// same, SQLite reports a busy database at once and does not wait, so the wait is here.
fn use_write_ahead_log(connection: &Connection, busy_timeout: Duration) -> Result<(), AuditError> {
    let mut left = busy_timeout;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && left >= SWITCH_PAUSE =>
            {
                std::thread::sleep(SWITCH_PAUSE);
                left = left.saturating_sub(SWITCH_PAUSE);
            }
            switched => return Ok(switched?),
        }
    }
}

/// Opens the audit log for reading.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, AuditError> {
    let absent = || AuditError::new(AuditErrorKind::Absent, "nothing was recorded yet");
    if !path.try_exists().map_err(AuditError::from_io)? {
        return Err(absent());
    }
    plain(path)?;
    // Reading uses the locks of the file, and has to write next to it for that.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY));
    let opened = connection.map_err(AuditError::from).and_then(for_reading);
    let opened = match opened {
        Err(error) if at_rest::is_worth_a_try(&error) => at_rest::open(path, &error).and_then(for_reading),
        opened => opened,
    };
    match opened? {
        // Made, and not filled yet.
        (_, 0) => Err(absent()),
        (connection, _) => Ok(connection),
    }
}

/// A connection that only reads, and the version of what it reads.
fn for_reading(connection: Connection) -> Result<(Connection, usize), AuditError> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "query_only", true)?;
    let version = ours(&connection)?;
    Ok((connection, version))
}

/// Refuses the file, and its companions, unless they are private: SQLite opens them by their names, and follows
/// links.
fn plain(path: &Path) -> Result<(), AuditError> {
    check(path)?;
    COMPANIONS.iter().try_for_each(|ending| {
        let mut companion = path.as_os_str().to_owned();
        companion.push(ending);
        check(Path::new(&companion))
    })
}

fn check(path: &Path) -> Result<(), AuditError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    private_file::check(path, &POLICY).map(drop).map_err(|error| AuditError::from_file(&name, error))
}

/// Returns the version of the database. A foreign database, or one with a changed schema, is rejected.
fn ours(connection: &Connection) -> Result<usize, AuditError> {
    // Nothing that the file itself says is carried out: no trigger, no view, no function of a default or an index.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // As it is at one instant: another process may be making it.
    let connection = connection.unchecked_transaction()?;
    let there = version(&connection)?;
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let things = things(&connection)?;
    if application != APPLICATION && (application != 0 || there != 0 || !things.is_empty()) {
        return Err(AuditError::new(
            AuditErrorKind::Corrupt,
            "audit.db is another program's database; move it away",
        ));
    }
    let there = known(there)?;
    let made = made(there)?;
    if let Some((kind, name, ..)) = things.iter().find(|thing| !made.contains(thing)) {
        let what = format!("it has things in it that cofferdam did not make, like the {kind} {name:?}");
        return Err(AuditError::new(AuditErrorKind::Corrupt, what));
    }
    if let Some((kind, name, ..)) = made.iter().find(|thing| !things.contains(thing)) {
        return Err(AuditError::new(AuditErrorKind::Corrupt, format!("its {kind} {name:?} is gone")));
    }
    Ok(there)
}

/// A thing in a database: its kind, its name, its table, and the text that made it.
type Thing = (String, String, String, Option<String>);

fn things(connection: &Connection) -> rusqlite::Result<Vec<Thing>> {
    let mut select = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    rows.collect()
}

/// Returns the schema objects of a database of this version.
fn made(version: usize) -> Result<Vec<Thing>, AuditError> {
    static NEWEST: OnceLock<Vec<Thing>> = OnceLock::new();
    if version == VERSIONS.len()
        && let Some(newest) = NEWEST.get()
    {
        return Ok(newest.clone());
    }
    let connection = Connection::open_in_memory()?;
    for step in VERSIONS.iter().take(version) {
        connection.execute_batch(step)?;
    }
    let things = things(&connection)?;
    if version == VERSIONS.len() {
        let _ = NEWEST.set(things.clone());
    }
    Ok(things)
}

/// Creates an empty file for this user alone; SQLite gives its companions the same mode. That there is an audit log at
/// all survives a power cut, too.
fn make(path: &Path) -> Result<(), AuditError> {
    match private_file::create_new(path, b"", &POLICY).map_err(io::Error::from) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(AuditError::from_io(error)),
        _ => Ok(()),
    }
}

fn migrate(connection: &mut Connection) -> Result<(), AuditError> {
    if known(version(connection)?)? == VERSIONS.len() {
        return Ok(());
    }
    // Looked at again with the lock: another process may have been first.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = known(version(&transaction)?)?;
    for step in VERSIONS.iter().skip(from) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSIONS.len())?;
    transaction.commit()?;
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, AuditError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn known(version: i64) -> Result<usize, AuditError> {
    let newest = VERSIONS.len();
    match usize::try_from(version) {
        Ok(version) if version <= newest => Ok(version),
        _ => Err(AuditError::new(
            AuditErrorKind::TooNew,
            format!(
                "audit.db has version {version}, and this cofferdam knows up to {newest}; use a newer one"
            ),
        )),
    }
}

/// Merges the write-ahead log into the file, and empties it: overwritten data is still in it. Not while a
/// reader is active.
pub(super) fn empty_log(connection: &Connection, busy_timeout: Duration) {
    let emptied = connection
        .busy_timeout(Duration::ZERO)
        .and_then(|()| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        })
        .and_then(|busy| connection.busy_timeout(busy_timeout).map(|()| busy));
    if !matches!(emptied, Ok(0)) {
        tracing::debug!(target: "cofferdam::audit", ?emptied, "the log is not emptied");
    }
}
