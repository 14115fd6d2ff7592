//! Files that the user names: read within bounds, written whole or not at all, and named in every error.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::document::DocumentError;
use crate::error::{HostError, HostErrorKind};
use crate::failure::safe_line;
use crate::package;

/// Longest document that is read, in bytes; each kind has its own bound below it.
const DOCUMENT_BYTES: u64 = 4 * 1024 * 1024;

/// Longest key file, in bytes.
const KEY_BYTES: u64 = 16 * 1024;

/// Longest file with another secret, in bytes.
const SECRET_BYTES: u64 = 64 * 1024;

/// A path, fit for a message.
pub(super) fn shown(path: &Path) -> String {
    safe_line(&path.to_string_lossy(), 400)
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
        _ => safe_line(&error.to_string(), 200),
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
    HostError::new(HostErrorKind::InputUnreadable, message).hint(hint).because(error)
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
    HostError::new(HostErrorKind::OutputUnwritable, message).hint(hint).because(error)
}

/// A package or a component: bytes within what the host takes.
pub(super) fn read_package(path: &Path) -> Result<Vec<u8>, HostError> {
    bounded("The package", path, package::MAX_BYTES)
}

/// A document of whatever kind, as text.
pub(super) fn read_text(what: &str, path: &Path) -> Result<String, HostError> {
    let bytes = bounded(what, path, DOCUMENT_BYTES)?;
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

/// The text of a secret key's file, which nobody but its owner may be able to read.
pub(super) fn read_key(path: &Path) -> Result<Zeroizing<String>, HostError> {
    let remedy = "if others may have read it, make a new key with `cofferdam key generate`";
    private("The key file", path, KEY_BYTES, remedy)
}

/// The text of a file with a secret of another kind.
pub(super) fn read_private(what: &str, path: &Path) -> Result<Zeroizing<String>, HostError> {
    private(what, path, SECRET_BYTES, "if others may have read it, have its issuer replace what is in it")
}

fn private(what: &str, path: &Path, max: u64, remedy: &str) -> Result<Zeroizing<String>, HostError> {
    let file = open(what, path)?;
    let metadata = file.metadata().map_err(|error| unreadable(what, path, error))?;
    if metadata.is_file() && metadata.mode() & 0o077 != 0 {
        let message = format!(
            "{what} {} can be read or written by others (mode {:03o}); it was not used.",
            shown(path),
            metadata.mode() & 0o777
        );
        let hint = format!("Run `chmod 600 {}`; {remedy}.", shown(path));
        return Err(HostError::new(HostErrorKind::Validation, message).hint(hint));
    }
    // With room for all of it, so that no copy is left behind by growing.
    let room = usize::try_from(max).unwrap_or_default().saturating_add(2);
    let mut text = Zeroizing::new(String::with_capacity(room));
    file.take(max + 1).read_to_string(&mut text).map_err(|error| unreadable(what, path, error))?;
    if text.len() as u64 > max {
        return Err(too_long(what, path, max));
    }
    Ok(text)
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
    let message = format!("{what} {} has more than {}.", shown(path), super::page::bytes(max));
    HostError::new(HostErrorKind::Validation, message).hint("Is it the file that was meant?")
}

/// Writes a file whole: whoever looks sees what was there before, or all of the new.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let wrong = |error| unwritable(path, error);
    if path.is_dir() {
        return Err(wrong(io::ErrorKind::IsADirectory.into()));
    }
    let mut file = tempfile::Builder::new()
        .prefix(".cofferdam-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent(path))
        .map_err(wrong)?;
    file.write_all(bytes).map_err(wrong)?;
    file.as_file().sync_all().map_err(wrong)?;
    file.persist(path).map_err(|error| wrong(error.error))?;
    Ok(())
}

/// Writes a file that did not exist and that its owner alone can read.
pub(super) fn write_new_secret(path: &Path, text: &str) -> Result<(), HostError> {
    let wrong = |error| unwritable(path, error);
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let message = format!("{} exists already; keys are never overwritten.", shown(path));
            let hint = "Name another file with --out.";
            return Err(HostError::new(HostErrorKind::Conflict, message).hint(hint));
        }
        Err(error) => return Err(wrong(error)),
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key is of no use to anybody, and this process has just made the file.
        drop(std::fs::remove_file(path));
        wrong(error)
    })
}

/// The directory that a file is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
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
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn a_key_file_is_private_from_its_first_byte_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_new_secret(&path, "one").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(write_new_secret(&path, "two").unwrap_err().kind(), HostErrorKind::Conflict);
        assert_eq!(read_key(&path).unwrap().as_str(), "one");
        for open in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
            let error = read_key(&path).unwrap_err();
            assert!(error.hint_text().unwrap().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_leaves_nothing_beside_it() {
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
