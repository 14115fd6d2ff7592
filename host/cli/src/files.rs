//! Files that the user names: read within bounds, written whole or not at all, and named in every error.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cofferdam_core::document::DocumentError;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy, PrivateFile};
use cofferdam_model::package;
use zeroize::Zeroizing;

pub(super) use cofferdam_core::private_file::parent;

/// Longest document that is read, in bytes; each kind has its own bound below it.
const DOCUMENT_BYTES: u64 = 4 * 1024 * 1024;

/// Longest file of certificate authorities, in bytes.
const AUTHORITIES_BYTES: u64 = 4 * 1024 * 1024;

/// Longest key file, in bytes.
const KEY_BYTES: u64 = 16 * 1024;

/// Longest file with another secret, in bytes.
const SECRET_BYTES: u64 = 64 * 1024;

/// A path, fit for a message.
pub(super) fn shown(path: &Path) -> String {
    sanitize_line(&path.to_string_lossy(), 400)
}

/// Why the system refused, in words that name the remedy where there is one.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::StorageFull => "the disk is full".into(),
        io::ErrorKind::QuotaExceeded => "the disk quota is used up".into(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
        io::ErrorKind::NotADirectory => "a part of the path is not a directory".into(),
        io::ErrorKind::InvalidData => "it is not UTF-8 text".into(),
        _ => sanitize_line(&error.to_string(), 200),
    }
}

/// The error for a file that cannot be read.
pub(super) fn unreadable(what: &str, path: &Path, error: io::Error) -> HostError {
    let message = format!("{what} {} cannot be read: {}.", shown(path), reason(&error));
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "Check the path.",
        io::ErrorKind::PermissionDenied => "Give this user the permission to read it.",
        _ => "Name a file that can be read.",
    };
    HostError::new(HostErrorKind::InputUnreadable, message).with_hint(hint).with_source(error)
}

/// The error for a file that cannot be written.
pub(super) fn unwritable(path: &Path, error: io::Error) -> HostError {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "its directory does not exist".into(),
        _ => reason(&error),
    };
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "Make the directory first.",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Make room, and run the command again.",
        io::ErrorKind::ReadOnlyFilesystem => "Name a path on a file system that can be written.",
        _ => "Give this user the permission, or name another path.",
    };
    let message = format!("{} cannot be written: {why}; nothing was changed.", shown(path));
    HostError::new(HostErrorKind::OutputUnwritable, message).with_hint(hint).with_source(error)
}

/// A package or a component: bytes within what the host takes.
pub(super) fn read_package(path: &Path) -> Result<Vec<u8>, HostError> {
    bounded("The package", path, package::MAX_BYTES)
}

/// A document of whatever kind, as text.
pub(super) fn read_text(what: &str, path: &Path) -> Result<String, HostError> {
    text(what, path, bounded(what, path, DOCUMENT_BYTES)?)
}

fn text(what: &str, path: &Path, bytes: Vec<u8>) -> Result<String, HostError> {
    String::from_utf8(bytes)
        .map_err(|error| unreadable(what, path, io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// A signature file that the user named.
pub(super) fn read_signature(path: &Path) -> Result<Vec<u8>, HostError> {
    bounded("The signature file", path, DOCUMENT_BYTES)
}

/// Bytes of a document of whatever kind; none if the file does not exist.
pub(super) fn read_if_there(what: &str, path: &Path) -> Result<Option<Vec<u8>>, HostError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => bounded(what, path, DOCUMENT_BYTES).map(Some),
    }
}

/// Reads a secret key's file, which only its owner may be able to read.
pub(super) fn read_key(path: &Path) -> Result<Zeroizing<String>, HostError> {
    let remedy = "if others may have read it, make a new key with `cofferdam key generate`";
    private("The key file", path, KEY_BYTES, remedy)
}

/// The text of a file with a secret of another kind.
pub(super) fn read_private(what: &str, path: &Path) -> Result<Zeroizing<String>, HostError> {
    private(what, path, SECRET_BYTES, "if others may have read it, have its issuer replace what is in it")
}

/// The text of a file of the home directory that decides what runs; none if it does not exist.
pub(super) fn read_own(what: &str, path: &Path) -> Result<Option<String>, HostError> {
    let bytes = private_file::read(path, &FilePolicy::trusted(DOCUMENT_BYTES));
    let bytes = bytes.map_err(|error| unusable(what, path, error, None))?;
    bytes.map(|bytes| text(what, path, bytes)).transpose()
}

/// Reads a file that decides what the host trusts; no other user may be able to write it.
pub(super) fn read_trusted(what: &str, path: &Path, max: u64) -> Result<Vec<u8>, HostError> {
    private_file::read(path, &FilePolicy::trusted(max).named())
        .and_then(|bytes| bytes.ok_or(io::ErrorKind::NotFound.into()))
        .map_err(|error| unusable(what, path, error, None))
}

/// Reads a file of certificate authorities to trust; no other user may be able to write it.
pub(super) fn read_authorities(path: &Path) -> Result<Vec<u8>, HostError> {
    read_trusted("The file of certificate authorities", path, AUTHORITIES_BYTES)
}

fn private(what: &str, path: &Path, max: u64, remedy: &str) -> Result<Zeroizing<String>, HostError> {
    private_file::open(path, &FilePolicy::secret(max).named())
        .and_then(|file| file.ok_or(io::ErrorKind::NotFound.into()))
        .and_then(PrivateFile::read_secret_text)
        .map_err(|error| unusable(what, path, error, Some(remedy)))
}

/// The error for a private file that cannot be used, with what to do if its content is known to others.
fn unusable(what: &str, path: &Path, error: FileError, remedy: Option<&str>) -> HostError {
    let fault = match error {
        FileError::Refused(fault) => fault,
        error => return unreadable(what, path, error.into()),
    };
    let hint = match (&fault, remedy) {
        (FileFault::TooLarge { limit }, _) => return too_long(what, path, *limit),
        (FileFault::ReadableByOthers { .. } | FileFault::WritableByOthers { .. }, Some(remedy)) => {
            format!("Run `chmod 600 {}`; {remedy}.", shown(path))
        }
        (FileFault::Directory { path }, _) => {
            format!("Another user can change {}. {}", shown(path), fault.fix())
        }
        _ => fault.fix().to_owned(),
    };
    fault.into_host_error(HostErrorKind::Validation, &format!("{what} {}", shown(path))).with_hint(hint)
}

/// Reads at most `max` bytes of a stream.
pub(super) fn read_stream(
    what: &str,
    stream: impl io::Read,
    path: &Path,
    max: u64,
) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::new();
    stream
        .take(max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(what, path, error))?;
    if bytes.len() as u64 > max {
        return Err(too_long(what, path, max));
    }
    Ok(bytes)
}

/// Reads a file of at most `max` bytes.
pub(super) fn bounded(what: &str, path: &Path, max: u64) -> Result<Vec<u8>, HostError> {
    read_stream(what, open(what, path)?, path, max)
}

fn open(what: &str, path: &Path) -> Result<File, HostError> {
    File::open(path).map_err(|error| unreadable(what, path, error))
}

fn too_long(what: &str, path: &Path, max: u64) -> HostError {
    let message = format!("{what} {} has more than {}.", shown(path), super::layout::bytes(max));
    HostError::new(HostErrorKind::Validation, message).with_hint("Is it the file that was meant?")
}

/// Replaces a file in one step; it keeps its mode and its owner.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let wrong = |error| unwritable(path, error);
    if path.is_dir() {
        return Err(wrong(io::ErrorKind::IsADirectory.into()));
    }
    private_file::replace(path, bytes, &FilePolicy::output()).map_err(|error| wrong(error.into()))
}

/// Replaces a file in one step, or makes one; its owner alone can read it.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let written = private_file::replace(path, bytes, &FilePolicy::private_output());
    written.map_err(|error| unwritable(path, error.into()))
}

/// Writes a file that did not exist and that its owner alone can read.
pub(super) fn write_new_secret(path: &Path, text: &str) -> Result<(), HostError> {
    let (policy, consequence) = (FilePolicy::private_output(), "keys are never overwritten");
    create_new(path, text.as_bytes(), &policy, consequence, "Name another file with --out.")
}

/// Writes a file that did not exist.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let hint = "Name another file with --output, or remove it if it is no longer needed.";
    create_new(path, bytes, &FilePolicy::output(), "nothing was overwritten", hint)
}

fn create_new(
    path: &Path,
    bytes: &[u8],
    policy: &FilePolicy,
    consequence: &str,
    hint: &str,
) -> Result<(), HostError> {
    private_file::create_new(path, bytes, policy).map_err(|error| match io::Error::from(error) {
        error if error.kind() == io::ErrorKind::AlreadyExists => {
            let message = format!("{} exists already; {consequence}.", shown(path));
            HostError::new(HostErrorKind::Conflict, message).with_hint(hint)
        }
        error => unwritable(path, error),
    })
}

/// The path with `suffix` after its whole name: `slack.wasm` becomes `slack.wasm.dsse.json`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The error for a document with problems: the first in words, all of them as data.
pub(super) fn document_error(error: DocumentError) -> HostError {
    error.into_host_error()
}

/// A sentence's beginning.
pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_private_file_writable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("passphrase"), dir.path().join("link"));
        std::fs::write(&path, "correct horse battery").unwrap();
        let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        set(&path, 0o600);
        std::os::unix::fs::symlink("passphrase", &link).unwrap();
        assert!(read_private("It", &link).is_ok(), "an orchestrator hands over links");
        set(dir.path(), 0o777);
        for path in [&path, &link] {
            let error = read_private("It", path).unwrap_err();
            assert!(error.hint().unwrap().contains(dir.path().to_str().unwrap()), "{error}");
        }
        set(dir.path(), 0o755);
        set(&path, 0o664);
        assert!(read_trusted("It", &path, 100).unwrap_err().message().contains("can be written by others"));
        set(&path, 0o644);
        assert!(read_trusted("It", &path, 100).is_ok());
        std::fs::hard_link(&path, dir.path().join("second")).unwrap();
        assert!(read_trusted("It", &path, 100).unwrap_err().message().contains("hard link"));
        if rustix::process::geteuid().is_root() {
            std::fs::remove_file(dir.path().join("second")).unwrap();
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            assert!(read_trusted("It", &path, 100).unwrap_err().message().contains("another user"));
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.json");
        std::fs::write(&path, "old").unwrap();
        for kept in [0o600, 0o640, 0o755] {
            std::fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
            write_whole(&path, b"new").unwrap();
            assert_eq!(mode(&path), kept);
        }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn a_key_file_is_private_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_new_secret(&path, "one").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(write_new_secret(&path, "two").unwrap_err().kind(), HostErrorKind::Conflict);
        assert_eq!(read_key(&path).unwrap().as_str(), "one");
        for open in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
            let error = read_key(&path).unwrap_err();
            assert!(error.hint().unwrap().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_file_is_replaced_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wasm");
        write_whole(&path, b"old").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let error = write_whole(&dir.path().join("no/such/a.wasm"), b"x").unwrap_err();
        assert!(error.message().contains("its directory does not exist"), "{error}");
        let error = write_whole(dir.path(), b"x").unwrap_err();
        assert!(error.message().contains("it is a directory"), "{error}");
    }

    #[test]
    fn reading_is_bounded_and_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        std::fs::write(&path, [b'x'; 11]).unwrap();
        assert!(bounded("It", &path, 11).is_ok());
        let error = bounded("It", &path, 10).unwrap_err();
        assert!(error.message().contains("long has more than 10 bytes"), "{error}");
        assert!(read_if_there("It", &dir.path().join("none")).unwrap().is_none());
        let error = read_if_there("It", dir.path()).unwrap_err();
        assert!(error.message().contains("it is a directory"), "{error}");
    }
}
