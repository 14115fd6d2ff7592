//! The database file: made for its owner alone, opened the same way each time, brought to the newest version.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::LogSettings;
use crate::audit::error::{AuditError, AuditTrouble};

/// Every version, from the first on: what makes it of the one before. A released one is never edited.
const VERSIONS: [&str; 1] = [include_str!("v1.sql")];

/// The number in `application_id` by which the file is known: `cfdm`.
const APPLICATION: i64 = 0x6366_646d;

/// How long a reader waits for another process.
const BUSY: Duration = Duration::from_secs(2);

/// Opens the record for writing; makes it, or brings it to the newest version.
pub(super) fn open(path: &Path, settings: &LogSettings) -> Result<Connection, AuditError> {
    make(path).map_err(AuditError::from_io)?;
    plain(path)?;
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(settings.busy_timeout)?;
    // Before anything is changed in it.
    let there = version(&connection)?;
    ours(&connection, there)?;
    check(there)?;
    // Written once into the file, and then only looked at.
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Of this connection alone.
    connection.pragma_update(None, "synchronous", settings.durability.synchronous())?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.set_prepared_statement_cache_capacity(64);
    migrate(&mut connection)?;
    Ok(connection)
}

/// Opens the record for reading.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, AuditError> {
    let absent = || AuditError::new(AuditTrouble::Absent, "nothing was recorded yet");
    if !path.try_exists().map_err(AuditError::from_io)? {
        return Err(absent());
    }
    plain(path)?;
    // Reading takes part in the locks of the file, for which it has to write beside it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "query_only", true)?;
    ours(&connection, version(&connection)?)?;
    match check(version(&connection)?)? {
        // Made, and not filled yet.
        0 => Err(absent()),
        _ => Ok(connection),
    }
}

/// Refuses what is no file of its own: a link to one elsewhere, a directory, a pipe.
fn plain(path: &Path) -> Result<(), AuditError> {
    let kind = std::fs::symlink_metadata(path).map_err(AuditError::from_io)?.file_type();
    match (kind.is_file(), kind.is_symlink()) {
        (true, _) => Ok(()),
        (false, true) => {
            Err(AuditError::new(AuditTrouble::Corrupt, "audit.db is a link; put the file in its place"))
        }
        (false, false) => Err(AuditError::new(AuditTrouble::Corrupt, "audit.db is no file; move it away")),
    }
}

/// Refuses a database that is somebody else's.
fn ours(connection: &Connection, version: i64) -> Result<(), AuditError> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version) {
        (APPLICATION, _) => Ok(()),
        (0, 0) if tables == 0 => Ok(()),
        _ => Err(AuditError::new(
            AuditTrouble::Corrupt,
            "audit.db is another program's database; move it away",
        )),
    }
}

/// An empty file that nobody else can read; SQLite gives its companions the same mode.
fn make(path: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        // That there is a record at all survives a power cut, too.
        Ok(_) => File::open(dir)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn migrate(connection: &mut Connection) -> Result<(), AuditError> {
    if check(version(connection)?)? == VERSIONS.len() {
        return Ok(());
    }
    // Looked at again with the lock: another process may have been first.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = check(version(&transaction)?)?;
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

fn check(version: i64) -> Result<usize, AuditError> {
    let known = VERSIONS.len();
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(AuditError::new(
            AuditTrouble::TooNew,
            format!(
                "audit.db has version {version}, and this cofferdam knows up to {known}; use a newer one"
            ),
        )),
    }
}
