//! Liveness of hosts: each host holds a lock on a file of its own, which the kernel releases however the host
//! ends.
//!
//! A file is removed only when its host has no open call any more. If it is missing although there is an open
//! call, it was deleted from outside, or lost with a disk. That alone does not prove that the host is dead: a
//! living host creates its file again before it writes, and at least every second while a call is open. So a
//! host that finds a file missing writes a mark in its place. Only a mark that is older than [`PATIENCE`] and
//! was not replaced proves that the host is dead.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_core::private_file::{self, FileError, FileLock, FilePolicy, StagedFile};
use rusqlite::Connection;

const POLICY: FilePolicy = FilePolicy::trusted(u64::MAX);

/// The time for which a file must have been missing. It is longer than a living host takes to create it again,
/// including its waits for other writers and for a slow disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of no host, so that its calls are those of one that is gone.
pub(super) const NOBODY: &str = "nobody";

/// The content of a mark; the file of a host is empty.
const MARK: &[u8] = b"missing\n";

/// Most files of dead hosts that one host looks at.
const MOST: usize = 1_000;

/// The time to wait for a lock that another process tests.
const LOOKED_AT: Duration = Duration::from_millis(200);

/// The sign of life of this host.
pub(super) struct Life {
    name: String,
    path: PathBuf,
    lock: FileLock,
}

impl Life {
    /// Makes the file, and locks it.
    pub(super) fn begin(dir: &Path) -> io::Result<Self> {
        let name = uuid::Uuid::now_v7().to_string();
        let path = dir.join(&name);
        Ok(Self { name, lock: claim(&path)?, path })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes the file again if it is not there any more.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        if self.lock.is_at(&self.path)? {
            return Ok(());
        }
        tracing::warn!(target: "cofferdam::audit", "this host's file in `running` was removed: it is made again");
        self.lock = claim(&self.path)?;
        Ok(())
    }

    /// Ends it, where no call of this host is open. Without that, what is left behind is found unlocked.
    pub(super) fn end(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates and locks the file, or takes back the mark that another process put in its place.
fn claim(path: &Path) -> io::Result<FileLock> {
    match FileLock::create_new(path).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let lock = FileLock::acquire(path, LOOKED_AT)?
        .ok_or_else(|| io::Error::other("this host's file in `running` is locked by somebody else"))?;
    lock.clear()?;
    Ok(lock)
}

/// Opens the file of a host to look at its lock, for which reading is enough, also where nothing can be written.
fn look(path: &Path) -> Result<Option<File>, FileError> {
    Ok(private_file::open(path, &POLICY)?.map(private_file::PrivateFile::into_file))
}

/// Returns true if the host of this name, which has an open call, is still alive. If that cannot be determined,
/// it counts as alive: nothing is repeated on a guess.
pub(super) fn lives(dir: &Path, name: &str) -> bool {
    // Names come from the record, and are looked up as nothing but ids.
    let Ok(id) = uuid::Uuid::try_parse(name) else { return false };
    let path = dir.join(id.to_string());
    match look(&path) {
        Ok(Some(file)) => match file.try_lock_shared() {
            Ok(()) => is_missed_lately(&file),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
        },
        Ok(None) => {
            if let Err(error) = mark(&path) {
                tracing::debug!(target: "cofferdam::audit", %error, "that a file is missing cannot be marked");
            }
            true
        }
        Err(_) => true,
    }
}

/// Returns true if the host of this name, which has no open call, holds its file.
pub(super) fn holds(dir: &Path, name: &str) -> bool {
    let Ok(id) = uuid::Uuid::try_parse(name) else { return false };
    match look(&dir.join(id.to_string())) {
        Ok(file) => file.is_some_and(|file| file.try_lock_shared().is_err()),
        Err(_) => true,
    }
}

fn mark(path: &Path) -> io::Result<()> {
    let mut file = StagedFile::begin(path, &POLICY)?.without_sync();
    file.write_all(MARK)?;
    match file.create_new().map_err(io::Error::from) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn is_missed_lately(file: &File) -> bool {
    let Ok(there) = file.metadata() else { return true };
    if there.len() == 0 {
        return false;
    }
    match there.modified().ok().and_then(|at| at.elapsed().ok()) {
        Some(since) => since < PATIENCE,
        // The clock was set back: it counts anew.
        None => {
            let _ = file.set_modified(SystemTime::now());
            true
        }
    }
}

/// Removes the files of hosts that are gone and that nothing is to be known of any more.
pub(super) fn sweep(dir: &Path, is_needed: impl Fn(&str) -> bool) {
    let Ok(files) = fs::read_dir(dir) else { return };
    for file in files.flatten().take(MOST) {
        let name = file.file_name();
        let Some(name) = name.to_str().filter(|name| uuid::Uuid::try_parse(name).is_ok()) else { continue };
        let Ok(Some(lock)) = look(&file.path()) else { continue };
        if lock.try_lock().is_ok() && !is_needed(name) {
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Returns true if a call of this host has no end, or if that cannot be determined.
pub(super) fn has_open_calls(connection: &Connection, owner: &str) -> bool {
    let select = "SELECT 1 FROM calls JOIN owners ON owners.id = calls.owner \
                  WHERE calls.verdict = 0 AND owners.name = ?1";
    connection.prepare_cached(select).and_then(|mut select| select.exists([owner])).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_missing_lock_file_means_death_only_later() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("running");
        let mut life = Life::begin(&dir).unwrap();
        let name = life.name().to_owned();
        fs::remove_dir_all(&dir).unwrap();
        assert!(lives(&dir, &name), "it is missed");
        // There is a mark now: checking again shows nothing new until the mark is old enough.
        assert!(lives(&dir, &name));
        let later = SystemTime::now() - PATIENCE - PATIENCE;
        let set = |at| File::options().write(true).open(dir.join(&name)).unwrap().set_modified(at).unwrap();
        set(later);
        assert!(!lives(&dir, &name));
        // A clock that was set back.
        set(SystemTime::now() + PATIENCE * 60);
        assert!(lives(&dir, &name));
        set(later);
        // The host takes the mark.
        life.hold().unwrap();
        assert!(lives(&dir, &name));
        assert_eq!(fs::metadata(dir.join(&name)).unwrap().len(), 0);
        drop(life);
        assert!(!lives(&dir, &name), "killed");
    }

    #[test]
    fn unneeded_files_of_dead_hosts_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let [living, needed, dead, ended] = [(); 4].map(|()| Life::begin(dir.path()).unwrap());
        let names = [&living, &needed, &dead].map(|life| life.name().to_owned());
        ended.end();
        drop((needed, dead));
        fs::write(dir.path().join("notes"), "mine").unwrap();
        sweep(dir.path(), |name| name == names[1]);
        let there = |name: &str| dir.path().join(name).exists();
        assert_eq!(names.each_ref().map(|name| there(name)), [true, true, false]);
        assert!(there("notes"));
        assert!(holds(dir.path(), &names[0]) && !holds(dir.path(), &names[1]));
    }
}
