//! The vault's files: private files, replaced atomically under a lock.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FileFault, FileLock, FilePolicy, StagedFile};
use zeroize::Zeroizing;

use super::error::VaultError;
use super::seal::KEY_BYTES;

/// The largest vault, in bytes: thousands of bindings.
pub(super) const MAX_BYTES: u64 = 16 * 1024 * 1024;

const VAULT: FilePolicy = FilePolicy::secret(MAX_BYTES);

/// The operator may store the key elsewhere and link it, or have a service manager provide it.
const KEY: FilePolicy = FilePolicy::secret(u64::MAX).named().handed_over();

const NEW_KEY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The bytes that a change may add to a vault: new tokens, which are rarely longer.
const SLACK_BYTES: u64 = 64 * 1024;

/// Reads the current vault file; `None` if there is none.
pub(super) fn read_vault(path: &Path) -> Result<Option<(FileFingerprint, Vec<u8>)>, VaultError> {
    let what = format!("The vault ({})", name(path));
    let failed = |error| unreadable(&what, error);
    let Some(file) = private_file::open(path, &VAULT).map_err(failed)? else { return Ok(None) };
    let stamp = file.fingerprint();
    Ok(Some((stamp, file.read().map_err(failed)?)))
}

/// Reads the bytes of a key file; `None` if there is none.
pub(super) fn read_key(path: &Path) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, VaultError> {
    let what = format!("The vault's key file ({})", name(path));
    let failed = |error| unreadable(&what, error);
    let Some(file) = private_file::open(path, &KEY).map_err(failed)? else { return Ok(None) };
    file.read_key()
        .map_err(failed)?
        .map(Some)
        .ok_or_else(|| unusable(&what, "does not have 32 bytes", "Put the key file back from a copy of it."))
}

/// Creates a key file of random bytes, or returns the key of another process that was faster.
pub(super) fn make_key(path: &Path) -> Result<Zeroizing<[u8; KEY_BYTES]>, VaultError> {
    let failed = |error| unwritable("The vault's key file", path, error);
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(key.as_mut_slice()).map_err(|error| failed(io::Error::from(error).into()))?;
    match private_file::create_new(path, key.as_slice(), &NEW_KEY) {
        Ok(()) => Ok(key),
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Replaces the vault by `bytes`. If the process is killed at any point, either the old or the new vault
/// remains.
pub(super) fn replace_vault(
    path: &Path,
    bytes: &[u8],
    lock: &VaultLock,
) -> Result<Option<FileFingerprint>, VaultError> {
    let write = || -> Result<(), FileError> {
        let mut staged = StagedFile::begin_locked(path, &VAULT, &lock.0)?;
        staged.write_all(bytes)?;
        staged.replace()
    };
    write().map_err(|error| unwritable("The vault", path, error))?;
    Ok(private_file::fingerprint_of(path))
}

/// Returns whether a vault of about the same size could be written.
pub(super) fn check_writable(path: &Path, lock: &VaultLock) -> Result<(), VaultError> {
    let size = fs::metadata(path).map_or(0, |meta| meta.len().min(MAX_BYTES)) + SLACK_BYTES;
    let write = || -> Result<(), FileError> {
        let mut staged = StagedFile::begin_locked(path, &VAULT, &lock.0)?;
        staged.write_all(&vec![0; usize::try_from(size).unwrap_or_default()])?;
        Ok(staged.sync()?)
    };
    write().map_err(|error| unwritable("The vault", path, error))
}

/// Held while the vault changes.
#[derive(Debug)]
pub(super) struct VaultLock(FileLock);

impl VaultLock {
    /// Waits until no other process is changing the vault.
    pub(super) fn acquire(vault: &Path, patience: Duration) -> Result<Self, VaultError> {
        let lock = FileLock::acquire(&vault.with_extension("lock"), patience);
        match lock.map_err(|error| unwritable("The vault", vault, error))? {
            Some(lock) => Ok(Self(lock)),
            None => Err(VaultError::Unusable {
                message: format!(
                    "Another process has been changing the vault ({}) for {} seconds; nothing was changed.",
                    name(vault),
                    patience.as_secs()
                ),
                hint: "Try again when it has ended; `fuser` on the lock file beside the vault names it."
                    .into(),
            }),
        }
    }
}

/// Returns the file name without directories: messages reach callers, which must not learn about directories.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    cofferdam_core::failure::sanitize_line(&name, 100)
}

pub(super) fn unusable(what: &str, how: &str, hint: &str) -> VaultError {
    VaultError::Unusable { message: format!("{what} {how}; it was left as it is."), hint: hint.to_owned() }
}

fn unreadable(what: &str, error: FileError) -> VaultError {
    match error {
        FileError::Refused(fault) => refused(what, &fault),
        FileError::Io(source) | FileError::Unsynced(source) => {
            VaultError::Io { message: format!("{what} cannot be read: {}.", source.kind()), source }
        }
    }
}

fn unwritable(what: &str, path: &Path, error: FileError) -> VaultError {
    let what = format!("{what} ({})", name(path));
    match error {
        FileError::Refused(fault) => refused(&what, &fault),
        FileError::Unsynced(source) => {
            let message = format!(
                "{what} was changed, but the system does not say that it will survive a power cut: {}.",
                source.kind()
            );
            VaultError::Io { message, source }
        }
        FileError::Io(source) => {
            let message = format!("{what} cannot be written: {}; it is as it was.", source.kind());
            VaultError::Io { message, source }
        }
    }
}

fn refused(what: &str, fault: &FileFault) -> VaultError {
    unusable(what, &fault.to_string(), fault.fix())
}
