//! The host's own secret, 32 random bytes in a file of its owner's: made once, never mended in silence.
//!
//! Everything under it has a key of its own, derived for its purpose: the code cache's MAC, the seal of recorded
//! results, the signature of the record's checkpoints. A key that others could read, or could have written, proves
//! nothing any more. So a file that is not the owner's alone is refused with what to do about it.

use std::io::{self, Read as _};
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::private_file::{self, FileError, FileFault, FilePolicy};

const KEY_BYTES: usize = 32;

/// A key has one size, which is checked when it is read.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is there and is not what it must be.
    #[error(
        "host.key {0}: if nobody else has read it, `chmod 600` it and own it; else move it away, and a new one is made"
    )]
    Unsafe(FileFault),
    /// It is a file of another kind.
    #[error(
        "host.key does not have 32 bytes: put it back from a backup, or move it away, and a new one is made"
    )]
    Size,
    /// It is gone, and what stands under it is there.
    #[error(
        "host.key is missing, under which the record there is sealed and signed: put it back from a backup; or move \
         audit.db, those beside it, audit.checkpoint and home.state away, and a new key and a new record are made"
    )]
    Missing,
    /// The file system refuses.
    #[error("host.key: {0}")]
    Io(#[from] io::Error),
}

impl From<FileError> for KeyError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Refused(fault) => Self::Unsafe(fault),
            FileError::Io(error) | FileError::Unsynced(error) => Self::Io(error),
        }
    }
}

/// What is made after the key, in the same directory, and proves nothing under another: the record, which SQLite marks
/// in its first bytes, and the newest statement about it.
const RECORD: &str = "audit.db";
const STATEMENT: &str = "audit.checkpoint";
const MARK: (usize, &[u8]) = (68, b"cfdm");

/// Whether something stands in the directory that proves nothing without its key.
fn is_needed(path: &Path) -> io::Result<bool> {
    if path.with_file_name(STATEMENT).try_exists()? {
        return Ok(true);
    }
    let mut first = Vec::new();
    match private_file::open(&path.with_file_name(RECORD), &POLICY) {
        Ok(Some(file)) => drop(file.into_file().take(100).read_to_end(&mut first)?),
        // Never made by the host.
        Ok(None) | Err(FileError::Refused(FileFault::SymbolicLink | FileFault::NotRegular)) => {}
        // It may be the audit log, with a mode or an owner that has to be repaired.
        Err(FileError::Refused(_)) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    Ok(first.get(MARK.0..).is_some_and(|from| from.starts_with(MARK.1)))
}

/// Reads the key, or makes it on first use, with mode 0600. Where it was lost none is made: under a new one the record
/// that is there would look like a stranger's, and be treated as one.
pub fn read_or_make(path: &Path) -> Result<[u8; KEY_BYTES], KeyError> {
    match read_or_missing(path)? {
        Some(key) => Ok(key),
        None if !is_needed(path)? => make(path),
        // Another process may have made both in between, the key first.
        None => read_or_missing(path)?.ok_or(KeyError::Missing),
    }
}

/// Reads the key, and makes none.
pub fn read(path: &Path) -> Result<[u8; KEY_BYTES], KeyError> {
    read_or_missing(path)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
}

fn read_or_missing(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, KeyError> {
    let Some(file) = private_file::open(path, &POLICY)? else { return Ok(None) };
    file.read_key()?.map(|key| Some(*key)).ok_or(KeyError::Size)
}

fn make(path: &Path) -> Result<[u8; KEY_BYTES], KeyError> {
    let mut key = [0u8; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::from)?;
    match private_file::create_new(path, &key, &POLICY) {
        Ok(()) => Ok(key),
        // Another process was first: its key is the host's.
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error.into()),
    }
}

/// A MAC under the host's key.
pub fn keyed(key: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
    // HMAC pads a key to its block with zeros; doing it here leaves no error to handle.
    let mut block = [0u8; 64];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    Hmac::<Sha256>::new(&block.into())
}

/// A key for one purpose: HMAC-SHA256 of its name under the host's.
pub fn derived(host_key: &[u8; KEY_BYTES], purpose: &[u8]) -> [u8; 32] {
    let mut mac = keyed(host_key);
    mac.update(purpose);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_made_once_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/host.key");
        let key = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), key);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 32));
        fs::remove_file(&path).unwrap();
        assert_ne!(read_or_make(&path).unwrap(), key);
        // Not where a record stands under the one that is gone.
        for (name, bytes) in [(RECORD, [&[0; 68][..], b"cfdm", &[0; 100]].concat()), (STATEMENT, Vec::new())]
        {
            fs::remove_file(&path).unwrap();
            let file = path.with_file_name(name);
            fs::write(&file, bytes).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(read_or_make(&path), Err(KeyError::Missing)), "{name}");
            assert!(!path.exists());
            // What is somebody else's, or nothing yet, stands under no key.
            fs::remove_file(&file).unwrap();
            let other = path.with_file_name(RECORD);
            fs::write(&other, [7; 100]).unwrap();
            fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
            read_or_make(&path).unwrap();
        }
    }

    #[test]
    fn a_key_that_is_not_the_owners_alone_is_refused_and_left_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("host.key");
        let refused = |what: &str| {
            let error = read_or_make(&path).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("move it away"), "{error}");
            assert!(!error.contains(home.path().to_str().unwrap()), "{error}");
        };
        read_or_make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        refused("by others");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&path, home.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        refused("is a symbolic link");
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        refused("is not a regular file");
        fs::remove_file(&path).unwrap();
        for size in [0, 31, 33, 1 << 20] {
            fs::write(&path, vec![7; size]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            refused("32 bytes");
        }
    }
}
