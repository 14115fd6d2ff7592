//! Detects whether anything was installed, removed, trusted or revoked since an earlier check.

use cofferdam_core::error::HostError;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_model::trust::KeyringFingerprint;

use super::Host;

/// The installed packages, the keyring and the actions, as fingerprints of their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledRevision {
    pub(crate) ground: RevisionGround,
    /// The fingerprints of the action files, ordered by file name.
    pub actions: Vec<(String, FileFingerprint)>,
}

/// The state that every action depends on: the installed packages and the keyring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionGround {
    index: Option<FileFingerprint>,
    keyring: KeyringFingerprint,
}

impl RevisionGround {
    /// True if any later change is sure to be detected.
    pub fn is_settled(&self) -> bool {
        self.index.is_none_or(|index| index.is_stable()) && self.keyring.is_stable()
    }
}

impl Host {
    /// Returns the current state, for a later comparison. It reads the metadata of every file: not for an
    /// executor's threads.
    pub fn installation(&self) -> InstalledRevision {
        InstalledRevision { ground: self.ground(), actions: self.shelf.stamps() }
    }

    /// Returns the current state of the installed packages and the keyring, for a later comparison.
    pub fn ground(&self) -> RevisionGround {
        let loader = &self.pipeline.loader;
        RevisionGround { index: loader.registry.index_fingerprint(), keyring: loader.keyring.fingerprint() }
    }

    /// Returns the names of the actions, in order.
    ///
    /// # Errors
    /// As [`actions`](Self::actions).
    pub fn action_names(&self) -> Result<Vec<String>, HostError> {
        self.shelf.names()
    }
}
