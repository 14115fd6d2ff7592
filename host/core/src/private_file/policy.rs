//! The rules of one kind of private file, and the reasons why a file is not used: the rule that it breaks, and
//! the repair.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use crate::error::{HostError, HostErrorKind};

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
    /// True if all may read a file of root's on a read-only file system in memory.
    is_mounted: bool,
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
        Self {
            max_bytes,
            refused_bits: WRITABLE,
            new_mode: 0o600,
            is_handed_over: false,
            is_mounted: false,
            location,
        }
    }

    /// Returns the policy of a file of the home directory that other users may neither read nor write.
    pub const fn secret(max_bytes: u64) -> Self {
        Self { refused_bits: ACCESSIBLE, ..Self::trusted(max_bytes) }
    }

    /// Returns the policy of a file that a user names as an output: readable as the process's umask says.
    pub const fn output() -> Self {
        Self { new_mode: 0o666, refused_bits: 0, ..Self::private_output() }
    }

    /// Returns the policy of a file that a user names as an output, for this user only, also if it exists.
    pub const fn private_output() -> Self {
        Self { location: FileLocation::Output, ..Self::secret(u64::MAX) }
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

    /// Returns the same rules for a file that an orchestrator mounts into a container: it belongs to root, is on a
    /// read-only file system in memory, and its mode says nothing, since Kubernetes and Docker make such files readable
    /// for every user of the container by default.
    pub const fn mounted(self) -> Self {
        Self { is_mounted: true, ..self }
    }

    /// Returns the rules for the file that was opened: those of a mount if it is on one.
    pub(super) fn for_opened(&self, file: &File, metadata: &Metadata) -> Self {
        let refused_bits = match self.is_mounted && metadata.uid() == 0 && is_read_only_memory(file) {
            true => self.refused_bits & WRITABLE,
            false => self.refused_bits,
        };
        Self { refused_bits, ..*self }
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

/// The types of the file systems that are only in memory.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

fn is_read_only_memory(file: &File) -> bool {
    // The type's width differs between architectures.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "not on every architecture")]
    let is_memory = rustix::fs::fstatfs(file)
        .is_ok_and(|system| matches!(i64::from(system.f_type) & 0xffff_ffff, TMPFS | RAMFS));
    let is_read_only = rustix::fs::fstatvfs(file)
        .is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    is_memory && is_read_only
}

/// Returns whether files of this user are trusted: this process's own user, or root, which can do anything anyway.
pub(super) fn is_own(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The reason why a private file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It breaks a rule of its policy.
    #[error("it {0}")]
    Refused(FileFault),
    /// The system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file was replaced, and a power failure may undo that.
    #[error("it was written, and the system does not say that it will survive a power cut: {0}")]
    Unsynced(io::Error),
}

/// The rule that a file breaks. The text is a predicate: "is a symbolic link".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant is its documentation")]
pub enum FileFault {
    #[error("is a symbolic link")]
    SymbolicLink,
    #[error("has a second name (a hard link)")]
    HardLink,
    #[error("is not a regular file")]
    NotRegular,
    #[error("belongs to another user")]
    ForeignOwner,
    #[error("can be written by others than its owner (mode {mode:03o})")]
    WritableByOthers { mode: u32 },
    #[error("can be read by others than its owner (mode {mode:03o})")]
    ReadableByOthers { mode: u32 },
    #[error("has more than {}", size(*limit))]
    TooLarge { limit: u64 },
    /// The path is the directory or the link. It is for the operator only, and not part of the text.
    #[error("is reached through a directory or a link that another user can change")]
    Directory { path: PathBuf },
}

impl FileFault {
    /// Returns the repair as one sentence.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::SymbolicLink => "Put the file itself in its place.",
            Self::HardLink => {
                "Put a copy of it in its place, under one name: whoever has the other name has the file."
            }
            Self::NotRegular => "Move away what is in its place, and put the file there.",
            Self::ForeignOwner => {
                "Its owner can change it at any time: read it, then make it your own with `chown`."
            }
            Self::WritableByOthers { .. } => "Read it once more, then run `chmod 600` on it.",
            Self::ReadableByOthers { .. } => {
                "Run `chmod 600` on it; if others may have read it, replace what is in it."
            }
            Self::TooLarge { .. } => "Check that it is the file that was meant.",
            Self::Directory { .. } => {
                "Each directory on the way to it must belong to you or to root: run `chmod go-w` on those that others \
                 can write, or keep the file elsewhere."
            }
        }
    }

    /// Converts to an error about a file that is called `what` in the message. The directory to repair is for
    /// the operator only.
    pub fn into_host_error(self, kind: HostErrorKind, what: &str) -> HostError {
        let error = HostError::new(kind, format!("{what} {self}; it was not used.")).with_hint(self.fix());
        match self {
            Self::Directory { path } => {
                error.with_source(format!("another user can change {}", path.display()))
            }
            _ => error,
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

impl From<FileFault> for FileError {
    fn from(fault: FileFault) -> Self {
        Self::Refused(fault)
    }
}

impl From<io::ErrorKind> for FileError {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Io(kind.into())
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io(error) | FileError::Unsynced(error) => error,
            FileError::Refused(fault) => Self::other(FileError::Refused(fault)),
        }
    }
}
