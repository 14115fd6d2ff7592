//! A file's identity as one `stat` tells it: whether what was read of it still stands, without reading anything.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Stat;

/// Device, inode, size, and the times of the last change to content and to the inode.
///
/// Not proof against somebody who can set the system's clock and write to the directory: the change
/// time cannot be set otherwise. What it decides is when to look again, never whether bytes are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Whether it is the same file, changed or not.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether a later change is sure to show. File systems count time in steps of some milliseconds, and
    /// give a number that became free to the next file: what changed just now could change again unseen.
    pub fn is_settled(&self) -> bool {
        let now = jiff::Timestamp::now();
        let settles = i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1) + 100_000_000;
        now.as_nanosecond() > settles
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
