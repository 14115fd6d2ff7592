//! Small databases in the directory of the audit log: created for this user alone, and moved away if they are damaged.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::AuditError;

/// Creates an empty file, unless there is one. SQLite would create it with the umask only.
pub(crate) fn create_private(path: &Path) -> Result<(), AuditError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// Lets nothing be carried out that the file itself says: no trigger, no view, no function of a default or an index.
pub(crate) fn distrust(connection: &Connection) -> Result<(), AuditError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(())
}

/// Moves a damaged database away, so that another one can be made. The names of its files end with these.
pub(crate) fn move_away(path: &Path, endings: &[&str]) -> Result<(), AuditError> {
    for ending in endings {
        let name = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            name.push(suffix);
            PathBuf::from(name)
        };
        match fs::rename(name(""), name(".damaged")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
