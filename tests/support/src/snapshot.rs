//! The contents of a directory, so that a test can assert that nothing changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cofferdam_core::digest::Digest;

/// Every file and directory below a place: its mode, and the hash of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, (u32, Option<String>)>);

impl Snapshot {
    /// The present contents of `dir`; a missing directory is empty.
    ///
    /// # Panics
    /// Something in it cannot be read.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let mut found = BTreeMap::new();
        if dir.exists() {
            walk(dir, dir, &mut found);
        }
        Self(found)
    }

    /// The paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Without what is below `prefix`.
    #[must_use]
    pub fn without(mut self, prefix: &str) -> Self {
        self.0.retain(|path, _| path != prefix && !path.starts_with(&format!("{prefix}/")));
        self
    }
}

fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, (u32, Option<String>)>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        // What is gone since the list was made is not there: SQLite removes its journals as it likes.
        let Some(meta) = present(fs::symlink_metadata(&path)) else { continue };
        if meta.is_dir() {
            found.insert(name, (meta.mode(), None));
            walk(root, &path, found);
        } else if meta.is_file() {
            let Some(bytes) = present(fs::read(&path)) else { continue };
            found.insert(name, (meta.mode(), Some(Digest::sha256(&bytes).to_string())));
        } else {
            found.insert(name, (meta.mode(), Some("special".into())));
        }
    }
}

/// The result of reading a file; none if there is none.
fn present<T>(read: std::io::Result<T>) -> Option<T> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        read => Some(read.unwrap()),
    }
}
