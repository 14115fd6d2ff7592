//! A check that an installed package's files are unchanged: every call makes it, so it must cost little.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use cofferdam_core::digest::Digest;
use cofferdam_core::file_fingerprint::FileFingerprint;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::{PACKAGE, Registry, RegistryError, SIGNATURE, STORE};

/// The files of one installed package, found and opened once.
///
/// The package is checked by its path, so that another directory put in its place shows. The signature, if
/// there is one, is checked by its descriptor, which costs less than half: writing to it, moving a file over
/// it or renaming it changes the inode's own time.
#[derive(Debug)]
pub struct PackageWatch {
    root: OwnedFd,
    package: CString,
    signature: Result<OwnedFd, CString>,
}

impl PackageWatch {
    /// Returns the present fingerprint of the files; none if the package is missing or unreadable.
    pub fn fingerprint(&self) -> Option<PackageFingerprint> {
        let stat = |path: &CString| statat(&self.root, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        let package = FileFingerprint::from(&stat(&self.package).ok()?);
        let signature = match &self.signature {
            Ok(file) => Some(fstat(file).ok()?),
            Err(path) => match stat(path) {
                Ok(signature) => Some(signature),
                Err(Errno::NOENT) => None,
                Err(_) => return None,
            },
        };
        Some(PackageFingerprint::new(package, signature.as_ref().map(FileFingerprint::from)))
    }
}

impl Registry {
    /// Looks after the files of a package from here on, to compare with [`super::StoredPackage::fingerprint`].
    ///
    /// # Errors
    /// A directory of packages that cannot be opened.
    pub fn watch(&self, digest: &Digest) -> Result<PackageWatch, RegistryError> {
        let failed = |errno: Errno| RegistryError::io("opening", &self.root)(errno.into());
        let path =
            |file: &str| CString::new(format!("{STORE}/{digest}/{file}")).map_err(|_| failed(Errno::INVAL));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = openat(CWD, &self.root, flags | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        let signature = path(SIGNATURE)?;
        let signature = openat(&root, signature.as_c_str(), flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|_| signature);
        Ok(PackageWatch { root, package: path(PACKAGE)?, signature })
    }
}

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
