//! `action add`: an action's file is checked, and kept where it fits.

use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::error::HostError;
use cofferdam_runtime::flow::Runnable;
use serde::Serialize;

use crate::page::{Page, Tone};
use crate::report::Stop;
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

/// What was kept.
#[derive(Debug, Serialize)]
pub(super) struct Kept<'a> {
    action: &'a str,
    version: String,
    /// The SHA-256 of the file.
    hash: String,
}

impl<'a> Kept<'a> {
    pub(super) fn of(runnable: &'a Runnable) -> Self {
        let action = runnable.action();
        Self {
            action: action.name(),
            version: action.version().to_string(),
            hash: format!("sha256:{}", action.hash()),
        }
    }

    pub(super) fn page(&self, what: &str) -> Page {
        let mut page = Page::default();
        page.toned_field(what, Tone::Good, &format!("{}@{}", self.action, self.version));
        page.field("hash", &self.hash);
        page
    }
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), Stop> {
    let (label, bytes) = read(&args.file)?;
    let host = session.host()?;
    let runnable = runtime::block_on(async {
        let what = format!("checking {label}");
        Ok(progress::during(session.ui, &what, host.add_action(&label, &bytes, args.replace)).await?)
    })?;
    let kept = Kept::of(&runnable);
    session.ui.result(&kept, || kept.page("added"))
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
