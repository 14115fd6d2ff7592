//! The home of a connector under development.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::private_file::FileLock;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::package::Package;
use cofferdam_model::trust::{KeyringFile, ReleaseStatement, SecretKey, SigningScope, sign};
use cofferdam_runtime::approvals::ApprovalPolicy;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Host, HostBuilder, InstallOptions};
use jiff::Timestamp;

/// The entries that survive from one use to the next: compiled code, and the key that authenticates it.
const KEPT: [&str; 2] = ["cache", "host.key"];

const LOCK: &str = "dev.lock";

/// The time that another process has for giving up the home, before it is reported as in use.
const PATIENCE: Duration = Duration::from_millis(200);

/// A home for one process, with a key that exists only in its memory and that no other home trusts.
///
/// Compiled code is kept between uses. Everything else is removed when the home is opened: connectors, trust and audit
/// log are those of this process.
pub struct DevHome {
    dir: PathBuf,
    key: SecretKey,
    /// Held as long as the home is in use.
    _lock: FileLock,
}

impl DevHome {
    /// Opens the home in `dir`, which is created, readable for its owner only.
    ///
    /// # Errors
    /// `busy` if another process uses it; the directory cannot be written.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, HostError> {
        Self::open_within(dir, PATIENCE)
    }

    /// Opens the home in `dir` as [`open`](Self::open) does, and gives another process that uses it so much time to
    /// end. Blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_within(dir: impl Into<PathBuf>, patience: Duration) -> Result<Self, HostError> {
        let dir = dir.into();
        let failed = |error: &dyn std::fmt::Display| {
            HostError::new(HostErrorKind::Configuration, "The development home cannot be used.")
                .with_hint("See that its directory is yours and can be written.")
                .with_source(format!("{}: {error}", dir.display()))
        };
        create_private(&dir).map_err(|error| failed(&error))?;
        let lock = FileLock::acquire(&dir.join(LOCK), patience).map_err(|error| failed(&error))?;
        let lock = lock.ok_or_else(|| {
            HostError::new(HostErrorKind::Busy, "Another process develops this connector now.")
                .with_hint("End the other `cofferdam dev` or `cofferdam test` of this directory.")
        })?;
        clear(&dir).map_err(|error| failed(&error))?;
        let key = SecretKey::generate().map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The system has no randomness.")
                .with_source(error.message().to_owned())
        })?;
        Ok(Self { dir, key, _lock: lock })
    }

    /// Returns its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the configuration of a host in this home. No call of it waits for a person: its services are stand-ins.
    #[must_use]
    pub fn builder(&self) -> HostBuilder {
        Host::builder().home(&self.dir).approval_policy(ApprovalPolicy::never())
    }

    /// Signs `package` with the development key and installs it in `host`, in place of an earlier build of the same
    /// version. Calls of the earlier build that are running end on it.
    ///
    /// # Errors
    /// As [`Host::install`], and if the earlier build cannot be removed.
    pub async fn install(&self, host: &Host, package: &Package) -> Result<ConnectorRef, Error> {
        let (name, version) = (package.manifest().name().clone(), package.manifest().version().clone());
        self.trust(&name)?;
        let connector = ConnectorRef::new(name.clone(), version.clone());
        let statement = ReleaseStatement::new(name, version, *package.digest(), Timestamp::now());
        let signature = sign(&self.key, &statement).to_json().into_bytes();
        let installed = host.list()?;
        let earlier = installed
            .iter()
            .find(|entry| entry.name == *connector.name() && entry.version == *connector.version());
        if let Some(earlier) = earlier {
            if earlier.digest == *package.digest() {
                return Ok(connector);
            }
            host.remove(&connector)?;
        }
        // The developer runs their own connector, and its grants change with every edit.
        let options = InstallOptions::default().allow_downgrade().accept(*package.digest());
        host.install(package.bytes().to_vec(), Some(signature), options).await?;
        Ok(connector)
    }

    /// Trusts the development key for this one connector.
    fn trust(&self, name: &ConnectorName) -> Result<(), HostError> {
        let scope = SigningScope::parse(name.as_str());
        let keyring = KeyringFile::new(self.dir.join("keyring.toml"));
        keyring.update(|keyring| {
            let trusted = scope.and_then(|scope| {
                keyring.trust(&self.key.public(), &[scope], Timestamp::now(), None, Some("development"))
            });
            trusted.map(drop).map_err(|error| {
                HostError::new(HostErrorKind::Internal, "The development key could not be trusted.")
                    .with_source(error.message().to_owned())
            })
        })
    }
}

impl std::fmt::Debug for DevHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevHome").field("dir", &self.dir).finish_non_exhaustive()
    }
}

fn create_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes everything but the lock and what survives from one use to the next.
fn clear(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == LOCK || KEPT.iter().any(|kept| name == *kept) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

impl Drop for DevHome {
    /// Removes bound secrets and recorded calls. What a killed process leaves, the next use removes.
    fn drop(&mut self) {
        drop(clear(&self.dir));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_home_is_used_by_one_process_and_keeps_compiled_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dev home");
        let home = DevHome::open(&path).unwrap();
        for (file, text) in [("cache/code", "code"), ("host.key", "key"), ("audit/x/1.jsonl", "{}")] {
            fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
            fs::write(path.join(file), text).unwrap();
        }
        let error = DevHome::open(&path).unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::Busy);
        drop(home);
        assert!(path.join("cache/code").exists() && path.join("host.key").exists());
        assert!(!path.join("audit").exists());
    }
}
