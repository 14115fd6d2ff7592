//! The rules of one kind of private file.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::error::{FileError, FileFault};

const WRITABLE: u32 = 0o022;
const ACCESSIBLE: u32 = 0o077;

/// The rules that a file has to satisfy before it is used, and the mode with which it is created.
#[derive(Debug, Clone, Copy)]
pub struct FilePolicy {
    max_bytes: u64,
    /// Permission bits that must be clear.
    refused_bits: u32,
    /// Mode of a file that did not exist before; the umask is applied to it.
    new_mode: u32,
    /// True if the group may read a file of root's that is handed to this user.
    is_handed_over: bool,
    location: FileLocation,
}

/// The location of a file, which decides on links and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileLocation {
    /// Below the home directory: no link, in a directory that only this user or root can write.
    Home,
    /// Named by the operator: links are followed, and every directory and link on the way is checked.
    Named,
    /// An output that the user names: only how it is replaced is a matter of policy.
    Output,
}

impl FilePolicy {
    /// Returns the policy of a file of the home directory that decides what runs: other users may read it,
    /// but not write it.
    pub const fn trusted(max_bytes: u64) -> Self {
        let location = FileLocation::Home;
        Self { max_bytes, refused_bits: WRITABLE, new_mode: 0o600, is_handed_over: false, location }
    }

    /// Returns the policy of a file of the home directory that other users may neither read nor write.
    pub const fn secret(max_bytes: u64) -> Self {
        Self { refused_bits: ACCESSIBLE, ..Self::trusted(max_bytes) }
    }

    /// Returns the policy of a file that a user names as an output: readable as the process's umask says.
    pub const fn output() -> Self {
        Self { new_mode: 0o666, ..Self::private_output() }
    }

    /// Returns the policy of a file that a user names as an output, created for this user only.
    pub const fn private_output() -> Self {
        Self { refused_bits: 0, location: FileLocation::Output, ..Self::trusted(u64::MAX) }
    }

    /// Returns the same rules for a file that the operator names. Orchestrators provide files through links
    /// (Kubernetes), and certificates are linked by their packages, so links are followed.
    pub const fn named(self) -> Self {
        Self { location: FileLocation::Named, ..self }
    }

    /// Returns the same rules for a file that a service manager provides: it belongs to root, and one user
    /// may read it by an access list, which shows as the group's permission.
    pub const fn handed_over(self) -> Self {
        Self { is_handed_over: true, ..self }
    }

    pub(super) const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    pub(super) const fn location(&self) -> FileLocation {
        self.location
    }

    pub(super) const fn new_mode(&self) -> u32 {
        self.new_mode
    }

    /// Returns the permissions that a file keeps when it is replaced.
    pub(super) const fn kept_mode(&self, mode: u32) -> u32 {
        mode & 0o777 & !self.refused_bits
    }

    /// Checks the system's metadata of a file that was opened, or of a path.
    pub(super) fn check(&self, metadata: &Metadata) -> Result<(), FileError> {
        if metadata.is_symlink() {
            return Err(FileFault::SymbolicLink.into());
        }
        if !metadata.is_file() {
            return Err(FileFault::NotRegular.into());
        }
        if !is_own(metadata.uid()) {
            return Err(FileFault::ForeignOwner.into());
        }
        // The count is zero if the file was replaced after it had been opened.
        if metadata.nlink() > 1 {
            return Err(FileFault::HardLink.into());
        }
        let mode = metadata.permissions().mode() & 0o777;
        let allowed = if self.is_handed_over && metadata.uid() == 0 { 0o040 } else { 0 };
        let refused = mode & self.refused_bits & !allowed;
        if refused & WRITABLE != 0 {
            return Err(FileFault::WritableByOthers { mode }.into());
        }
        if refused != 0 {
            return Err(FileFault::ReadableByOthers { mode }.into());
        }
        if metadata.len() > self.max_bytes {
            return Err(FileFault::TooLarge { limit: self.max_bytes }.into());
        }
        Ok(())
    }
}

/// Returns whether files of this user are trusted: this process's own user, or root, which can do anything anyway.
pub(super) fn is_own(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
