//! The reasons why a private file is not used: the rule that it breaks, and the repair.

use std::io;
use std::path::PathBuf;

use crate::error::{HostError, HostErrorKind};

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
