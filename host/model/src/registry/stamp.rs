//! What an installed package's files look like at one moment: whether a load still stands.

use cofferdam_core::stamp::FileStamp;

/// What changes when somebody changes, replaces or removes an installed package or its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    package: FileStamp,
    signature: Option<FileStamp>,
}

impl Stamp {
    pub(super) fn new(package: FileStamp, signature: Option<FileStamp>) -> Self {
        Self { package, signature }
    }
}
