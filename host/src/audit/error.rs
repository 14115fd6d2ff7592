//! Why the record cannot be written or read.

use std::error::Error as StdError;
use std::fmt;

use crate::host_key::KeyError;

/// What kind of trouble the record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditTrouble {
    /// Another process holds it for longer than is waited.
    Locked,
    /// There is no room for it.
    Full,
    /// It may not be written.
    ReadOnly,
    /// It may not be written, and so cannot be read: what was written last stands in its log still.
    Unmerged,
    /// The file system failed, or refuses for a reason of its own: a quota, a limit, a disk that fails.
    Io,
    /// Others than its owner can read or write it.
    Exposed,
    /// It is damaged, or no record at all.
    Corrupt,
    /// There is none: nothing was recorded yet.
    Absent,
    /// A newer version of this program made it.
    TooNew,
    /// It was removed or replaced while a host used it; or what a call is added to is not in it any more.
    Replaced,
    /// Somebody else decided about the call.
    Decided,
    /// The host's key, which seals and signs, cannot be used.
    Key,
    /// The host's key is missing, and the record that was made under it is there.
    KeyMissing,
    /// Something else.
    Other,
}

impl AuditTrouble {
    /// What it is, in a few words that name no place of the machine.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Locked => "another process holds it",
            Self::Full => "there is no room for it",
            Self::ReadOnly => "it may not be written",
            Self::Unmerged => {
                "its last entries stand in its log, which cannot be read where nothing can be written"
            }
            Self::Exposed => "others can read or write it",
            Self::Corrupt => "it is damaged",
            Self::Absent => "there is none yet",
            Self::TooNew => "a newer version of cofferdam made it",
            Self::Replaced => "it was removed or replaced while a host used it",
            Self::Decided => "somebody else decided about the call meanwhile",
            Self::Key => "host.key cannot be used",
            Self::KeyMissing => "host.key is missing",
            Self::Io | Self::Other => "it cannot be written",
        }
    }

    /// Whether it may pass, so that what could not be written is worth to be tried again.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        !matches!(self, Self::Corrupt | Self::TooNew | Self::Decided)
    }

    /// What is to be done about it.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Locked => "See which process holds `audit.db` of the home directory, and call again.",
            Self::Full => "Make room on the disk of the home directory, and call again.",
            Self::ReadOnly => {
                "Make the home directory, and `audit.db` in it, writable for this user, and call again."
            }
            Self::Unmerged => {
                "Copy `audit.db`, `audit.db-wal`, `audit.checkpoint` and `host.key` to a directory of your own that can \
                 be written, and name that with --home."
            }
            Self::Io => {
                "See that the disk of the home directory works and that no quota is used up, and call again."
            }
            Self::Exposed => {
                "If nobody else has changed it: `chmod 600` for `audit.db` of the home directory and those beside it."
            }
            Self::Replaced => {
                "Put the record back while no host runs, if it is there still; `cofferdam audit verify` looks at what is \
                 there now."
            }
            Self::Decided => "`cofferdam audit show` has who decided, and why.",
            Self::Corrupt => {
                "Keep what is there as evidence: move `audit.db`, those beside it and `audit.checkpoint` out of the \
                 home directory while no host runs; the next call begins a new record."
            }
            Self::Absent => "The first call begins it.",
            Self::TooNew => "Use a cofferdam that is as new.",
            Self::Key => {
                "Where nobody else has read it: `chmod 600 host.key`. Else move it away as evidence, and with it \
                 `audit.db`, those beside it and `audit.checkpoint`: the next call makes a new key and a new record."
            }
            Self::KeyMissing => {
                "Put it back from a backup. Where it is lost: move `audit.db`, those beside it and `audit.checkpoint` out \
                 of the home directory as evidence; the next call makes a new key and a new record."
            }
            Self::Other => "The log says more; `cofferdam audit verify` looks at the record.",
        }
    }
}

/// An error of the record. Cheap to clone: one failed commit is told to everybody who waited for it.
#[derive(Debug, Clone)]
pub struct AuditError {
    trouble: AuditTrouble,
    detail: std::sync::Arc<str>,
}

impl AuditError {
    /// Trouble of this kind; `detail` is for the operator.
    #[must_use]
    pub fn new(trouble: AuditTrouble, detail: impl fmt::Display) -> Self {
        Self { trouble, detail: detail.to_string().into() }
    }

    /// Why there is no key.
    pub(crate) fn from_key(error: KeyError) -> Self {
        let trouble = match error {
            KeyError::Missing => AuditTrouble::KeyMissing,
            KeyError::Unsafe(_) | KeyError::Io(_) => AuditTrouble::Key,
        };
        Self::new(trouble, error)
    }

    /// What the file system says.
    pub(crate) fn from_io(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let trouble = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => AuditTrouble::Full,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => AuditTrouble::ReadOnly,
            _ => AuditTrouble::Io,
        };
        Self::new(trouble, error)
    }

    /// The kind.
    #[must_use]
    pub fn trouble(&self) -> AuditTrouble {
        self.trouble
    }
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.trouble.says(), self.detail)
    }
}

impl StdError for AuditError {}

impl From<rusqlite::Error> for AuditError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let trouble = match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => {
                AuditTrouble::Locked
            }
            Some(Code::DiskFull) => AuditTrouble::Full,
            Some(Code::SystemIoFailure) => AuditTrouble::Io,
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => AuditTrouble::ReadOnly,
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => AuditTrouble::Corrupt,
            _ => AuditTrouble::Other,
        };
        Self::new(trouble, error)
    }
}
