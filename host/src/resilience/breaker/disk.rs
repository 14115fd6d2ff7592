//! The files of circuits: read only where their owner alone could have put them, replaced whole, locked by the system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags};

use crate::stamp::FileStamp;

/// The largest file that is read, in bytes: what 16 refused credentials and 1000 failures take, many times over.
const MAX_BYTES: u64 = 256 * 1024;

/// Of the file at `path` now; none where there is none.
pub(super) fn stamp_of(path: &Path) -> Option<FileStamp> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok().as_ref().map(FileStamp::from)
}

/// What stands in the file, with the stamp from before it was read; none where there is no file.
pub(super) fn read(path: &Path) -> io::Result<Option<(FileStamp, Vec<u8>)>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    let others = meta.mode() & 0o022 != 0;
    if !meta.is_file() || others || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not a file that this user alone can write"));
    }
    if meta.len() > MAX_BYTES {
        return Err(io::Error::other("it is larger than any that was written"));
    }
    let stamp = FileStamp::from(&meta);
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(Some((stamp, text)))
}

/// Puts `text` in the file's place: whoever is killed at any instant leaves the old or the new. The turn must be
/// held. A power cut may lose it: a circuit that is forgotten is closed, and opens again at the next failures.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    remove(&temporary)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text).and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // If it stays, the next writer removes it.
        drop(fs::remove_file(&temporary));
    })
}

/// Removes the file, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A lock on a file, which the system lets go of when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// The turn to write in `dir`, which is made if it is not there; none while another has it.
    pub(super) fn turn(dir: &Path) -> io::Result<Option<Self>> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Self::attempt(&dir.join("lock"))
    }

    /// Whether somebody has the lock on the file at `path`.
    pub(super) fn is_held(path: &Path) -> bool {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The lock on the file at `path`, unless another has it: another process, or another of this one's.
    pub(super) fn attempt(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Who held it may have removed the file since it was opened: a lock on what is gone keeps nobody out.
        let own = FileStamp::from(&file.metadata()?);
        let is_it = stamp_of(path).is_some_and(|there| there.is_same_file(&own));
        Ok(is_it.then_some(Self { _file: file }))
    }
}
