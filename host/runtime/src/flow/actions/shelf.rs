//! The directory of actions: files that their owner may edit by hand, each read once, by its name, and never followed
//! elsewhere.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_core::document::{DocumentError, Refused};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::safe_line;
use cofferdam_core::private_file::{self, FileError, FileFault, FilePolicy};
use cofferdam_core::spelling;
use cofferdam_model::action::{Action, action_name};

/// The ending of an action's file.
const ENDING: &str = ".md";

/// An action decides what runs. The parser refuses files that are shorter than this.
const POLICY: FilePolicy = FilePolicy::trusted(1024 * 1024);

/// Most actions of one host.
const MAX_ACTIONS: usize = 20_000;

/// An action that is on the shelf, as far as its file can be read.
#[derive(Debug)]
pub struct ShelvedAction {
    /// The name of its file, without `.md`.
    pub name: String,
    /// The action, or what is wrong with its file.
    pub action: Result<Arc<Action>, HostError>,
}

/// The directory. It need not exist.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// What the files are like now: whether any was added, changed or removed since. None where they cannot be read.
    pub(crate) fn stamps(&self) -> Vec<(String, cofferdam_core::stamp::FileStamp)> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let stamped = entries.filter_map(|entry| {
            let stamp = cofferdam_core::stamp::FileStamp::from(&entry.metadata().ok()?);
            Some((entry.file_name().to_string_lossy().into_owned(), stamp))
        });
        let mut stamps: Vec<_> = stamped.collect();
        stamps.sort_by(|one, other| one.0.cmp(&other.0));
        stamps
    }

    /// The names of all that are there, in order: of files that end in `.md` and do not begin with a dot.
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
                return Err(HostError::new(HostErrorKind::Validation, message).hint("Remove some."));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// All that are there, in the order of their names.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    pub(crate) fn list(&self) -> Result<Vec<ShelvedAction>, HostError> {
        let each = |name: String| {
            let action = self.read(&name).map(Arc::new);
            ShelvedAction { name, action }
        };
        Ok(self.names()?.into_iter().map(each).collect())
    }

    /// Reads the action of this name.
    ///
    /// # Errors
    /// `action_not_found`; `validation`: what is wrong with its file.
    pub(crate) fn read(&self, name: &str) -> Result<Action, HostError> {
        let bytes = self.bytes(name)?;
        named(name, &bytes)
    }

    /// The bytes of the action's file, whatever they are.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for what is in the file.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, HostError> {
        action_name(name).map_err(|refused| {
            // What is no name is no action's either; but a file may be there that somebody gave such a name.
            HostError::new(HostErrorKind::ActionNotFound, format!("{}.", refused.message()))
                .hint(format!("An action's name: {}.", refused.fix()))
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

    /// Puts the file of an action there, whole or not at all.
    ///
    /// # Errors
    /// `conflict`: there is one of this name, and `replace` does not say that it may go; it cannot be written.
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
                HostError::new(HostErrorKind::Conflict, message).hint(hint)
            }
            error => unwritable(error),
        })
    }

    /// Takes an action's file away.
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

    /// The error for a name that is not there, with the nearest that is.
    pub(crate) fn not_found(&self, name: &str) -> HostError {
        let names = self.names().unwrap_or_default();
        let hint = match spelling::nearest(name, names.iter().map(String::as_str)) {
            Some(near) => format!("Did you mean {near}? `cofferdam action list` shows those there are."),
            None => {
                "`cofferdam action list` shows those there are; `cofferdam action add` adds one.".to_owned()
            }
        };
        let message = format!("There is no action {}.", safe_line(name, 100));
        HostError::new(HostErrorKind::ActionNotFound, message).hint(hint)
    }

    /// Returns whether the directory is there; only this user and root may be able to write it.
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

/// The action in `bytes`, which is to have this name.
pub(super) fn named(name: &str, bytes: &[u8]) -> Result<Action, HostError> {
    let label = format!("{name}{ENDING}");
    let action = Action::parse(&label, bytes).map_err(DocumentError::into_host_error)?;
    if action.name() == name {
        return Ok(action);
    }
    let toml = action.text.toml();
    let mut findings = cofferdam_core::document::Findings::new(&label, action.text(), &toml);
    let message = format!("the file is called {label}, and the action in it `{}`", action.name());
    let fix = "call both the same: who asks for one is not to get another";
    findings.refuse(&[cofferdam_core::document::Key::Name("name")], &Refused::new(message, fix));
    match findings.finish() {
        Ok(()) => Ok(action),
        Err(error) => Err(error.into_host_error()),
    }
}

fn unreadable(error: io::Error) -> HostError {
    let message = format!("The actions cannot be read: {}.", error.kind());
    let hint =
        "The directory `actions` in the home directory and the files in it must be readable by this user.";
    HostError::new(HostErrorKind::InputUnreadable, message).hint(hint).because(error)
}

fn unwritable(error: io::Error) -> HostError {
    let message = format!("The actions cannot be written: {}.", error.kind());
    let hint = "The directory `actions` in the home directory must be writable by this user, and have room.";
    HostError::new(HostErrorKind::OutputUnwritable, message).hint(hint).because(error)
}
