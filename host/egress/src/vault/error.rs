//! Why a vault cannot be used: the operator's to mend, never an outcome of a call.

use std::io::ErrorKind;

use cofferdam_core::error::{HostError, HostErrorKind};

/// Why a vault cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// It is locked, and what would open it is missing or wrong.
    #[error("{message}")]
    Locked {
        /// What is missing or wrong, in one sentence.
        message: String,
        /// What to do.
        hint: String,
    },
    /// It is there and cannot be used: not a vault, of a newer version, changed by something else.
    #[error("{message}")]
    Unusable {
        /// What is wrong, in one sentence; nothing of the contents.
        message: String,
        /// What to do.
        hint: String,
    },
    /// The system refused.
    #[error("{message}")]
    Io {
        /// What was attempted, in one sentence.
        message: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The change was refused; nothing was changed.
    #[error("{message}")]
    Refused {
        /// Why, in one sentence.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl From<VaultError> for HostError {
    fn from(error: VaultError) -> Self {
        let message = error.to_string();
        match error {
            VaultError::Locked { hint, .. } => Self::new(HostErrorKind::VaultLocked, message).hint(hint),
            VaultError::Unusable { hint, .. } => Self::new(HostErrorKind::VaultUnusable, message).hint(hint),
            VaultError::Refused { hint, .. } => Self::new(HostErrorKind::Validation, message).hint(hint),
            VaultError::Io { source, .. } => {
                let hint = match source.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Make room, and try again.",
                    ErrorKind::PermissionDenied => {
                        "Run as the owner of the home directory, or give this user the permission."
                    }
                    ErrorKind::ReadOnlyFilesystem => {
                        "Make the home directory writable, or name another with --home."
                    }
                    _ => "Check the file and the disk that it is on.",
                };
                Self::new(HostErrorKind::VaultUnusable, message).hint(hint).because(source)
            }
        }
    }
}
