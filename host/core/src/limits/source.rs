//! An invalid limit with its source: the fix is in another place for each source.

use super::LimitError;

/// The sources of a limit, highest rank first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSource {
    /// The caller.
    Caller,
    /// The action that the call is a step of.
    Action,
    /// The connector's manifest.
    Manifest,
}

impl LimitSource {
    /// Returns the name of the source in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "the caller",
            Self::Action => "the action",
            Self::Manifest => "the manifest",
        }
    }

    /// Returns the fix for an invalid limit of this source.
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
    /// The source of the request.
    pub asked_by: LimitSource,
    /// The problem.
    pub error: LimitError,
}
