//! The newest signed statement in a file beside the record: what a record that was cut short is missed by.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failpoint;
use crate::host_key::open_plain;

/// Longest file that is read, in bytes.
const BYTES: u64 = 64 * 1024;

/// The file `audit.checkpoint` of a home directory.
#[derive(Debug, Clone)]
pub(crate) struct Anchor {
    dir: PathBuf,
}

impl Anchor {
    pub(crate) fn of(home: &Path) -> Self {
        Self { dir: home.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("audit.checkpoint")
    }

    /// What it says, if it is there; what cannot be read as text is given back as a text that is no statement.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub(crate) fn read(&self) -> io::Result<Option<String>> {
        let file = match open_plain(&self.path()) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Some(String::new())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Ok(Some(String::new()));
        }
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(Some(String::from_utf8(bytes).unwrap_or_default()))
    }

    /// Puts `note` in its place, whole or not at all; on the disk before this comes back if `power` is to be survived.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn write(&self, note: &str, power: bool) -> io::Result<()> {
        let own = Permissions::from_mode(0o600);
        let mut file = tempfile::Builder::new().permissions(own).tempfile_in(&self.dir)?;
        file.write_all(note.as_bytes())?;
        if power {
            file.as_file().sync_all()?;
        }
        failpoint::pass("checkpoint.written");
        file.persist(self.path())?;
        if power {
            File::open(&self.dir)?.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs;

    use super::*;

    #[test]
    fn it_is_replaced_whole_and_what_is_no_file_is_no_statement() {
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
