//! The fingerprint of an installed package's files at one moment; it shows whether a load is still valid.

use cofferdam_core::file_fingerprint::FileFingerprint;

/// A value that changes when an installed package or its signature is changed, replaced or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageFingerprint {
    package: FileFingerprint,
    signature: Option<FileFingerprint>,
}

impl PackageFingerprint {
    pub(super) fn new(package: FileFingerprint, signature: Option<FileFingerprint>) -> Self {
        Self { package, signature }
    }
}
