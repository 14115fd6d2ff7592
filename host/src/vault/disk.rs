//! The vault's files: read only where nobody else could have read or put them, replaced whole.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::error::VaultError;
use super::seal::KEY_BYTES;
use crate::stamp::FileStamp;

/// The largest vault, in bytes: thousands of bindings.
pub(super) const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What a change may add to a vault: new tokens, which are rarely longer.
const SLACK_BYTES: u64 = 64 * 1024;

const POLL: Duration = Duration::from_millis(10);

/// Of the file at `path` now; none where there is none, or it cannot be looked at.
pub(super) fn stamp_of(path: &Path) -> Option<FileStamp> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok().as_ref().map(FileStamp::from)
}

/// A vault file as it is now; none where there is none.
pub(super) fn read_vault(path: &Path) -> Result<Option<(FileStamp, Vec<u8>)>, VaultError> {
    let what = format!("The vault ({})", name(path));
    let file = match open(path, OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            let hint = "Put the file itself in its place, or move the whole home directory.";
            return Err(unusable(&what, "is a symbolic link", hint));
        }
        Err(error) => return Err(unreadable(&what, error)),
    };
    let meta = file.metadata().map_err(|error| unreadable(&what, error))?;
    if !meta.is_file() {
        return Err(unusable(&what, "is not a file", "Move away what is in its place."));
    }
    check_private(&what, path, &meta, 0o077)?;
    if meta.len() > MAX_BYTES {
        let hint = "No vault is as large: move it away, and put a copy of the vault back.";
        return Err(unusable(&what, "has more than 16 MiB", hint));
    }
    // Before the bytes are read: a change from here on shows as another stamp.
    let stamp = FileStamp::from(&meta);
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| unreadable(&what, error))?;
    Ok(Some((stamp, bytes)))
}

/// The bytes of a key file; none where there is none. A link is followed: where a key comes from is the
/// operator's affair, and the checks are of what it leads to.
pub(super) fn read_key(path: &Path) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, VaultError> {
    let what = format!("The vault's key file ({})", name(path));
    let mut file = match open(path, OFlags::empty()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&what, error)),
    };
    let meta = file.metadata().map_err(|error| unreadable(&what, error))?;
    if !meta.is_file() {
        return Err(unusable(&what, "is not a file", "Put the key file back from a copy of it."));
    }
    // What service managers hand over belongs to root, and is readable for one user by a list of its own,
    // which shows as the group's permission.
    let others = if meta.uid() == 0 { 0o037 } else { 0o077 };
    check_private(&what, path, &meta, others)?;
    if meta.len() != KEY_BYTES as u64 {
        return Err(unusable(&what, "does not have 32 bytes", "Put the key file back from a copy of it."));
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    file.read_exact(key.as_mut_slice()).map_err(|error| unreadable(&what, error))?;
    Ok(Some(key))
}

/// Makes a key file of random bytes, or returns that of who was first.
pub(super) fn make_key(path: &Path) -> Result<Zeroizing<[u8; KEY_BYTES]>, VaultError> {
    let failed = |error| unwritable("The vault's key file", path, error);
    let dir = make_parent(path).map_err(failed)?;
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(key.as_mut_slice()).map_err(|error| failed(error.into()))?;
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(dir)
        .map_err(failed)?;
    file.write_all(key.as_slice()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    match file.persist_noclobber(path) {
        Ok(_) => sync(dir).map_err(failed).map(|()| key),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
        }
        Err(error) => Err(failed(error.error)),
    }
}

/// Puts `bytes` in the place of the vault: whoever is killed at any instant leaves the old or the new.
/// The lock must be held.
pub(super) fn replace_vault(path: &Path, bytes: &[u8]) -> Result<Option<FileStamp>, VaultError> {
    let failed = |error| unwritable("The vault", path, error);
    let dir = make_parent(path).map_err(failed)?;
    // One name, so that a killed writer's rest is the next one's to take away.
    let temporary = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        write_new(&temporary, bytes)?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // Only ever a sealed rest; if it stays, the next writer removes it.
        drop(fs::remove_file(&temporary));
        failed(error)
    })?;
    sync(dir).map_err(|source| VaultError::Io {
        message: format!(
            "The vault ({}) was changed, but the system does not say that it will survive a power cut: {}.",
            name(path),
            source.kind()
        ),
        source,
    })?;
    Ok(stamp_of(path))
}

/// Whether a vault of about the same size could be written. The lock must be held.
pub(super) fn check_writable(path: &Path) -> Result<(), VaultError> {
    let size = fs::metadata(path).map_or(0, |meta| meta.len().min(MAX_BYTES)) + SLACK_BYTES;
    let temporary = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        write_new(&temporary, &vec![0; usize::try_from(size).unwrap_or_default()])?;
        fs::remove_file(&temporary)
    };
    write().map_err(|error| {
        drop(fs::remove_file(&temporary));
        unwritable("The vault", path, error)
    })
}

/// Writes a file in the place of a killed writer's rest.
fn write_new(temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Held while the vault changes; the system lets go of it when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for its turn.
    pub(super) fn take(vault: &Path, patience: Duration) -> Result<Self, VaultError> {
        let path = vault.with_extension("lock");
        let failed = |error| unwritable("The vault", vault, error);
        make_parent(&path).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path).map_err(failed)?;
        for _ in 0..patience.as_millis() / POLL.as_millis() {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        Err(VaultError::Unusable {
            message: format!(
                "Another process has been changing the vault ({}) for {} seconds; nothing was changed.",
                name(vault),
                patience.as_secs()
            ),
            hint: "Try again when it has ended; `fuser` on the lock file beside the vault names it.".into(),
        })
    }
}

/// The file's own name: messages reach callers, who have no business with directories.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    crate::failure::safe_line(&name, 100)
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    // Without NONBLOCK, a pipe put in the file's place would hang whoever opens it.
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn check_private(what: &str, path: &Path, meta: &Metadata, others: u32) -> Result<(), VaultError> {
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user && meta.uid() != 0 {
        let hint = "Whoever owns it can put another in its place: run as its owner, or make it your own.";
        return Err(unusable(what, "belongs to another user", hint));
    }
    if meta.permissions().mode() & others != 0 {
        let hint =
            format!("Run `chmod 600` on {}; if others may have read it, rebind what is in it.", name(path));
        return Err(unusable(what, "can be read or written by others than its owner", &hint));
    }
    Ok(())
}

fn make_parent(path: &Path) -> io::Result<&Path> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    Ok(dir)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

pub(super) fn unusable(what: &str, how: &str, hint: &str) -> VaultError {
    VaultError::Unusable { message: format!("{what} {how}; it was left as it is."), hint: hint.to_owned() }
}

fn unreadable(what: &str, source: io::Error) -> VaultError {
    VaultError::Io { message: format!("{what} cannot be read: {}.", source.kind()), source }
}

fn unwritable(what: &str, path: &Path, source: io::Error) -> VaultError {
    let message = format!("{what} ({}) cannot be written: {}; it is as it was.", name(path), source.kind());
    VaultError::Io { message, source }
}
