//! Why a vault cannot be used: the operator's to mend, never an outcome of a call.

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
