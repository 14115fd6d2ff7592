//! Adding packages to the directory and removing them, atomically.

use std::fs;
use std::io;
use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_core::private_file::FileLock;
use semver::Version;

use super::error::RegistryError;
use super::files;
use super::index::{ActiveVersion, RegistryIndex, VersionHighWater};
use super::{
    ACCEPTED, Acceptance, AcceptanceBasis, HIGHEST, INDEX, LOCK, MAX_ACCEPTANCE_BYTES, MAX_SIGNATURE_BYTES,
    PACKAGE, Registry, SIGNATURE,
};
use crate::manifest::ConnectorName;
use crate::package::{MAX_BYTES, Package};

/// The outcome of an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallOutcome {
    /// The package is installed now and was not before.
    Installed,
    /// Exactly this package was installed already, and nothing changed.
    AlreadyInstalled,
    /// Exactly this package was installed already; its signature was replaced by the given one.
    SignatureUpdated,
    /// Exactly this package was installed already, but its files were damaged and have been repaired.
    Repaired,
}

impl Registry {
    /// Installs a package that the caller has verified, and makes its version the active one of its name. Installing an
    /// installed package again changes nothing, except that a given signature replaces the old one, and damaged bytes are
    /// repaired; a given acceptance replaces the old one. With `any_version`, a version below one that is or was installed
    /// is accepted.
    ///
    /// `record` gets the active versions before and after, if another version was active. It is called under the lock, when
    /// nothing has changed yet.
    ///
    /// # Errors
    /// Other bytes under the same name and version, a version below one that is or was installed, a new package without an
    /// acceptance or with one that was based on another active version, the error of `record`, and whatever the file system refuses; then nothing has changed.
    pub fn install<E: From<RegistryError>>(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
        acceptance: Option<&Acceptance>,
        any_version: bool,
        record: impl FnOnce(&Version, &Version) -> Result<(), E>,
    ) -> Result<InstallOutcome, E> {
        let _lock = self.lock()?;
        let had_tmp = self.tmp().exists();
        self.prepare()?;
        let outcome = self.write(package, signature, acceptance, any_version, record);
        if outcome.is_err() {
            // The files written so far take space that may be scarce. If their removal fails too, the next
            // writer removes them.
            drop(
                files::remove(&self.tmp())
                    .and_then(|()| if had_tmp { files::make_dir(&self.tmp()) } else { Ok(()) }),
            );
        }
        outcome
    }

    /// All files that need space are written before the first is moved into place.
    fn write<E: From<RegistryError>>(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
        acceptance: Option<&Acceptance>,
        any_version: bool,
        record: impl FnOnce(&Version, &Version) -> Result<(), E>,
    ) -> Result<InstallOutcome, E> {
        let mut index = self.index()?;
        let (name, version, digest) =
            (package.manifest().name(), package.manifest().version(), package.digest());
        let installed = index.get(name, version);
        if let Some(installed) = installed.filter(|installed| installed != digest) {
            return Err(RegistryError::conflict(name, version, installed, *digest).into());
        }
        if installed.is_some() {
            return Ok(self.place(package, signature, acceptance)?);
        }
        if !any_version {
            self.check_downgrade(name, version)?;
        }
        let active = index.active(name).map(|active| active.version.clone());
        let is_accepted = match acceptance.map(Acceptance::basis) {
            Some(AcceptanceBasis::Operator) => true,
            Some(AcceptanceBasis::NoWiderThan(version)) => active.as_ref() == Some(version),
            None => false,
        };
        if !is_accepted {
            return Err(RegistryError::ChangedMeanwhile { name: name.clone() }.into());
        }
        if let Some(active) = &active {
            record(active, version)?;
        }
        index.insert(name, version, *digest);
        let fresh = self.prepare_index(&index)?;
        self.place(package, signature, acceptance)?;
        files::move_into_place(&fresh, &self.root.join(INDEX))?;
        Ok(InstallOutcome::Installed)
    }

    /// Makes an installed version the active one of its name, and returns the one that it replaces. None if it was active.
    /// `record` gets the active versions before and after, under the lock, before they change.
    ///
    /// # Errors
    /// The version is not installed, the error of `record`, or the file system returns an error.
    pub fn activate<E: From<RegistryError>>(
        &self,
        name: &ConnectorName,
        version: &Version,
        record: impl FnOnce(&Version, &Version) -> Result<(), E>,
    ) -> Result<Option<Version>, E> {
        let _lock = self.begin()?;
        let mut index = self.index()?;
        if index.get(name, version).is_none() {
            return Err(RegistryError::NotInstalled { name: name.clone(), version: version.clone() }.into());
        }
        let replaced = index.active(name).map(|active| active.version.clone());
        let Some(replaced) = replaced.filter(|active| active != version) else { return Ok(None) };
        record(&replaced, version)?;
        index.activate(name, version);
        self.write_index(&index)?;
        Ok(Some(replaced))
    }

    /// Makes the version active again that was active before the present one, and returns the replaced version and the
    /// active one. None if no other installed version was active. `record` as for [`activate`](Self::activate).
    ///
    /// # Errors
    /// The error of `record`, or the file system returns an error.
    pub fn rollback<E: From<RegistryError>>(
        &self,
        name: &ConnectorName,
        record: impl FnOnce(&Version, &Version) -> Result<(), E>,
    ) -> Result<Option<(Version, Version)>, E> {
        let _lock = self.begin()?;
        let mut index = self.index()?;
        let Some(ActiveVersion { version: replaced, before: Some(version) }) = index.active(name).cloned()
        else {
            return Ok(None);
        };
        record(&replaced, &version)?;
        index.activate(name, &version);
        self.write_index(&index)?;
        Ok(Some((replaced, version)))
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

    /// Removes a package: first from the index, so that it disappears in one step, then its files. Its
    /// version is remembered. If it was active and other versions are left, another one becomes active: `record` gets both,
    /// under the lock, before they change.
    ///
    /// # Errors
    /// The package is not installed, the error of `record`, or the file system returns an error.
    pub fn remove<E: From<RegistryError>>(
        &self,
        name: &ConnectorName,
        version: &Version,
        record: impl FnOnce(&Version, &Version) -> Result<(), E>,
    ) -> Result<Digest, E> {
        let not_installed = || RegistryError::NotInstalled { name: name.clone(), version: version.clone() };
        if self.find(name, version)?.is_none() {
            return Err(not_installed().into());
        }
        let _lock = self.begin()?;
        let mut index = self.index()?;
        let before = index.active(name).map(|active| active.version.clone());
        let digest = index.remove(name, version).ok_or_else(not_installed)?;
        if let (Some(before), Some(after)) = (before, index.active(name))
            && before != after.version
        {
            record(&before, &after.version)?;
        }
        let mut highest = self.removed()?;
        if highest.remember(name, version) {
            self.write_highest(&highest)?;
        }
        self.write_index(&index)?;
        // A package that is left behind must not come back accepted with a rebuilt index.
        files::remove(&self.file(&digest, ACCEPTED))?;
        // Removed from the store in one step as well: a package is never partly present.
        let (directory, rest) = (self.directory(&digest), self.tmp().join("removed"));
        match fs::rename(&directory, &rest) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RegistryError::io("removing a package", directory)(error).into());
            }
            _ => files::remove(&rest)?,
        }
        Ok(digest)
    }

    /// Takes the lock and removes the leftovers of writers that were killed.
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

    pub(super) fn write_index(&self, index: &RegistryIndex) -> Result<(), RegistryError> {
        files::move_into_place(&self.prepare_index(index)?, &self.root.join(INDEX))
    }

    pub(super) fn write_highest(&self, highest: &VersionHighWater) -> Result<(), RegistryError> {
        let fresh = self.tmp().join(HIGHEST);
        files::write_new(&fresh, &highest.to_json())?;
        files::move_into_place(&fresh, &self.root.join(HIGHEST))
    }

    fn prepare_index(&self, index: &RegistryIndex) -> Result<PathBuf, RegistryError> {
        let fresh = self.tmp().join(INDEX);
        files::write_new(&fresh, &index.to_json())?;
        Ok(fresh)
    }

    /// Puts the files there; says what it did to those that were there already.
    fn place(
        &self,
        package: &Package,
        signature: Option<&[u8]>,
        acceptance: Option<&Acceptance>,
    ) -> Result<InstallOutcome, RegistryError> {
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
            if let Some(acceptance) = acceptance {
                files::write_new(&fresh.join(ACCEPTED), &acceptance.to_json())?;
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
            Some(signature) => self.replace_if_changed(digest, SIGNATURE, MAX_SIGNATURE_BYTES, signature)?,
            None => false,
        };
        if let Some(acceptance) = acceptance {
            self.replace_if_changed(digest, ACCEPTED, MAX_ACCEPTANCE_BYTES, &acceptance.to_json())?;
        }
        Ok(match (damaged, signed_anew) {
            (true, _) => InstallOutcome::Repaired,
            (false, true) => InstallOutcome::SignatureUpdated,
            (false, false) => InstallOutcome::AlreadyInstalled,
        })
    }

    fn replace_if_changed(
        &self,
        digest: &Digest,
        file: &str,
        limit: u64,
        bytes: &[u8],
    ) -> Result<bool, RegistryError> {
        let old = match self.read_file(digest, file, limit) {
            Ok(old) => old,
            Err(RegistryError::TooLarge { .. }) => None,
            Err(error) => return Err(error),
        };
        if old.is_some_and(|(old, _)| old == bytes) {
            return Ok(false);
        }
        self.replace(digest, file, bytes)?;
        Ok(true)
    }

    fn replace(&self, digest: &Digest, file: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        let fresh = self.tmp().join(file);
        files::write_new(&fresh, bytes)?;
        files::move_into_place(&fresh, &self.file(digest, file))
    }
}
