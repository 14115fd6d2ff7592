//! The identity of a file's content as one `stat` reports it, to detect changes without reading the file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Stat;

/// Device, inode, size, and the times of the last change to content and to the inode.
///
/// This does not protect against an attacker that can set the system's clock and write to the directory: the
/// change time cannot be set otherwise. It only decides when to read the file again, never whether its
/// content is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFingerprint {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileFingerprint {
    /// Returns whether it is the same file, changed or not.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether a later change is certain to be detected. File systems count time in steps of some
    /// milliseconds, and reuse inode numbers: a file that changed just now could change again undetected.
    pub fn is_stable(&self) -> bool {
        let now = jiff::Timestamp::now();
        let settles = i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1) + 100_000_000;
        now.as_nanosecond() > settles
    }
}

impl From<&Metadata> for FileFingerprint {
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

impl From<&Stat> for FileFingerprint {
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
