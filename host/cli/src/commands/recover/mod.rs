//! `recover`: what a crash cut short, and what is done about it.

mod list;
mod resume;
mod skip;

use crate::report::CommandError;
use crate::session::Session;

/// Shows which calls a crash cut short, and does them again or leaves them.
///
/// Such a call was begun and has no end: its host is gone. What it did is not known, and nothing is guessed.
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
