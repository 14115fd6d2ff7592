//! Whether anything was installed, removed, trusted or revoked since a former look.

use cofferdam_core::error::HostError;
use cofferdam_core::stamp::FileStamp;
use cofferdam_model::trust::KeyringStamp;

use super::Host;

/// What is installed, who is trusted and which actions there are, as far as a `stat` tells whether it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub(crate) ground: Ground,
    /// By file name, in order.
    pub actions: Vec<(String, FileStamp)>,
}

/// What every action stands on: what is installed and who is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    index: Option<FileStamp>,
    keyring: KeyringStamp,
}

impl Ground {
    /// Whether a later change is sure to show.
    pub fn is_settled(&self) -> bool {
        self.index.is_none_or(|index| index.is_settled()) && self.keyring.is_settled()
    }
}

impl Host {
    /// What there is now, to compare with a later look. It looks at every file: not for an executor's threads.
    pub fn installation(&self) -> Installation {
        Installation { ground: self.ground(), actions: self.shelf.stamps() }
    }

    /// What is installed and who is trusted now, to compare with a later look.
    pub fn ground(&self) -> Ground {
        let loader = &self.pipeline.loader;
        Ground { index: loader.registry.index_stamp(), keyring: loader.keyring.stamp() }
    }

    /// The names of the actions, in order.
    ///
    /// # Errors
    /// As [`actions`](Self::actions).
    pub fn action_names(&self) -> Result<Vec<String>, HostError> {
        self.shelf.names()
    }
}
