//! The newest signed statement in a file beside the audit log: what a record that was cut short is missed by.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cofferdam_core::failpoint;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy, StagedFile};

use super::error::AuditError;

const POLICY: FilePolicy = FilePolicy::trusted(64 * 1024);

/// The file `audit.checkpoint` of a home directory.
#[derive(Debug, Clone)]
pub struct Anchor {
    dir: PathBuf,
}

impl Anchor {
    /// Returns the file of a home.
    pub fn of(home: &Path) -> Self {
        Self { dir: home.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("audit.checkpoint")
    }

    /// Returns the text of the file if it exists. Bytes that are not UTF-8 are returned as an empty text, which
    /// is no valid statement.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn read(&self) -> Result<Option<String>, AuditError> {
        match private_file::read(&self.path(), &POLICY) {
            Ok(bytes) => Ok(bytes.map(|bytes| String::from_utf8(bytes).unwrap_or_default())),
            // The host never made it.
            Err(FileError::Refused(
                FileFault::SymbolicLink | FileFault::NotRegular | FileFault::TooLarge { .. },
            )) => Ok(Some(String::new())),
            Err(error) => Err(AuditError::from_file("audit.checkpoint", error)),
        }
    }

    /// Puts `note` in its place, whole or not at all; on the disk before this comes back if `power` is to be survived.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn write(&self, note: &str, power: bool) -> io::Result<()> {
        let mut file = StagedFile::begin(&self.path(), &POLICY)?;
        if !power {
            file = file.without_sync();
        }
        file.write_all(note.as_bytes())?;
        file.sync()?;
        failpoint::pass("checkpoint.written");
        Ok(file.replace()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_checkpoint_file_is_replaced_atomically() {
        let home = tempfile::tempdir().unwrap();
        let anchor = Anchor::of(home.path());
        assert_eq!(anchor.read().unwrap(), None);
        anchor.write("one\n", false).unwrap();
        anchor.write("two\n", true).unwrap();
        assert_eq!(anchor.read().unwrap().as_deref(), Some("two\n"));
        assert_eq!(fs::metadata(anchor.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        fs::rename(anchor.path(), home.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", anchor.path()).unwrap();
        assert_eq!(anchor.read().unwrap().as_deref(), Some(""));
        // Replaced, not followed.
        anchor.write("three\n", false).unwrap();
        assert_eq!(anchor.read().unwrap().as_deref(), Some("three\n"));
        assert_eq!(fs::read_to_string(home.path().join("other")).unwrap(), "two\n");
        fs::remove_file(anchor.path()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            anchor.path(),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert_eq!(anchor.read().unwrap().as_deref(), Some(""));
    }
}
