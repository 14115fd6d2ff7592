//! Whether anything was installed, removed, trusted or revoked since a former look.

use super::Host;
use crate::stamp::FileStamp;
use crate::trust::KeyringStamp;

/// What is installed and who is trusted, as far as a `stat` tells whether it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    index: Option<FileStamp>,
    keyring: KeyringStamp,
    actions: Vec<(String, FileStamp)>,
}

impl Host {
    /// What is installed and who is trusted now, to compare with a later look.
    pub(crate) fn installation(&self) -> Installation {
        let loader = &self.pipeline.loader;
        Installation {
            index: loader.registry.index_stamp(),
            keyring: loader.keyring.stamp(),
            actions: self.shelf.stamps(),
        }
    }
}
