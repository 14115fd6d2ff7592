//! The reasons why a vault cannot be used. The operator must fix them; they are never an outcome of a call.

use std::io::ErrorKind;

use cofferdam_core::error::{HostError, HostErrorKind};

/// The reason why a vault cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The vault is locked, and its key file or passphrase is missing or wrong.
    #[error("{message}")]
    Locked {
        /// The problem in one sentence.
        message: String,
        /// The suggested fix.
        hint: String,
    },
    /// The file exists and cannot be used: not a vault, of a newer version, or modified.
    #[error("{message}")]
    Unusable {
        /// The problem in one sentence, without any of the contents.
        message: String,
        /// The suggested fix.
        hint: String,
    },
    /// The system reported an error.
    #[error("{message}")]
    Io {
        /// The failed action, in one sentence.
        message: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The change was rejected; nothing was changed.
    #[error("{message}")]
    Refused {
        /// The reason, in one sentence.
        message: String,
        /// The suggested fix.
        hint: String,
    },
}

impl From<VaultError> for HostError {
    fn from(error: VaultError) -> Self {
        let message = error.to_string();
        match error {
            VaultError::Locked { hint, .. } => Self::new(HostErrorKind::VaultLocked, message).with_hint(hint),
            VaultError::Unusable { hint, .. } => {
                Self::new(HostErrorKind::VaultUnusable, message).with_hint(hint)
            }
            VaultError::Refused { hint, .. } => Self::new(HostErrorKind::Validation, message).with_hint(hint),
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
                Self::new(HostErrorKind::VaultUnusable, message).with_hint(hint).with_source(source)
            }
        }
    }
}
