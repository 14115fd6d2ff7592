//! One writer at a time, among threads and processes; readers need no lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::error::RegistryError;

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Held while the package directory changes; the system lets go of it when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for its turn, up to half a minute: who holds it longer than that is stuck.
    pub(super) fn take(path: &Path) -> Result<Self, RegistryError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path).map_err(RegistryError::io("opening the lock file", path))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => std::thread::sleep(POLL),
                Err(TryLockError::WouldBlock) => return Err(RegistryError::Locked { path: path.to_owned() }),
                Err(TryLockError::Error(error)) => return Err(RegistryError::io("locking", path)(error)),
            }
        }
    }
}
