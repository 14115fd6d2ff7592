//! The file of the index: private to its owner, opened the same way each time, and used only as a host left it.
//!
//! SQLite does not notice every change of its file. So the file beside it, the stamp, has what the system says about the
//! database since a host last wrote to it: size, inode and times. A database with another stamp is made again. The
//! database itself changes only when its write-ahead log is copied into it, which processes do one at a time and
//! then write the stamp. (The write-ahead log has checksums.)

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::private_file::{self, FileLock, FilePolicy, StagedFile};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{AuditError, AuditErrorKind};
use crate::settings::BUSY_TIMEOUT;
use crate::sqlite_file;

/// The version of the schema and of what is stored in it.
pub(super) const FORMAT_VERSION: i64 = 6;

/// The number in `application_id` by which the file is known: `cfdi`.
const APPLICATION: i64 = 0x6366_6469;

/// The file, the stamp, and the lock of those that open, copy or replace them, in the directory of the journals.
pub(crate) const FILE: &str = "index.db";
const STAMP: &str = "index.stamp";
const LOCK: &str = "index.lock";

/// The endings of the files that SQLite keeps beside the database and opens by name.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// Other users may neither read nor write the calls in it.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);
const STAMP_POLICY: FilePolicy = FilePolicy::trusted(1024);

/// The stamp while the write-ahead log is copied into the database. If the process is killed meanwhile, the log is still
/// whole.
const COPYING: &str = "copying";

/// The length of the write-ahead log from which it is copied into the database.
const LOG_BYTES: u64 = 16 * 1024 * 1024;

/// The connection to an index, in a file or in memory.
pub(super) struct IndexFile {
    pub(super) connection: Connection,
    /// None in memory.
    place: Option<FilePlace>,
}

/// The place of the file that is open.
struct FilePlace {
    root: PathBuf,
    /// The device and the number of the file.
    opened: (u64, u64),
}

impl IndexFile {
    /// Opens the index of the journals below `root`, or creates it. One that no host left so is replaced by an empty
    /// one.
    pub(super) fn open(root: &Path) -> Result<Self, AuditError> {
        Self::open_unless(root, |there| match there {
            None => Ok(None),
            Some(_) => unfit(root),
        })
    }

    /// Replaces the index by an empty one, unless another process did since this one opened it.
    pub(super) fn replace(&mut self, reason: &str) -> Result<(), AuditError> {
        let Some(FilePlace { root, opened }) = &self.place else {
            *self = Self::in_memory()?;
            return Ok(());
        };
        *self = Self::open_unless(root, |there| match there == Some(*opened) {
            true => Ok(Some(reason.to_owned())),
            false => unfit(root),
        })?;
        Ok(())
    }

    /// Creates an empty index in memory.
    pub(super) fn in_memory() -> Result<Self, AuditError> {
        let connection = Connection::open_in_memory()?;
        configure(&connection)?;
        create(&connection)?;
        Ok(Self { connection, place: None })
    }

    /// Opens the index, after it was removed if `unfit` returns a reason for that.
    fn open_unless(
        root: &Path,
        unfit: impl FnOnce(Option<(u64, u64)>) -> Result<Option<String>, AuditError>,
    ) -> Result<Self, AuditError> {
        let path = root.join(FILE);
        let _lock = lock(root)?;
        check(&path)?;
        if let Some(reason) = unfit(file_at(&path)?)? {
            tracing::warn!(target: "cofferdam::audit", reason, "the index of the audit log is made again from the journals");
            remove(&path)?;
        }
        match open_existing(&path) {
            Ok(Some(connection)) => {
                let opened = file_at(&path)?.unwrap_or_default();
                return Ok(Self::at(connection, root, opened));
            }
            Ok(None) => {}
            Err(error) if error.kind() == AuditErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        // Nothing, or no index of this version.
        remove(&path)?;
        private_file::create_new(&path, b"", &POLICY).map_err(io::Error::from)?;
        write_stamp(root, COPYING)?;
        let connection = connect(&path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        create(&connection)?;
        write_stamp(root, &stamp_of(&path)?)?;
        let opened = file_at(&path)?.unwrap_or_default();
        Ok(Self::at(connection, root, opened))
    }

    fn at(connection: Connection, root: &Path, opened: (u64, u64)) -> Self {
        Self { connection, place: Some(FilePlace { root: root.to_owned(), opened }) }
    }

    /// Returns true if the open file is the one at its path.
    pub(super) fn is_in_place(&self) -> bool {
        self.place.as_ref().is_none_or(|place| {
            file_at(&place.root.join(FILE)).is_ok_and(|there| there == Some(place.opened))
        })
    }

    /// Copies the write-ahead log into the database if it is long, unless another process does.
    pub(super) fn copy_log(&self) -> Result<(), AuditError> {
        let log = self.place.as_ref().map(|place| companion(&place.root.join(FILE), "-wal"));
        match log.and_then(|log| fs::metadata(log).ok()) {
            Some(log) if log.len() >= LOG_BYTES => self.copy_log_now(),
            _ => Ok(()),
        }
    }

    pub(super) fn copy_log_now(&self) -> Result<(), AuditError> {
        let Some(FilePlace { root, .. }) = &self.place else { return Ok(()) };
        let lock =
            FileLock::try_acquire(&root.join(LOCK)).map_err(|error| AuditError::from_file(LOCK, error))?;
        if lock.is_none() || !self.is_in_place() {
            return Ok(());
        }
        write_stamp(root, COPYING)?;
        // Readers are not waited for: what they still need stays in the log.
        self.connection.busy_timeout(Duration::ZERO)?;
        let copied = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        // Where it was not copied, the database is as it was.
        write_stamp(root, &stamp_of(&root.join(FILE))?)?;
        match copied.map_err(AuditError::from) {
            Err(error) if error.kind() != AuditErrorKind::Locked => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns why the file is not as a host left it.
fn unfit(root: &Path) -> Result<Option<String>, AuditError> {
    let stamp = private_file::read(&root.join(STAMP), &STAMP_POLICY)
        .map_err(|error| AuditError::from_file(STAMP, error))?;
    let fits = stamp.is_some_and(|stamp| {
        stamp == COPYING.as_bytes() || stamp_of(&root.join(FILE)).is_ok_and(|own| stamp == own.as_bytes())
    });
    Ok((!fits).then(|| "the file was changed, and not by a host".to_owned()))
}

fn lock(root: &Path) -> Result<FileLock, AuditError> {
    let lock = FileLock::acquire(&root.join(LOCK), BUSY_TIMEOUT)
        .map_err(|error| AuditError::from_file(LOCK, error))?;
    lock.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "another process opens the index"))
}

/// Opens a file that exists; none if it is no index of this version.
fn open_existing(path: &Path) -> Result<Option<Connection>, AuditError> {
    if file_at(path)?.is_none() {
        return Ok(None);
    }
    let connection = connect(path)?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let fits = number("application_id")? == APPLICATION && number("user_version")? == FORMAT_VERSION;
    Ok(fits.then_some(connection))
}

fn connect(path: &Path) -> Result<Connection, AuditError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    configure(&connection)?;
    // The log is copied by `copy_log` only.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> Result<(), AuditError> {
    sqlite_file::distrust(connection)?;
    // A plan is made once: without this, statements on `calls` are prepared again for every value that is bound, since
    // some of its indexes are partial and the value could decide whether they can be used.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

fn create(connection: &Connection) -> Result<(), AuditError> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", FORMAT_VERSION)?;
    Ok(transaction.commit()?)
}

/// Refuses the file, and its companions, unless they are private: SQLite opens them by their names, and follows links.
fn check(path: &Path) -> Result<(), AuditError> {
    files(path).try_for_each(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        private_file::check(&path, &POLICY).map(drop).map_err(|error| AuditError::from_file(&name, error))
    })
}

fn remove(path: &Path) -> Result<(), AuditError> {
    files(path).try_for_each(|path| match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    })
}

fn files(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    [""].into_iter().chain(COMPANIONS).map(|ending| companion(path, ending))
}

fn companion(path: &Path, ending: &str) -> PathBuf {
    let mut companion = path.as_os_str().to_owned();
    companion.push(ending);
    companion.into()
}

fn write_stamp(root: &Path, stamp: &str) -> Result<(), AuditError> {
    let write = || {
        let mut file = StagedFile::begin(&root.join(STAMP), &STAMP_POLICY)?.without_sync();
        file.write_all(stamp.as_bytes())?;
        file.replace()
    };
    Ok(write().map_err(io::Error::from)?)
}

fn stamp_of(path: &Path) -> Result<String, AuditError> {
    let file = fs::symlink_metadata(path)?;
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    Ok(format!("{} {} {} {times:?}", file.dev(), file.ino(), file.len()))
}

/// Returns the device and the number of the file; none if it does not exist.
fn file_at(path: &Path) -> Result<Option<(u64, u64)>, AuditError> {
    match fs::symlink_metadata(path) {
        Ok(file) => Ok(Some((file.dev(), file.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
