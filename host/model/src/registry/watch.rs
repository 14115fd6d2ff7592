//! Whether an installed package's files are as they were: what each call asks, so it must cost little.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use cofferdam_core::digest::Digest;
use cofferdam_core::stamp::FileStamp;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::stamp::Stamp;
use super::{PACKAGE, Registry, RegistryError, SIGNATURE, STORE};

/// The files of one installed package, found and opened once.
///
/// The package is looked at by its path, so that another directory put in its place shows; the signature
/// beside it, where there is one, by its descriptor, which costs less than half: whatever is written to
/// it, moved over it or done to its name changes the inode's own time.
#[derive(Debug)]
pub struct Watch {
    root: OwnedFd,
    package: CString,
    signature: Result<OwnedFd, CString>,
}

impl Watch {
    /// What the files are like now; none if the package is gone or cannot be looked at.
    pub fn stamp(&self) -> Option<Stamp> {
        let stat = |path: &CString| statat(&self.root, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        let package = FileStamp::from(&stat(&self.package).ok()?);
        let signature = match &self.signature {
            Ok(file) => Some(fstat(file).ok()?),
            Err(path) => match stat(path) {
                Ok(signature) => Some(signature),
                Err(Errno::NOENT) => None,
                Err(_) => return None,
            },
        };
        Some(Stamp::new(package, signature.as_ref().map(FileStamp::from)))
    }
}

impl Registry {
    /// Looks after the files of a package from here on, to compare with [`super::Stored::stamp`].
    ///
    /// # Errors
    /// A directory of packages that cannot be opened.
    pub fn watch(&self, digest: &Digest) -> Result<Watch, RegistryError> {
        let failed = |errno: Errno| RegistryError::io("opening", &self.root)(errno.into());
        let path =
            |file: &str| CString::new(format!("{STORE}/{digest}/{file}")).map_err(|_| failed(Errno::INVAL));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = openat(CWD, &self.root, flags | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        let signature = path(SIGNATURE)?;
        let signature = openat(&root, signature.as_c_str(), flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|_| signature);
        Ok(Watch { root, package: path(PACKAGE)?, signature })
    }
}
