//! A directory of files, one for each secret: Kubernetes secrets, Docker secrets, systemd credentials.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cofferdam_core::document::InvalidValue;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy};

use super::bindings_file::fingerprint_of_target;
use super::material::SecretProblem;
use super::{SecretResults, SecretSource};
use crate::vault::error::VaultError;
use crate::vault::file::name;

/// The longest file, in bytes: a document with two of the longest secrets.
const MAX_BYTES: u64 = 64 * 1024;

/// Secret; or handed to this user by a service manager, or mounted by an orchestrator.
const POLICY: FilePolicy = FilePolicy::secret(MAX_BYTES).named().handed_over().mounted();

/// The files of a directory.
///
/// An orchestrator rotates secrets by swapping a link to another directory, so that a file is always read by its whole
/// path and never through a directory that was opened before.
pub struct SecretDirectory {
    dir: PathBuf,
    /// The files as they were when they were read last.
    read: Mutex<Vec<(String, Option<FileFingerprint>)>>,
}

impl SecretDirectory {
    /// Creates the source of the secrets in `dir`, which is read only when bindings are.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), read: Mutex::default() }
    }

    fn read_one(&self, secret: &str) -> Result<zeroize::Zeroizing<String>, SecretProblem> {
        let path = self.dir.join(secret);
        let file = private_file::open(&path, &POLICY).map_err(problem)?;
        let file = file.ok_or_else(|| {
            SecretProblem::new(
                "does not exist",
                format!("Mount it in the directory {} ([vault] directory in config.toml).", name(&self.dir)),
            )
        })?;
        file.read_secret_text().map_err(problem)
    }
}

fn problem(error: FileError) -> SecretProblem {
    match error {
        FileError::Refused(fault @ FileFault::ReadableByOthers { .. }) => SecretProblem::new(
            fault.to_string(),
            "Run `chmod 400` on it, or mount it as an orchestrator does: root's, on a read-only file system in memory.",
        ),
        FileError::Refused(fault) => SecretProblem::new(fault.to_string(), fault.fix()),
        FileError::Io(error) | FileError::Unsynced(error) => SecretProblem::new(
            format!("cannot be read: {}", error.kind()),
            "Give this user the permission to read it; it is UTF-8 text. A confined server reads only what \
             [vault] directory names.",
        ),
    }
}

impl SecretSource for SecretDirectory {
    fn check_name(&self, secret: &str) -> Result<(), InvalidValue> {
        match secret.contains('/') || secret.starts_with('.') {
            true => Err(InvalidValue::new(
                "not the name of a file in the vault's directory",
                "write the file's name without directories, like \"slack-token\"",
            )),
            false => Ok(()),
        }
    }

    fn read(&self, secrets: &[&str]) -> Result<SecretResults, VaultError> {
        // Before the content: a later change then shows as another fingerprint.
        let fingerprints = secrets
            .iter()
            .map(|secret| ((*secret).to_owned(), fingerprint_of_target(&self.dir.join(secret))));
        let fingerprints: Vec<_> = fingerprints.collect();
        let results = secrets.iter().map(|secret| ((*secret).to_owned(), self.read_one(secret))).collect();
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = fingerprints;
        Ok(results)
    }

    fn is_current(&self) -> bool {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.iter().all(|(secret, fingerprint)| {
            let now = fingerprint_of_target(&self.dir.join(secret));
            now == *fingerprint && now.is_none_or(|now| now.is_stable())
        })
    }

    fn describe(&self, secret: &str) -> String {
        format!("the file {secret} in the vault's directory")
    }

    fn rotation(&self) -> &'static str {
        "replace its file in the vault's directory"
    }
}
