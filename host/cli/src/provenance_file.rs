//! The file beside a package with its provenance: `build` writes it, and `sign` takes it into the signed statement.

use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::Provenance;
use serde::{Deserialize, Serialize};

use super::files;

/// The provenance of one package.
#[derive(Debug, Serialize, Deserialize)]
struct ProvenanceFile {
    /// The package's hash, as `sha256:` and 64 digits: the file is about no other one.
    package: String,
    provenance: Provenance,
}

/// Returns the default path of a package's provenance.
pub(super) fn path(package: &Path) -> PathBuf {
    files::beside(package, ".provenance.json")
}

/// Writes the provenance of a package; without one, removes that of the package that was there before.
pub(super) fn write(
    package: &Path,
    digest: &Digest,
    provenance: Option<&Provenance>,
) -> Result<(), HostError> {
    let path = path(package);
    let Some(provenance) = provenance else {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files::unwritable(&path, error)),
            _ => Ok(()),
        };
    };
    let file = ProvenanceFile { package: format!("sha256:{digest}"), provenance: provenance.clone() };
    // Strings and lists alone: the serialization cannot fail.
    let json = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
    files::write_whole(&path, json.as_bytes())
}

/// Reads the provenance of the package `digest`.
///
/// # Errors
/// The file is not a provenance, or it is that of another package.
pub(super) fn parse(path: &Path, bytes: &[u8], digest: &Digest) -> Result<Provenance, HostError> {
    let file: ProvenanceFile = serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("{} is not a provenance of `cofferdam build`: {error}.", files::shown(path));
        HostError::new(HostErrorKind::Validation, message)
            .with_hint("Build again, or sign with --no-provenance.")
    })?;
    if file.package != format!("sha256:{digest}") {
        let message = format!("{} is the provenance of another package.", files::shown(path));
        return Err(HostError::new(HostErrorKind::Conflict, message)
            .with_hint("Build again, name another file with --provenance, or sign with --no-provenance.")
            .detail("package", format!("sha256:{digest}"))
            .detail("provenance_of", file.package));
    }
    Ok(file.provenance)
}
