//! The author's signing key: one file in the user's configuration directory, and never in a project.

use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::{self, FilePolicy};
use cofferdam_model::trust::SecretKey;
use etcetera::BaseStrategy as _;

use super::commands::key;
use super::files;

/// The file's name in the configuration directory of cofferdam.
const FILE: &str = "author.key";

/// The author's key, and where it is.
#[derive(Debug)]
pub(super) struct AuthorKey {
    pub(super) path: PathBuf,
    pub(super) key: SecretKey,
    /// True if it was made just now.
    pub(super) is_new: bool,
}

/// Returns the path of the author's key, which need not exist: `$XDG_CONFIG_HOME/cofferdam/author.key`.
pub(super) fn path() -> Result<PathBuf, HostError> {
    let config = etcetera::choose_base_strategy().map(|strategy| strategy.config_dir());
    config.map(|config| config.join("cofferdam").join(FILE)).map_err(|error| {
        HostError::new(HostErrorKind::Configuration, "There is no directory for the author's key.")
            .with_hint("Set HOME or XDG_CONFIG_HOME, or name a key file with --key.")
            .with_source(error)
    })
}

/// Reads the author's key.
///
/// # Errors
/// There is none, another user can read the file, or it holds no key.
pub(super) fn load() -> Result<AuthorKey, HostError> {
    let path = path()?;
    if !path.exists() {
        let message = format!("There is no author's key: {} does not exist.", files::shown(&path));
        return Err(HostError::new(HostErrorKind::InputUnreadable, message).with_hint(
            "`cofferdam new` makes it; or name the file of another key, from `cofferdam key generate`.",
        ));
    }
    Ok(AuthorKey { key: key::read(&path)?, path, is_new: false })
}

/// Reads the author's key, and makes it if there is none yet.
///
/// # Errors
/// Another user can read the file, it holds no key, or it cannot be written.
pub(super) fn load_or_create() -> Result<AuthorKey, HostError> {
    load_or_create_at(path()?)
}

fn load_or_create_at(path: PathBuf) -> Result<AuthorKey, HostError> {
    if let Err(error) = path.symlink_metadata()
        && error.kind() == io::ErrorKind::NotFound
        && let Some(made) = create(&path)?
    {
        return Ok(made);
    }
    let key = key::read(&path)?;
    Ok(AuthorKey { path, key, is_new: false })
}

/// Makes the key; none if another process was first.
fn create(path: &Path) -> Result<Option<AuthorKey>, HostError> {
    let unwritable = |error| files::unwritable(path, error);
    private_file::create_dir(files::parent(path)).map_err(unwritable)?;
    let key = SecretKey::generate().map_err(|refused| key::refusal(&refused, HostErrorKind::Internal))?;
    match private_file::create_new(path, key.to_text().as_bytes(), &FilePolicy::private_output()) {
        Ok(()) => Ok(Some(AuthorKey { path: path.to_owned(), key, is_new: true })),
        Err(error) => match io::Error::from(error) {
            error if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            error => Err(unwritable(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_author_key_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/cofferdam").join(FILE);
        let made = load_or_create_at(path.clone()).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let again = load_or_create_at(path.clone()).unwrap();
        assert_eq!((made.is_new, again.is_new), (true, false));
        assert_eq!(made.key.public(), again.key.public());
        assert_eq!(create(&path).unwrap().map(|made| made.is_new), None, "it is never replaced");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_unusable_author_key_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        load_or_create_at(path.clone()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = load_or_create_at(path.clone()).unwrap_err();
        assert!(error.hint().unwrap().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "not a key").unwrap();
        assert!(load_or_create_at(path.clone()).unwrap_err().message().contains("cannot be used"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "not a key");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(load_or_create_at(path).is_err(), "a link to nothing is no missing key");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(load_or_create_at(file.join(FILE)).unwrap_err().kind(), HostErrorKind::InputUnreadable);
    }
}
