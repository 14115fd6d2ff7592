//! The host's own secret, 32 random bytes in a file of its owner's: created once, never repaired silently.
//!
//! Every use has a key of its own, derived for its purpose: the code cache's MAC, the seal of recorded
//! results, the signature of the audit log's checkpoints. A key that other users could read or write proves
//! nothing. Therefore a file that is not private to the owner is rejected, with instructions for the repair.

use std::io;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::private_file::{self, FileError, FileFault, FilePolicy};

const KEY_BYTES: usize = 32;

/// A key has a fixed size, which is checked when it is read.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file exists and is not private.
    #[error(
        "host.key {0}: if nobody else has read it, `chmod 600` it and own it; else move it away, and a new one is made"
    )]
    Unsafe(FileFault),
    /// The file has another size.
    #[error(
        "host.key does not have 32 bytes: put it back from a backup, or move it away, and a new one is made"
    )]
    Size,
    /// The file is missing, and data that depends on it exists.
    #[error(
        "host.key is missing, with which the audit log there is sealed and signed: put it back from a backup; or move \
         the directory audit and home.state away, and a new key and a new audit log are made"
    )]
    Missing,
    /// The file system reported an error.
    #[error("host.key: {0}")]
    Io(#[from] io::Error),
}

impl From<FileError> for HostKeyError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Refused(fault) => Self::Unsafe(fault),
            FileError::Io(error) | FileError::Unsynced(error) => Self::Io(error),
        }
    }
}

/// The signed statement about the audit log, which is written after the key and before the log's first entry, and proves
/// nothing under another key.
const STATEMENT: &str = "audit/checkpoint";

/// Returns whether the directory has a file that proves nothing without its key.
fn is_needed(path: &Path) -> io::Result<bool> {
    path.with_file_name(STATEMENT).try_exists()
}

/// Reads the key, or creates it on first use with mode 0600. A lost key is not replaced: under a new one, the
/// existing audit log would look like that of another host, and be treated as such.
pub fn load_or_create(path: &Path) -> Result<[u8; KEY_BYTES], HostKeyError> {
    match read_or_missing(path)? {
        Some(key) => Ok(key),
        None if !is_needed(path)? => make(path),
        // Another process may have created both in between, the key first.
        None => read_or_missing(path)?.ok_or(HostKeyError::Missing),
    }
}

/// Reads the key without creating one.
pub fn read(path: &Path) -> Result<[u8; KEY_BYTES], HostKeyError> {
    read_or_missing(path)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
}

fn read_or_missing(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, HostKeyError> {
    let Some(file) = private_file::open(path, &POLICY)? else { return Ok(None) };
    file.read_key()?.map(|key| Some(*key)).ok_or(HostKeyError::Size)
}

fn make(path: &Path) -> Result<[u8; KEY_BYTES], HostKeyError> {
    let mut key = [0u8; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::from)?;
    match private_file::create_new(path, &key, &POLICY) {
        Ok(()) => Ok(key),
        // Another process was faster: its key is the host's.
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error.into()),
    }
}

/// Returns a MAC under the host's key.
pub fn hmac(key: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
    // HMAC pads a key to its block with zeros; doing it here leaves no error to handle.
    let mut block = [0u8; 64];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    Hmac::<Sha256>::new(&block.into())
}

/// Derives a key for one purpose: HMAC-SHA256 of its name under the host's key.
pub fn derived(host_key: &[u8; KEY_BYTES], purpose: &[u8]) -> [u8; 32] {
    let mut mac = hmac(host_key);
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
    fn the_key_is_created_once_and_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/host.key");
        let key = load_or_create(&path).unwrap();
        assert_eq!(load_or_create(&path).unwrap(), key);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 32));
        fs::remove_file(&path).unwrap();
        assert_ne!(load_or_create(&path).unwrap(), key);
        // No key is created if an audit log exists under a lost one.
        fs::remove_file(&path).unwrap();
        let statement = path.with_file_name(STATEMENT);
        fs::create_dir(statement.parent().unwrap()).unwrap();
        fs::write(&statement, "").unwrap();
        assert!(matches!(load_or_create(&path), Err(HostKeyError::Missing)));
        assert!(!path.exists());
        fs::remove_file(&statement).unwrap();
        load_or_create(&path).unwrap();
    }

    #[test]
    fn an_exposed_key_is_refused_and_untouched() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("host.key");
        let refused = |what: &str| {
            let error = load_or_create(&path).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("move it away"), "{error}");
            assert!(!error.contains(home.path().to_str().unwrap()), "{error}");
        };
        load_or_create(&path).unwrap();
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
