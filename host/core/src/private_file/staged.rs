//! A file that is written under another name and then replaces its target atomically.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::error::FileError;
use super::lock::FileLock;
use super::policy::{FileLocation, FilePolicy};
use super::{create_dir, directory, parent, sync_dir};

/// A new content of a file, not yet in its place. Dropping it removes it; a killed process leaves a file
/// whose name begins with [`PREFIX`](Self::PREFIX).
#[derive(Debug)]
pub struct StagedFile {
    file: NamedTempFile,
    path: PathBuf,
    policy: FilePolicy,
    is_durable: bool,
}

impl StagedFile {
    /// The prefix of the names of files that are being written.
    pub const PREFIX: &str = ".cofferdam-";

    /// Begins a new content of the file at `path`. Missing directories of the home are created.
    pub fn begin(path: &Path, policy: &FilePolicy) -> Result<Self, FileError> {
        let mut builder = Builder::new();
        builder.prefix(Self::PREFIX);
        Self::begin_as(path, policy, &mut builder)
    }

    /// Begins a new content under a fixed name next to the file (`vault.tmp`), so that the next writer
    /// removes the leftover of a killed writer. The lock, which the caller holds, keeps writers from each
    /// other's file.
    pub fn begin_locked(path: &Path, policy: &FilePolicy, _lock: &FileLock) -> Result<Self, FileError> {
        let temporary = path.with_extension("tmp");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let name = temporary.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Self::begin_as(path, policy, Builder::new().prefix(name).rand_bytes(0))
    }

    fn begin_as(path: &Path, policy: &FilePolicy, builder: &mut Builder<'_, '_>) -> Result<Self, FileError> {
        let path = match policy.location() {
            FileLocation::Home => {
                create_dir(parent(path))?;
                directory::resolve(path, policy)?.ok_or(io::ErrorKind::NotFound)?
            }
            FileLocation::Named | FileLocation::Output => path.to_owned(),
        };
        let mode = Permissions::from_mode(policy.new_mode());
        let file = builder.permissions(mode).tempfile_in(parent(&path))?;
        Ok(Self { file, path, policy: *policy, is_durable: true })
    }

    /// Does not wait for the disk: a power failure may lose the new content, or leave the old one.
    pub fn without_sync(mut self) -> Self {
        self.is_durable = false;
        self
    }

    /// Replaces the file by the new content. An existing file passes its mode, as far as the policy allows,
    /// and its owner to the new one; a link is replaced and not followed.
    pub fn replace(self) -> Result<(), FileError> {
        match fs::symlink_metadata(&self.path) {
            Ok(there) if there.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory).into()),
            Ok(there) if there.is_file() => self.keep(&there)?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.sync()?;
        self.file.persist(&self.path).map_err(|error| error.error)?;
        sync_names(self.is_durable, &self.path)
    }

    /// Creates the file with the new content if there is no file of that name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], and errors of the system.
    pub fn create_new(self) -> Result<(), FileError> {
        self.sync()?;
        self.file.persist_noclobber(&self.path).map_err(|error| error.error)?;
        sync_names(self.is_durable, &self.path)
    }

    /// Sets the mode and the owner of the old file on the new one.
    fn keep(&self, there: &Metadata) -> io::Result<()> {
        let file = self.file.as_file();
        let own = file.metadata()?;
        if own.uid() != there.uid() {
            fchown(file, Some(there.uid()), None)?;
        }
        let mut mode = self.policy.kept_mode(there.mode());
        if own.gid() != there.gid() && fchown(file, None, Some(there.gid())).is_err() {
            // For a group that this user is not in, the group's permissions are dropped rather than given to
            // another group.
            mode &= !0o070;
        }
        file.set_permissions(Permissions::from_mode(mode))
    }

    pub(super) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Waits until the content is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        if self.is_durable { self.file.as_file().sync_all() } else { Ok(()) }
    }
}

impl io::Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn sync_names(is_durable: bool, path: &Path) -> Result<(), FileError> {
    if is_durable {
        sync_dir(parent(path)).map_err(FileError::Unsynced)?;
    }
    Ok(())
}
