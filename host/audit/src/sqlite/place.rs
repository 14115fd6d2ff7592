//! The identity of the open files, by which a living host detects that its audit log was removed or replaced.
//!
//! Entries that a host writes into an unlinked file are lost. So before anything is answered, the files at the
//! paths are compared with those that were opened.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{AuditError, AuditErrorKind};

/// The files that SQLite opens: the database, its log, and its shared memory, which contains its locks.
const NAMES: [&str; 3] = ["audit.db", "audit.db-wal", "audit.db-shm"];

/// The files, as they are when they are opened: each by its device and its number.
pub(super) struct Place(Vec<(&'static str, PathBuf, (u64, u64))>);

impl Place {
    /// Those in this directory.
    pub(super) fn of(dir: &Path) -> io::Result<Self> {
        let file = |name: &'static str| {
            let path = dir.join(name);
            match fs::symlink_metadata(&path) {
                Ok(there) => Ok(Some((name, path, (there.dev(), there.ino())))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        NAMES.into_iter().filter_map(|name| file(name).transpose()).collect::<Result<_, _>>().map(Self)
    }

    /// Checks that the open files are the ones at their paths now.
    ///
    /// # Errors
    /// A file is missing, empty, or another one.
    pub(super) fn check(&self) -> Result<(), AuditError> {
        for (name, path, opened) in &self.0 {
            let same = match fs::symlink_metadata(path) {
                // The log is emptied as it is worked off; the file itself never is.
                Ok(there) => {
                    (there.dev(), there.ino()) == *opened && (*name != "audit.db" || there.len() > 0)
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(AuditError::from_io(error)),
            };
            if !same {
                return Err(replaced(format_args!("{name} is not the file that was opened")));
            }
        }
        Ok(())
    }
}

/// That the audit log is another than the one that was opened.
pub(super) fn replaced(what: impl std::fmt::Display) -> AuditError {
    AuditError::new(AuditErrorKind::Replaced, what)
}
