//! The path to a private file: every directory and every link on it decides which file is opened.
//!
//! A user that can write a directory can rename its entries, and so put another of the owner's own files, or
//! a link to one, in the place of a private file; its mode and owner would be right. So each directory must
//! belong to this user or to root, and only they may write it. A directory in which every user may create
//! files but rename only their own (the sticky bit, as on `/tmp`) is allowed: its entries on the path have to
//! belong to this user or to root as well.
//!
//! Above the directory of the file itself, write permission for the group with the number of the user is
//! allowed: it is the user's private group on most systems.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::parent;
use super::policy::{FileError, FileFault, FileLocation, FilePolicy, is_own};

/// The maximum number of links that are followed on one path, as in Linux.
const MAX_LINKS: u32 = 40;

const STICKY: u32 = 0o1000;

/// Checks the path to the file at `path` and returns it without links in its directories; `None` if a part of
/// it is missing. The policy decides about a link in the last part.
pub(super) fn resolve(path: &Path, policy: &FilePolicy) -> Result<Option<PathBuf>, FileError> {
    match policy.location() {
        FileLocation::Output => Ok(Some(path.to_owned())),
        FileLocation::Named => match DirectoryWalk::begin()?.to(path)? {
            // A descriptor of a pipe or a socket, by its name in the file system.
            None if path.exists() => Err(FileFault::NotRegular.into()),
            path => Ok(path),
        },
        FileLocation::Home => {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let Some(directory) = DirectoryWalk::begin()?.to(parent(path))? else { return Ok(None) };
            check_own(&directory)?;
            Ok(Some(directory.join(name)))
        }
    }
}

/// Rejects the directory of private files if any user but this one or root can write it.
fn check_own(directory: &Path) -> Result<(), FileError> {
    let metadata = fs::symlink_metadata(directory)?;
    let mode = metadata.mode();
    if metadata.is_dir() && mode & 0o022 != 0 && mode & STICKY == 0 {
        return Err(FileFault::Directory { path: directory.to_owned() }.into());
    }
    Ok(())
}

/// A walk from the root directory, one name at a time.
struct DirectoryWalk {
    here: PathBuf,
    /// The owner of the root directory is root, which has another number in a user namespace.
    system: u32,
    links: u32,
}

impl DirectoryWalk {
    fn begin() -> io::Result<Self> {
        let here = PathBuf::from("/");
        let system = fs::symlink_metadata(&here)?.uid();
        Ok(Self { here, system, links: 0 })
    }

    fn to(mut self, path: &Path) -> Result<Option<PathBuf>, FileError> {
        // The next name is the last one.
        let mut names = Vec::new();
        push(&mut names, &std::path::absolute(path)?);
        while let Some(name) = names.pop() {
            if name == ".." {
                self.here.pop();
                continue;
            }
            let next = self.here.join(&name);
            let metadata = match fs::symlink_metadata(&next) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if metadata.is_symlink() {
                self.links += 1;
                if self.links > MAX_LINKS {
                    return Err(io::Error::from(rustix::io::Errno::LOOP).into());
                }
                self.check_owner(&next, &metadata)?;
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    self.here = PathBuf::from("/");
                }
                push(&mut names, &target);
                continue;
            }
            if metadata.is_dir() {
                self.check_directory(&next, &metadata)?;
            }
            self.here = next;
        }
        Ok(Some(self.here))
    }

    fn check_directory(&self, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
        self.check_owner(path, metadata)?;
        let mode = metadata.mode();
        let has_private_group = metadata.gid() == rustix::process::geteuid().as_raw();
        let writable = if has_private_group { 0o002 } else { 0o022 };
        if mode & writable != 0 && mode & STICKY == 0 {
            return Err(FileFault::Directory { path: path.to_owned() }.into());
        }
        Ok(())
    }

    fn check_owner(&self, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
        if is_own(metadata.uid()) || metadata.uid() == self.system {
            return Ok(());
        }
        Err(FileFault::Directory { path: path.to_owned() }.into())
    }
}

/// Adds the names of `path`, of which the first one is the next.
fn push(names: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.extend(parts);
}
