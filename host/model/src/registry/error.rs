//! The errors of the registry: for callers without local paths, for operators with them.

use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::FileFault;
use semver::Version;

use crate::manifest::ConnectorName;

/// The reason why the registry could not complete a request.
///
/// [`Display`](std::fmt::Display) and [`fix`](Self::fix) name no local path, so that both may reach an agent;
/// [`operator_text`](Self::operator_text) names the path and the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The operating system refused something.
    #[error("the package directory cannot be used: {doing} failed ({})", reason(source))]
    Io {
        /// The operation.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something in the package directory is not what the registry put there.
    #[error("the package directory holds {what} where {expected} belongs; it was not followed or read")]
    Foreign {
        /// The present item.
        what: &'static str,
        /// The expected item.
        expected: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// Another user could have written a file of the package directory.
    #[error("a file of the package directory {problem}; it was not read")]
    Exposed {
        /// The problem.
        problem: String,
        /// The repair.
        fix: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The index cannot be read.
    #[error("the index of installed packages (index.json) cannot be read: {problem}")]
    Index {
        /// The reason.
        problem: String,
        /// The file.
        path: PathBuf,
    },
    /// The list of removed versions cannot be read.
    #[error("the list of removed versions (highest.json) cannot be read: {problem}")]
    Highest {
        /// The reason.
        problem: String,
        /// The file.
        path: PathBuf,
    },
    /// The name and version are taken by other bytes.
    #[error("{0}")]
    Conflict(Box<ContentConflict>),
    /// A higher version of the connector is installed, or was.
    #[error("{0}")]
    Downgrade(Box<VersionDowngrade>),
    /// No such name and version is installed.
    #[error("nothing is installed as {name}@{version}")]
    NotInstalled {
        /// The connector.
        name: ConnectorName,
        /// The version.
        version: Version,
    },
    /// The index knows a package whose file is gone.
    #[error("the package sha256:{digest} is not in the package directory")]
    Gone {
        /// The package.
        digest: Digest,
        /// The expected path.
        path: PathBuf,
    },
    /// A file is larger than what may be installed.
    #[error("a file of the package directory has {bytes} bytes; the host reads up to {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The cap.
        limit: u64,
        /// The file.
        path: PathBuf,
    },
    /// Another process changed the installed versions on which the acceptance of a new package was based.
    #[error("another process changed the versions of {name} meanwhile")]
    ChangedMeanwhile {
        /// The connector.
        name: ConnectorName,
    },
    /// Another process has been changing the package directory for too long.
    #[error("another process is changing the package directory")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
}

/// One name and version, two contents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("other content is installed as {name}@{version}: sha256:{installed}, not sha256:{offered}")]
pub struct ContentConflict {
    /// The connector.
    pub name: ConnectorName,
    /// The version.
    pub version: Version,
    /// The installed package.
    pub installed: Digest,
    /// The package of the failed install.
    pub offered: Digest,
}

/// A version that is older than one that was there before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Version {offered} of {name} is older than {highest}, which is installed here or was: a downgrade")]
pub struct VersionDowngrade {
    /// The connector.
    pub name: ConnectorName,
    /// The highest version that is installed, or ever was.
    pub highest: Version,
    /// The version of the failed install.
    pub offered: Version,
}

impl RegistryError {
    /// The file breaks a rule of private files.
    pub(super) fn exposed(fault: &FileFault, path: PathBuf) -> Self {
        let path = match fault {
            FileFault::Directory { path } => path.clone(),
            _ => path,
        };
        Self::Exposed { problem: fault.to_string(), fix: fault.fix(), path }
    }

    /// `offered` is older than `highest`.
    pub(crate) fn downgrade(name: &ConnectorName, highest: Version, offered: &Version) -> Self {
        let (name, offered) = (name.clone(), offered.clone());
        Self::Downgrade(Box::new(VersionDowngrade { name, highest, offered }))
    }

    /// `name` and `version` are installed as `installed`, not as `offered`.
    pub fn conflict(name: &ConnectorName, version: &Version, installed: Digest, offered: Digest) -> Self {
        let (name, version) = (name.clone(), version.clone());
        Self::Conflict(Box::new(ContentConflict { name, version, installed, offered }))
    }

    /// The next step, as one or two sentences.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "Free some space on the disk, then try again; nothing was changed.".into()
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "Make the package directory writable for this user, or choose another with COFFERDAM_HOME."
                        .into()
                }
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                    "Move the file that is in the way, or choose another directory with COFFERDAM_HOME.".into()
                }
                _ => "The operator's log has the path and the cause.".into(),
            },
            Self::Exposed { fix, .. } => (*fix).into(),
            Self::Foreign { .. } => "Remove it; then install the connector again.".into(),
            Self::Index { .. } => {
                "Rebuild it from the packages themselves: `cofferdam verify --rebuild-index`.".into()
            }
            Self::Highest { .. } => {
                "Make it anew, from what is installed now: `cofferdam verify --rebuild-index`.".into()
            }
            Self::Downgrade(_) => {
                "Old versions have known holes. If you mean to go back, pass --allow-downgrade to this install."
                    .into()
            }
            Self::Conflict(conflict) => {
                let ContentConflict { name, version, .. } = conflict.as_ref();
                format!("If the new one is right: `cofferdam remove {name}@{version}`, then install it.")
            }
            Self::NotInstalled { .. } => "`cofferdam list` shows what is installed.".into(),
            Self::Gone { .. } | Self::TooLarge { .. } => "Remove the connector and install it again.".into(),
            Self::Locked { .. } => "Try again when it is done.".into(),
            Self::ChangedMeanwhile { .. } => "Install again: the package is compared with the version that is active now.".into(),
        }
    }

    /// The file or directory that it is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Foreign { path, .. }
            | Self::Exposed { path, .. }
            | Self::Index { path, .. }
            | Self::Highest { path, .. }
            | Self::Gone { path, .. }
            | Self::TooLarge { path, .. }
            | Self::Locked { path } => Some(path),
            Self::Conflict(_)
            | Self::Downgrade(_)
            | Self::NotInstalled { .. }
            | Self::ChangedMeanwhile { .. } => None,
        }
    }

    /// Returns the message with the path and the system's own error: for the operator alone.
    #[must_use]
    pub fn operator_text(&self) -> String {
        let mut text = self.to_string();
        if let Some(path) = self.path() {
            text.push_str(&format!(" [{}]", path.display()));
        }
        if let Self::Io { source, .. } = self {
            text.push_str(&format!(": {source}"));
        }
        text
    }

    /// Returns the error kind of the host for it.
    #[must_use]
    pub fn kind(&self) -> HostErrorKind {
        match self {
            Self::Conflict(_) | Self::ChangedMeanwhile { .. } => HostErrorKind::Conflict,
            Self::Downgrade(_) => HostErrorKind::Downgrade,
            Self::NotInstalled { .. } => HostErrorKind::ConnectorNotFound,
            Self::Locked { .. } => HostErrorKind::Busy,
            _ => HostErrorKind::RegistryUnavailable,
        }
    }

    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

impl From<RegistryError> for HostError {
    fn from(error: RegistryError) -> Self {
        let mut message = error.to_string();
        if let Some(first) = message.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        HostError::new(error.kind(), message + ".").with_hint(error.fix()).with_source(error.operator_text())
    }
}

/// Returns the system's reason, without a path.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full".into(),
        io::ErrorKind::QuotaExceeded => "the user's disk quota is used up".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::ReadOnlyFilesystem => "it is read-only".into(),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "a file is in the way".into(),
        kind => kind.to_string(),
    }
}
