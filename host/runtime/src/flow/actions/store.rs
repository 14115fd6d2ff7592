//! The directory of actions: files that their owner may edit by hand. Each is read once, by its name, and links are
//! not followed.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_core::document::{DocumentError, InvalidValue};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy};
use cofferdam_core::suggest;
use cofferdam_model::action::{Action, action_name};

/// The extension of an action's file.
const ENDING: &str = ".md";

/// The policy for files that decide what is executed. The parser has a smaller size limit than this.
const POLICY: FilePolicy = FilePolicy::trusted(1024 * 1024);

/// The most actions of one host.
const MAX_ACTIONS: usize = 20_000;

/// A stored action, as far as its file can be read.
#[derive(Debug)]
pub struct StoredAction {
    /// The name of its file, without `.md`.
    pub name: String,
    /// The action, or the problems of its file.
    pub action: Result<Arc<Action>, HostError>,
}

/// The directory. It need not exist.
#[derive(Debug, Clone)]
pub(crate) struct ActionStore {
    dir: PathBuf,
}

impl ActionStore {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the fingerprints of the files, which show whether any was added, changed or removed. Empty if they
    /// cannot be read.
    pub(crate) fn stamps(&self) -> Vec<(String, cofferdam_core::file_fingerprint::FileFingerprint)> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let stamped = entries.filter_map(|entry| {
            let stamp = cofferdam_core::file_fingerprint::FileFingerprint::from(&entry.metadata().ok()?);
            Some((entry.file_name().to_string_lossy().into_owned(), stamp))
        });
        let mut stamps: Vec<_> = stamped.collect();
        stamps.sort_by(|one, other| one.0.cmp(&other.0));
        stamps
    }

    /// Returns the names of all actions, in order: of files that end in `.md` and do not begin with a dot.
    ///
    /// # Errors
    /// The directory cannot be read, is not safe, or has too many files in it.
    pub(crate) fn names(&self) -> Result<Vec<String>, HostError> {
        if !self.safe()? {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.file_name();
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(ENDING)) else { continue };
            if name.starts_with('.') {
                continue;
            }
            names.push(name.to_owned());
            if names.len() > MAX_ACTIONS {
                let message = format!("There are more than {MAX_ACTIONS} actions.");
                return Err(HostError::new(HostErrorKind::Validation, message).with_hint("Remove some."));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns all actions, in the order of their names.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    pub(crate) fn list(&self) -> Result<Vec<StoredAction>, HostError> {
        let each = |name: String| {
            let action = self.read(&name).map(Arc::new);
            StoredAction { name, action }
        };
        Ok(self.names()?.into_iter().map(each).collect())
    }

    /// Reads the action of this name.
    ///
    /// # Errors
    /// `action_not_found`; `validation`: the problems of its file.
    pub(crate) fn read(&self, name: &str) -> Result<Action, HostError> {
        let bytes = self.bytes(name)?;
        named(name, &bytes)
    }

    /// Returns the bytes of the action's file, valid or not.
    ///
    /// # Errors
    /// As [`read`](Self::read), except for the problems of the file's content.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, HostError> {
        action_name(name).map_err(|refused| {
            // An invalid name belongs to no action, although a file may have such a name.
            HostError::new(HostErrorKind::ActionNotFound, format!("{}.", refused.message()))
                .with_hint(format!("An action's name: {}.", refused.fix()))
        })?;
        if !self.safe()? {
            return Err(self.not_found(name));
        }
        match private_file::read(&self.path(name), &POLICY) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(self.not_found(name)),
            Err(FileError::Refused(fault)) => {
                let what = format!("{name}.md among the actions");
                Err(fault.into_host_error(HostErrorKind::Validation, &what))
            }
            Err(error) => Err(unreadable(error.into())),
        }
    }

    /// Writes the file of an action, atomically.
    ///
    /// # Errors
    /// `conflict`: there is one of this name, and `replace` is not set; or it cannot be written.
    pub(crate) fn add(&self, action: &Action, replace: bool) -> Result<(), HostError> {
        private_file::create_dir(&self.dir).map_err(unwritable)?;
        self.safe()?;
        let (path, text) = (self.path(action.name()), action.text().as_bytes());
        let written = match replace {
            true => private_file::replace(&path, text, &POLICY),
            false => private_file::create_new(&path, text, &POLICY),
        };
        written.map_err(|error| match io::Error::from(error) {
            error if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!("There is an action {} already.", action.name());
                let hint = "Add it with --replace, or under another name.";
                HostError::new(HostErrorKind::Conflict, message).with_hint(hint)
            }
            error => unwritable(error),
        })
    }

    /// Removes an action's file.
    ///
    /// # Errors
    /// `action_not_found`; it cannot be removed.
    pub(crate) fn remove(&self, name: &str) -> Result<(), HostError> {
        if action_name(name).is_err() || !self.safe()? {
            return Err(self.not_found(name));
        }
        match fs::remove_file(self.path(name)) {
            Ok(()) => private_file::sync_dir(&self.dir).map_err(unwritable),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.not_found(name)),
            Err(error) => Err(unwritable(error)),
        }
    }

    /// Returns the error for a name that is not there, with the nearest name that is.
    pub(crate) fn not_found(&self, name: &str) -> HostError {
        let names = self.names().unwrap_or_default();
        let hint = match suggest::nearest(name, names.iter().map(String::as_str)) {
            Some(near) => format!("Did you mean {near}? `cofferdam action list` shows those there are."),
            None => {
                "`cofferdam action list` shows those there are; `cofferdam action add` adds one.".to_owned()
            }
        };
        let message = format!("There is no action {}.", sanitize_line(name, 100));
        HostError::new(HostErrorKind::ActionNotFound, message).with_hint(hint)
    }

    /// Returns true if the directory is there. Only this user and root may be able to write it.
    fn safe(&self) -> Result<bool, HostError> {
        private_file::check_dir(&self.dir).map_err(|error| match error {
            FileError::Refused(fault @ FileFault::Directory { .. }) => {
                fault.into_host_error(HostErrorKind::Validation, "The directory `actions`")
            }
            error => unreadable(error.into()),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{ENDING}"))
    }
}

/// Parses the action in `bytes`, which must have this name.
pub(super) fn named(name: &str, bytes: &[u8]) -> Result<Action, HostError> {
    let label = format!("{name}{ENDING}");
    let action = Action::parse(&label, bytes).map_err(DocumentError::into_host_error)?;
    if action.name() == name {
        return Ok(action);
    }
    let toml = action.text.toml();
    let mut findings = cofferdam_core::document::Diagnostics::new(&label, action.text(), &toml);
    let message = format!("the file is called {label}, and the action in it `{}`", action.name());
    let fix = "call both the same: who asks for one is not to get another";
    findings.refuse(&[cofferdam_core::document::PathSegment::Name("name")], &InvalidValue::new(message, fix));
    match findings.finish() {
        Ok(()) => Ok(action),
        Err(error) => Err(error.into_host_error()),
    }
}

fn unreadable(error: io::Error) -> HostError {
    let message = format!("The actions cannot be read: {}.", error.kind());
    let hint =
        "The directory `actions` in the home directory and the files in it must be readable by this user.";
    HostError::new(HostErrorKind::InputUnreadable, message).with_hint(hint).with_source(error)
}

fn unwritable(error: io::Error) -> HostError {
    let message = format!("The actions cannot be written: {}.", error.kind());
    let hint = "The directory `actions` in the home directory must be writable by this user, and have room.";
    HostError::new(HostErrorKind::OutputUnwritable, message).with_hint(hint).with_source(error)
}
