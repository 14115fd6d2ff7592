//! Why the audit log cannot be written or read.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, ErrorKind};

use cofferdam_core::home_state::StateError;
use cofferdam_core::host_key::HostKeyError;
use cofferdam_core::private_file::{FileError, FileFault};

/// The kind of an audit log error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditErrorKind {
    /// Another process holds it for longer than is waited.
    Locked,
    /// There is no room for it.
    Full,
    /// It may not be written.
    ReadOnly,
    /// The file system failed, or refuses for a reason of its own: a quota, a limit, a disk that fails.
    Io,
    /// Others than its owner can read or write it.
    Exposed,
    /// It is damaged, or no file of an audit log.
    Corrupt,
    /// The audit log is inconsistent: it was changed from outside.
    Tampered,
    /// There is none: nothing was recorded yet.
    Absent,
    /// A newer version of this program made it.
    TooNew,
    /// It was removed or replaced while a host used it; or what a call is added to is not in it any more.
    Replaced,
    /// It, the vault or the memory of both is missing or older than it was, and the operator did not accept that.
    Lost,
    /// The clock is more than a day behind the newest entry, so that outcomes would not stand as long as they should.
    ClockBehind,
    /// The host's key, which seals and signs, cannot be used.
    Key,
    /// The host's key is missing, and the audit log that was made under it is there.
    KeyMissing,
    /// It is in a database that cannot be reached.
    Unreachable,
    /// It is in a database that refuses this host, or that is not fit for it.
    Refused,
    /// Something else.
    Other,
}

impl AuditErrorKind {
    /// Returns a short description that contains no path of the machine.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Locked => "another process holds it",
            Self::Full => "there is no room for it",
            Self::ReadOnly => "it may not be written",
            Self::Exposed => "others can read or write it",
            Self::Corrupt => "it is damaged",
            Self::Tampered => "it does not hold together",
            Self::Absent => "there is none yet",
            Self::TooNew => "a newer version of cofferdam made it",
            Self::Replaced => "it was removed or replaced while a host used it",
            Self::Lost => "it or the vault is missing, or older than this home remembers",
            Self::ClockBehind => "the clock is more than a day behind its newest entry",
            Self::Key => "host.key cannot be used",
            Self::KeyMissing => "host.key is missing",
            Self::Unreachable => "its database cannot be reached",
            Self::Refused => "its database cannot be used",
            Self::Io | Self::Other => "it cannot be written",
        }
    }

    /// Returns true if the error may be temporary, so that a failed write is worth a retry.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        !matches!(self, Self::Corrupt | Self::Tampered | Self::TooNew | Self::ClockBehind)
    }

    /// Returns true if nothing can be written, while reading may be possible.
    pub(crate) const fn is_unwritable(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Full | Self::Io)
    }

    /// Returns the suggested fix.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Locked => {
                "See which process holds the files in `audit` of the home directory, and call again."
            }
            Self::Full => "Make room on the disk of the home directory, and call again.",
            Self::ReadOnly => {
                "Make the home directory, and `audit` in it, writable for this user, and call again."
            }
            Self::Io => {
                "See that the disk of the home directory works and that no quota is used up, and call again."
            }
            Self::Exposed => {
                "If nobody else has changed it: make it, and the directories on the way to it, this user's alone \
                 (`chown`, `chmod 600` for the file, `chmod go-w` for a directory), under one name."
            }
            Self::Replaced => {
                "Put the files back while no host runs, if they are there still; `cofferdam audit verify` looks at what \
                 is there now."
            }
            Self::Lost => {
                "Put the newest copy back. If there is none, look at the services for what was done under your keys; then \
                 `cofferdam audit verify --accept-loss` goes on with what is there."
            }
            Self::ClockBehind => {
                "Set the clock of this machine, and call again. If it is right, `cofferdam audit clock --accept` has the \
                 audit log go by it."
            }
            Self::Corrupt => {
                "Keep what is there as evidence: move the directory `audit` out of the home directory while no host \
                 runs. The next call begins a new audit log, and `cofferdam audit verify --accept-loss` lets calls \
                 under idempotency keys go on."
            }
            Self::Tampered => "`cofferdam audit verify` says all that is wrong; nothing of it is removed.",
            Self::Absent => "The first call or change by an operator begins it.",
            Self::TooNew => "Use a cofferdam that is as new.",
            Self::Key => {
                "Where nobody else has read it: `chmod 600 host.key`. Else move it away as evidence, and with it \
                 the directory `audit` and `home.state`: the next call makes a new key and a new audit log, in which \
                 every idempotency key is free."
            }
            Self::KeyMissing => {
                "Put it back from a backup. Where it is lost: move the directory `audit` and `home.state` out of the \
                 home directory as evidence; the next call makes a new key and a new audit log, in which every \
                 idempotency key is free."
            }
            Self::Unreachable => "See that the database runs and can be reached, and call again.",
            Self::Refused => {
                "Check `[audit] url` in config.toml, and the role and the database that it names."
            }
            Self::Other => "The log says more; `cofferdam audit verify` looks at the audit log.",
        }
    }
}

/// An error of the audit log. It is cheap to clone: one failed commit is reported to every caller that waits
/// for it.
#[derive(Debug, Clone)]
pub struct AuditError {
    kind: AuditErrorKind,
    detail: std::sync::Arc<str>,
    /// The suggested fix, if it is another than the kind's.
    fix: Option<std::sync::Arc<str>>,
}

impl AuditError {
    /// Creates an error of this kind; `detail` is for the operator.
    #[must_use]
    pub fn new(kind: AuditErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, detail: detail.to_string().into(), fix: None }
    }

    /// Sets the suggested fix, in the place of the kind's.
    #[must_use]
    pub fn with_fix(self, fix: impl fmt::Display) -> Self {
        Self { fix: Some(fix.to_string().into()), ..self }
    }

    /// Returns the suggested fix.
    #[must_use]
    pub fn fix(&self) -> &str {
        self.fix.as_deref().unwrap_or_else(|| self.kind.fix())
    }

    /// Why the file called `name` in the home directory cannot be used.
    pub(crate) fn from_file(name: &str, error: FileError) -> Self {
        match error {
            FileError::Refused(fault @ (FileFault::SymbolicLink | FileFault::NotRegular)) => {
                Self::new(AuditErrorKind::Corrupt, format_args!("{name} {fault}"))
            }
            FileError::Refused(fault) => Self::new(AuditErrorKind::Exposed, format_args!("{name} {fault}")),
            error => io::Error::from(error).into(),
        }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> AuditErrorKind {
        self.kind
    }

    /// Describes the error without any path of the machine: of a file that is not this user's alone or is missing,
    /// which one and why; of a log that was changed, where.
    pub fn says(&self) -> &str {
        match self.kind {
            AuditErrorKind::Exposed
            | AuditErrorKind::Key
            | AuditErrorKind::Lost
            | AuditErrorKind::Tampered
            | AuditErrorKind::Unreachable
            | AuditErrorKind::Refused => &self.detail,
            kind => kind.says(),
        }
    }
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.says(), self.detail)
    }
}

impl StdError for AuditError {}

impl From<io::Error> for AuditError {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                AuditErrorKind::Full
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => AuditErrorKind::ReadOnly,
            _ => AuditErrorKind::Io,
        };
        Self::new(kind, error)
    }
}

impl From<HostKeyError> for AuditError {
    fn from(error: HostKeyError) -> Self {
        match error {
            HostKeyError::Missing => Self::new(AuditErrorKind::KeyMissing, error),
            HostKeyError::Unsafe(fault) => Self::new(AuditErrorKind::Key, format_args!("host.key {fault}")),
            HostKeyError::Size | HostKeyError::Io(_) => Self::new(AuditErrorKind::Key, error),
        }
    }
}

impl From<StateError> for AuditError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Key(error) => error.into(),
            StateError::Io(error) => error.into(),
            StateError::VaultRefused(fault) => Self::from_file("the vault", FileError::Refused(fault)),
            StateError::VaultDamaged | StateError::Unusable => Self::new(AuditErrorKind::Lost, error),
        }
    }
}

impl From<rusqlite::Error> for AuditError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let kind = match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => {
                AuditErrorKind::Locked
            }
            Some(Code::DiskFull) => AuditErrorKind::Full,
            Some(Code::SystemIoFailure) => AuditErrorKind::Io,
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => AuditErrorKind::ReadOnly,
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => AuditErrorKind::Corrupt,
            _ => AuditErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
