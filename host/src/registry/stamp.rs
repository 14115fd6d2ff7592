//! A file's identity as one `stat` tells it: whether a load still stands, without reading anything.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Stat;

/// What changes when somebody changes, replaces or removes an installed package or its signature.
///
/// Not proof against somebody who can set the system's clock and write to the directory: the change
/// time cannot be set otherwise. What it decides is when to verify again, never whether bytes are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    package: FileStamp,
    signature: Option<FileStamp>,
}

/// Device, inode, size, and the times of the last change to content and to the inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn new(package: FileStamp, signature: Option<FileStamp>) -> Self {
        Self { package, signature }
    }
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl From<&Stat> for FileStamp {
    #[expect(clippy::cast_sign_loss, reason = "a size is not negative; compared for equality only")]
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}
