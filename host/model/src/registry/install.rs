//! Putting packages into the directory and taking them out: whole, or not at all.

use std::fs;
use std::io;
use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_core::private_file::FileLock;
use semver::Version;

use super::error::RegistryError;
use super::files;
use super::highest::Highest;
use super::index::Index;
use super::{HIGHEST, INDEX, LOCK, MAX_SIGNATURE_BYTES, PACKAGE, Registry, SIGNATURE};
use crate::manifest::ConnectorName;
use crate::package::{MAX_BYTES, Package};

/// What an install found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallOutcome {
    /// The package is installed now and was not before.
    Installed,
    /// The very package was installed already, and nothing changed.
    AlreadyInstalled,
    /// The very package was installed already; its signature is the one given now.
    SignatureUpdated,
    /// The very package was installed already, but its files were damaged; now they are right.
    Repaired,
}

impl Registry {
    /// Installs a package that the caller has verified. Installing what is installed changes nothing,
    /// except that a signature given now replaces the one there, and damaged bytes are put right.
    ///
    /// # Errors
    /// Other bytes under the same name and version, a version below one that is or was installed, and
    /// whatever the file system refuses; then nothing has changed.
    pub fn install(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<InstallOutcome, RegistryError> {
        self.install_checked(package, signature, false)
    }

    /// The same for any version: for a downgrade that somebody asked for.
    ///
    /// # Errors
    /// As [`install`](Self::install), except for the version.
    pub fn install_any_version(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
    ) -> Result<InstallOutcome, RegistryError> {
        self.install_checked(package, signature, true)
    }

    fn install_checked(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
        any_version: bool,
    ) -> Result<InstallOutcome, RegistryError> {
        let _lock = self.lock()?;
        let had_tmp = self.tmp().exists();
        self.prepare()?;
        let outcome = self.write(package, signature, any_version);
        if outcome.is_err() {
            // What was written so far takes room that may be short. Where this fails too, the next writer
            // sweeps it up.
            drop(
                files::remove(&self.tmp())
                    .and_then(|()| if had_tmp { files::make_dir(&self.tmp()) } else { Ok(()) }),
            );
        }
        outcome
    }

    /// Everything that needs room is written before anything is moved into place.
    fn write(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
        any_version: bool,
    ) -> Result<InstallOutcome, RegistryError> {
        let mut index = self.index()?;
        let (name, version, digest) =
            (package.manifest().name(), package.manifest().version(), package.digest());
        let installed = index.get(name, version);
        if let Some(installed) = installed.filter(|installed| installed != digest) {
            return Err(RegistryError::conflict(name, version, installed, *digest));
        }
        if installed.is_some() {
            return self.place(package, signature);
        }
        if !any_version {
            self.check_downgrade(name, version)?;
        }
        index.insert(name, version, *digest);
        let fresh = self.prepare_index(&index)?;
        self.place(package, signature)?;
        files::move_into_place(&fresh, &self.root.join(INDEX))?;
        Ok(InstallOutcome::Installed)
    }

    /// Refuses a version below the highest of its name that is installed, or ever was.
    ///
    /// # Errors
    /// [`RegistryError::Downgrade`], and files that cannot be read.
    pub fn check_downgrade(&self, name: &ConnectorName, version: &Version) -> Result<(), RegistryError> {
        match self.highest(name)? {
            Some(highest) if version.cmp_precedence(&highest).is_lt() => {
                Err(RegistryError::downgrade(name, highest, version))
            }
            _ => Ok(()),
        }
    }

    /// Removes a package: first from the index, so that it is gone in one step, then its files. That it was
    /// there is remembered.
    ///
    /// # Errors
    /// What is not installed, and whatever the file system refuses.
    pub fn remove(&self, name: &ConnectorName, version: &Version) -> Result<Digest, RegistryError> {
        let not_installed = || RegistryError::NotInstalled { name: name.clone(), version: version.clone() };
        if self.find(name, version)?.is_none() {
            return Err(not_installed());
        }
        let _lock = self.begin()?;
        let mut index = self.index()?;
        let digest = index.remove(name, version).ok_or_else(not_installed)?;
        let mut highest = self.removed()?;
        if highest.remember(name, version) {
            self.write_highest(&highest)?;
        }
        self.write_index(&index)?;
        // Out of the store in one step as well: a package is never there in part.
        let (directory, rest) = (self.directory(&digest), self.tmp().join("removed"));
        match fs::rename(&directory, &rest) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RegistryError::io("removing a package", directory)(error));
            }
            _ => files::remove(&rest)?,
        }
        Ok(digest)
    }

    /// Takes the lock and sweeps up after writers that were killed.
    pub(super) fn begin(&self) -> Result<FileLock, RegistryError> {
        let lock = self.lock()?;
        self.prepare()?;
        Ok(lock)
    }

    fn lock(&self) -> Result<FileLock, RegistryError> {
        files::make_dir(&self.root)?;
        files::lock(&self.root.join(LOCK))
    }

    /// Empties the directory of unfinished files; only the holder of the lock writes there.
    fn prepare(&self) -> Result<(), RegistryError> {
        files::remove(&self.tmp())?;
        files::make_dir(&self.tmp())?;
        files::make_dir(&self.store())
    }

    pub(super) fn write_index(&self, index: &Index) -> Result<(), RegistryError> {
        files::move_into_place(&self.prepare_index(index)?, &self.root.join(INDEX))
    }

    pub(super) fn write_highest(&self, highest: &Highest) -> Result<(), RegistryError> {
        let fresh = self.tmp().join(HIGHEST);
        files::write_new(&fresh, &highest.to_json())?;
        files::move_into_place(&fresh, &self.root.join(HIGHEST))
    }

    fn prepare_index(&self, index: &Index) -> Result<PathBuf, RegistryError> {
        let fresh = self.tmp().join(INDEX);
        files::write_new(&fresh, &index.to_json())?;
        Ok(fresh)
    }

    /// Puts the files there; says what it did to those that were there already.
    fn place(&self, package: &Package, signature: Option<&[u8]>) -> Result<InstallOutcome, RegistryError> {
        let digest = package.digest();
        let directory = self.directory(digest);
        let there = match self.read_file(digest, PACKAGE, MAX_BYTES) {
            Ok(there) => there.map(|(bytes, _)| bytes),
            Err(RegistryError::TooLarge { .. }) => None,
            Err(error) => return Err(error),
        };
        if there.is_none() && !directory.exists() {
            let fresh = self.tmp().join(digest.to_string());
            files::make_dir(&fresh)?;
            files::write_new(&fresh.join(PACKAGE), package.bytes())?;
            if let Some(signature) = signature {
                files::write_new(&fresh.join(SIGNATURE), signature)?;
            }
            files::sync_dir(&fresh)?;
            files::move_into_place(&fresh, &directory)?;
            return Ok(InstallOutcome::Repaired);
        }
        let damaged = there.is_none_or(|bytes| bytes != package.bytes());
        if damaged {
            self.replace(digest, PACKAGE, package.bytes())?;
        }
        let signed_anew = match signature {
            Some(signature) => self.sign_anew(digest, signature)?,
            None => false,
        };
        Ok(match (damaged, signed_anew) {
            (true, _) => InstallOutcome::Repaired,
            (false, true) => InstallOutcome::SignatureUpdated,
            (false, false) => InstallOutcome::AlreadyInstalled,
        })
    }

    fn sign_anew(&self, digest: &Digest, signature: &[u8]) -> Result<bool, RegistryError> {
        let old = match self.read_file(digest, SIGNATURE, MAX_SIGNATURE_BYTES) {
            Ok(old) => old,
            Err(RegistryError::TooLarge { .. }) => None,
            Err(error) => return Err(error),
        };
        if old.is_some_and(|(old, _)| old == signature) {
            return Ok(false);
        }
        self.replace(digest, SIGNATURE, signature)?;
        Ok(true)
    }

    fn replace(&self, digest: &Digest, file: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        let fresh = self.tmp().join(file);
        files::write_new(&fresh, bytes)?;
        files::move_into_place(&fresh, &self.file(digest, file))
    }
}
