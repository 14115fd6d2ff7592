//! The bytes that journals and the files beside them use.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::maintenance::last_retention;
use super::segment::{LINES, SEALED, TORN};
use super::writer_dir;
use crate::error::AuditError;
use crate::index::INDEX_FILE;
use crate::stats::LogStorage;

/// Returns the bytes of the files below `root`, and the time of the last retention. Files that are removed meanwhile count
/// nothing.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn disk_usage(root: &Path) -> Result<LogStorage, AuditError> {
    let mut storage = LogStorage { retained: last_retention(root), ..LogStorage::default() };
    for_each_file(root, |name, bytes| {
        let is_index = name.to_str().is_some_and(|name| name.starts_with(INDEX_FILE));
        let part = if is_index { &mut storage.index_bytes } else { &mut storage.other_bytes };
        *part = part.saturating_add(bytes);
    })?;
    for writer in writer_dir::names(root)? {
        for_each_file(&root.join(writer), |name, bytes| {
            let ending = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
            let part = match ending {
                LINES | TORN => &mut storage.entries_bytes,
                SEALED => &mut storage.sealed_bytes,
                _ => &mut storage.other_bytes,
            };
            *part = part.saturating_add(bytes);
        })?;
    }
    Ok(storage)
}

/// Calls `each` with the name and the bytes of every regular file of a directory.
fn for_each_file(dir: &Path, mut each: impl FnMut(&OsStr, u64)) -> Result<(), AuditError> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_file() => each(&entry.file_name(), used(&metadata)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the bytes that a file takes on the disk: sealed parts that were dropped are holes.
fn used(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}
