//! Which hosts live: each holds a lock on a file of its own, which the kernel lets go of however the host ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The sign of life of this host.
pub(super) struct Life {
    name: String,
    path: PathBuf,
    // Locked until it is closed.
    _file: File,
}

impl Life {
    /// Makes the file, and locks it.
    pub(super) fn begin(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let name = uuid::Uuid::now_v7().to_string();
        let path = dir.join(&name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.lock()?;
        Ok(Self { name, path, _file: file })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // What is left behind is found unlocked, and says the same.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the host of this name still lives. What cannot be told counts as living: nothing is done twice on a guess.
pub(super) fn lives(dir: &Path, name: &str) -> bool {
    // Names come from the record, and are looked up as nothing but ids.
    let Ok(id) = uuid::Uuid::try_parse(name) else { return false };
    match OpenOptions::new().write(true).open(dir.join(id.to_string())) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
        },
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
