//! Turns among processes: who renews a token holds a lock, and who comes after finds it renewed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::vault::BindingName;

/// How long one waits for another process, 75 s: its issuer may take 30 s, and the vault's writers twice 20 s.
const POLLS: u32 = 7_500;
const POLL: Duration = Duration::from_millis(10);

/// A turn; over when it is dropped, or its process is gone.
pub(super) struct Turn {
    _lock: File,
}

/// Why there is no turn.
pub(super) enum NoTurn {
    /// Another process holds it, and for too long.
    Taken,
    /// The lock file cannot be had.
    Io(io::Error),
}

impl Turn {
    /// Waits for the turn to renew the token of `name`. Blocks.
    pub(super) fn take(dir: &Path, name: &BindingName) -> Result<Self, NoTurn> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(NoTurn::Io)?;
        // `+` stands in no part of a name.
        let file = dir.join(format!("{}.lock", name.to_string().replace('/', "+")));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let lock = options.open(file).map_err(NoTurn::Io)?;
        for _ in 0..POLLS {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { _lock: lock }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL),
                Err(TryLockError::Error(error)) => return Err(NoTurn::Io(error)),
            }
        }
        Err(NoTurn::Taken)
    }
}
