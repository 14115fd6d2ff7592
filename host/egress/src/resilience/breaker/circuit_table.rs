//! The table of circuits: a small SQLite database in the home directory, which all processes share.
//!
//! The state of a breaker is advice. A power failure may lose it, so nothing waits for the disk; a database
//! that is damaged is replaced by an empty one; and no operation waits for another process longer than its
//! caller says. The journal is SQLite's default, not a write-ahead log: every change then shows in the
//! fingerprint of the one file, and a process that was stopped while it wrote leaves nothing behind that has
//! to be mapped into memory.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy, StagedFile};
use cofferdam_model::manifest::ConnectorName;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Params, TransactionBehavior, params,
};

use super::circuit::Circuit;

/// A larger file is not read, and replaced: it has the state of tens of thousands of hosts.
const POLICY: FilePolicy = FilePolicy::trusted(64 << 20);

/// The version of the schema, in `user_version`. A file of another version counts as damaged.
const VERSION: i64 = 1;

/// Made in one transaction, since another process may be making it.
const SCHEMA: &str = "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS circuits (connector TEXT NOT NULL, \
                      host TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (connector, host)) STRICT, \
                      WITHOUT ROWID; PRAGMA user_version = 1; COMMIT";

/// The identity of one circuit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CircuitKey {
    pub(super) connector: ConnectorName,
    /// The `host:port`.
    pub(super) host: String,
}

/// Circuits by connector and host, and the number of entries that hold none.
pub(super) type CircuitRows = (Vec<(CircuitKey, Circuit)>, usize);

/// The reason why the table could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TableError {
    /// Another process uses it.
    #[error("another process is writing there")]
    Busy,
    /// The file, or its content, is not what this program writes; nothing of it is worth keeping.
    #[error("{0}")]
    Damaged(String),
    /// The system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The table at a path.
#[derive(Debug)]
pub(super) struct CircuitTable {
    path: PathBuf,
}

impl CircuitTable {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the state of the file, which every change of the table changes; `None` if there is none.
    pub(super) fn fingerprint(&self) -> Option<FileFingerprint> {
        private_file::fingerprint_of(&self.path)
    }

    /// Returns the circuit; `None` if it is in its initial state.
    pub(super) fn get(&self, key: &CircuitKey, patience: Duration) -> Result<Option<Circuit>, TableError> {
        match state(&self.open(patience)?, key)? {
            None => Ok(None),
            Some(text) => parse(&text)
                .map(Some)
                .ok_or_else(|| TableError::Damaged("its row is not a circuit".to_owned())),
        }
    }

    /// Changes the circuit atomically among all processes. A damaged one is in its initial state before.
    pub(super) fn change<T>(
        &self,
        key: &CircuitKey,
        patience: Duration,
        change: impl Fn(&mut Circuit) -> T,
    ) -> Result<T, TableError> {
        self.repaired(|| {
            let mut connection = self.open(patience)?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut circuit = state(&transaction, key)?.as_deref().and_then(parse).unwrap_or_default();
            let outcome = change(&mut circuit);
            let (connector, host) = (key.connector.as_str(), &key.host);
            if circuit.is_pristine() {
                let delete = "DELETE FROM circuits WHERE connector = ? AND host = ?";
                transaction.execute(delete, params![connector, host])?;
            } else {
                let state = serde_json::to_string(&circuit).map_err(io::Error::from)?;
                let insert = "INSERT OR REPLACE INTO circuits (connector, host, state) VALUES (?, ?, ?)";
                transaction.execute(insert, params![connector, host, state])?;
            }
            transaction.commit()?;
            Ok(outcome)
        })
    }

    /// Returns every row. A damaged database has none.
    pub(super) fn rows(&self, patience: Duration) -> Result<CircuitRows, TableError> {
        match self.query(patience, "SELECT connector, host, state FROM circuits", []) {
            Err(TableError::Damaged(_)) => Ok((Vec::new(), 1)),
            rows => rows,
        }
    }

    /// Removes the rows of this connector at this host, or of all, and returns them. A damaged database is
    /// removed.
    pub(super) fn remove(
        &self,
        connector: Option<&str>,
        host: Option<&str>,
        patience: Duration,
    ) -> Result<CircuitRows, TableError> {
        let delete = "DELETE FROM circuits WHERE (?1 IS NULL OR connector = ?1) AND (?2 IS NULL OR host = ?2) \
                      RETURNING connector, host, state";
        match self.query(patience, delete, params![connector, host]) {
            Err(TableError::Damaged(_)) => self.discard().map(|()| (Vec::new(), 1)).map_err(TableError::from),
            rows => rows,
        }
    }

    fn query(&self, patience: Duration, sql: &str, params: impl Params) -> Result<CircuitRows, TableError> {
        if !private_file::check(&self.path, &POLICY)? {
            return Ok(CircuitRows::default());
        }
        let connection = self.open(patience)?;
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map(params, |row| {
            let (connector, host, state): (String, String, String) = row.try_into()?;
            let key = ConnectorName::parse(&connector).ok().map(|connector| CircuitKey { connector, host });
            Ok(key.zip(parse(&state)))
        })?;
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        let all = rows.len();
        let mut circuits: Vec<_> = rows.into_iter().flatten().collect();
        circuits.sort_by(|(a, _), (b, _)| a.cmp(b));
        let damaged = all.saturating_sub(circuits.len());
        Ok((circuits, damaged))
    }

    /// Opens the database, which is created if it does not exist.
    fn open(&self, patience: Duration) -> Result<Connection, TableError> {
        // SQLite opens both by their names, and would follow links and wait for pipes.
        if !private_file::check(&self.path, &POLICY)? {
            let created = StagedFile::begin(&self.path, &POLICY)?.without_sync().create_new();
            match created.map_err(io::Error::from) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
        }
        private_file::check(&self.journal(), &POLICY)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(patience)?;
        connection.pragma_update(None, "synchronous", "off")?;
        match connection.pragma_query_value(None, "user_version", |row| row.get(0))? {
            0 => connection.execute_batch(SCHEMA)?,
            VERSION => {}
            version => return Err(TableError::Damaged(format!("it has version {version}"))),
        }
        Ok(connection)
    }

    /// Does it again with an empty database if the database is damaged.
    fn repaired<T>(&self, attempt: impl Fn() -> Result<T, TableError>) -> Result<T, TableError> {
        match attempt() {
            Err(TableError::Damaged(_)) => {
                self.discard()?;
                attempt()
            }
            outcome => outcome,
        }
    }

    /// Removes the database. Its journal goes first: it must not be applied to the next database.
    fn discard(&self) -> io::Result<()> {
        [self.journal(), self.path.clone()].iter().try_for_each(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }

    fn journal(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push("-journal");
        path.into()
    }
}

fn state(connection: &Connection, key: &CircuitKey) -> Result<Option<String>, TableError> {
    let select = "SELECT state FROM circuits WHERE connector = ? AND host = ?";
    let row = connection.query_row(select, params![key.connector.as_str(), key.host], |row| row.get(0));
    Ok(row.optional()?)
}

/// Parses the stored state; returns `None` if no program of this version wrote it.
fn parse(text: &str) -> Option<Circuit> {
    serde_json::from_str(text).ok().filter(Circuit::is_valid)
}

impl From<rusqlite::Error> for TableError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            // A statement that SQLite does not understand, or a value of another type: the schema is another.
            None | Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
                Self::Damaged(error.to_string())
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                io::Error::new(io::ErrorKind::PermissionDenied, error).into()
            }
            Some(_) => io::Error::other(error).into(),
        }
    }
}

impl From<FileError> for TableError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Refused(FileFault::Directory { .. }) | FileError::Io(_) | FileError::Unsynced(_) => {
                Self::Io(error.into())
            }
            FileError::Refused(fault) => Self::Damaged(format!("it {fault}")),
        }
    }
}

impl From<TableError> for io::Error {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Io(error) => error,
            TableError::Busy => Self::new(io::ErrorKind::ResourceBusy, error),
            TableError::Damaged(_) => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}
