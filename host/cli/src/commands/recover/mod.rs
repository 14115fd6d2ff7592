//! `recover`: lists, resumes and skips interrupted calls.

mod list;
mod resume;
mod skip;

use crate::report::CommandError;
use crate::session::Session;

/// Lists the calls that were interrupted, and resumes or skips them.
///
/// The effects of such a call are not known, and not guessed: its host is gone, it was cancelled, or it ended while a
/// request was under way.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Resume(resume::Args),
    Skip(skip::Args),
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list::run(&args, session),
        Command::Resume(args) => resume::run(args, session),
        Command::Skip(args) => skip::run(args, session),
    }
}
