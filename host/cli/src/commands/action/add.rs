//! `action add`: an action's file is checked, and kept where it fits.

use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::error::HostError;
use cofferdam_runtime::flow::CheckedAction;
use serde::Serialize;

use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, progress, runtime};

/// Longest file that is read, in bytes; what may be in one is for the parser to say.
const FILE_BYTES: u64 = 1024 * 1024;

const EXAMPLES: &str = "\
The connectors that it needs must be installed, in the version and with the hash that it names: every step is \
held against them. Nothing runs. The file is copied into the home directory; from there on it is yours to edit.

Examples:
  cofferdam action add ship-update.md
  cofferdam action add ship-update.md --replace
  generate-action | cofferdam action add -";

/// Checks an action's file, and keeps it if everything in it fits.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Replaces the action of the same name.
    #[arg(long)]
    replace: bool,
}

/// The stored action.
#[derive(Debug, Serialize)]
pub(super) struct SavedAction<'a> {
    action: &'a str,
    version: String,
    /// The SHA-256 of the file.
    hash: String,
}

impl<'a> SavedAction<'a> {
    pub(super) fn new(runnable: &'a CheckedAction) -> Self {
        let action = runnable.action();
        Self {
            action: action.name(),
            version: action.version().to_string(),
            hash: format!("sha256:{}", action.hash()),
        }
    }

    pub(super) fn page(&self, what: &str, page: &mut Page) {
        page.styled_field(what, TextStyle::Good, &format!("{}@{}", self.action, self.version));
        page.field("hash", &self.hash);
    }
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let (label, bytes) = read(&args.file)?;
    let host = session.host()?;
    let runnable = runtime::block_on(async {
        let what = format!("checking {label}");
        Ok(progress::during(session.ui, &what, host.add_action(&label, &bytes, args.replace)).await?)
    })?;
    let kept = SavedAction::new(&runnable);
    session.ui.result(&kept, |it| kept.page("added", it))
}

/// A file as the user names it, or standard input; with what problems call it.
pub(super) fn read(file: &Path) -> Result<(String, Vec<u8>), HostError> {
    if file == Path::new("-") {
        let bytes =
            files::read_stream("The action on", io::stdin().lock(), Path::new("standard input"), FILE_BYTES)?;
        return Ok(("<stdin>".to_owned(), bytes));
    }
    Ok((files::shown(file), files::bounded("The action", file, FILE_BYTES)?))
}
