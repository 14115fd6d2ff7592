//! A limit that is not acceptable, with whose wish it was: the fix is at another place for each.

use super::LimitError;

/// Who may ask for a limit, highest rank first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSource {
    /// Whoever makes the call.
    Caller,
    /// The action that the call is a step of.
    Action,
    /// The connector's manifest.
    Manifest,
}

impl LimitSource {
    /// The word for it in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "the caller",
            Self::Action => "the action",
            Self::Manifest => "the manifest",
        }
    }

    /// What to do about a limit of it that is not acceptable.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Caller => "Ask for less in the call (--fuel, --wall-time, --memory on the command line).",
            Self::Action => "Lower the limit in the action.",
            Self::Manifest => "Lower the limit in the [limits] table of connector.toml.",
        }
    }
}

/// A request above its ceiling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error} (asked for by {})", .asked_by.name())]
pub struct RefusedLimit {
    /// Whose request it is.
    pub asked_by: LimitSource,
    /// What is wrong with it.
    pub error: LimitError,
}
