//! `audit`: what was called, and the proof that nobody edited it.

mod export;
mod key;
mod prune;
mod verify;
mod when;

use crate::cli::report::Stop;
use crate::cli::session::Session;

/// Shows what was called, and proves that nobody edited it.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Command {
    Verify(verify::Args),
    Export(export::Args),
    Prune(prune::Args),
    Key(key::KeyArgs),
    Checkpoint(key::CheckpointArgs),
}

/// Does one of them.
pub(in crate::cli) fn run(command: Command, session: &Session<'_>) -> Result<(), Stop> {
    match command {
        Command::Verify(args) => verify::run(&args, session),
        Command::Export(args) => export::run(&args, session),
        Command::Prune(args) => prune::run(&args, session),
        Command::Key(key::KeyArgs {}) => key::key(session),
        Command::Checkpoint(key::CheckpointArgs {}) => key::checkpoint(session),
    }
}
