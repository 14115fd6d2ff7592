//! Whether an installed package's files are as they were: what each call asks, so it must cost little.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::stamp::{FileStamp, Stamp};
use super::{PACKAGE, Registry, RegistryError, SIGNATURE, STORE};
use crate::digest::Digest;

/// The files of one installed package, with their paths written and the packages' directory opened once:
/// a look is two `stat`s of three names each. A directory that is replaced on the way shows too.
#[derive(Debug)]
pub(crate) struct Watch {
    root: OwnedFd,
    package: CString,
    signature: CString,
}

impl Watch {
    /// What the files are like now; none if the package is gone or cannot be looked at.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let stat = |path: &CString| statat(&self.root, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        let package = stat(&self.package).ok()?;
        let signature = match stat(&self.signature) {
            Ok(signature) => Some(FileStamp::from(&signature)),
            Err(Errno::NOENT) => None,
            Err(_) => return None,
        };
        Some(Stamp::new(FileStamp::from(&package), signature))
    }
}

impl Registry {
    /// Looks after the files of a package from here on, to compare with [`super::Stored::stamp`].
    ///
    /// # Errors
    /// A directory of packages that cannot be opened.
    pub(crate) fn watch(&self, digest: &Digest) -> Result<Watch, RegistryError> {
        let failed = |errno: Errno| RegistryError::io("opening", &self.root)(errno.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &self.root, flags, Mode::empty()).map_err(failed)?;
        let path =
            |file: &str| CString::new(format!("{STORE}/{digest}/{file}")).map_err(|_| failed(Errno::INVAL));
        Ok(Watch { root, package: path(PACKAGE)?, signature: path(SIGNATURE)? })
    }
}
