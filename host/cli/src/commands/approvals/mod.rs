//! `approvals`: the calls that wait for a person, the answers to them, and the requests for grants.

mod answer;
mod grants;
mod list;
mod show;
mod view;

use crate::report::CommandError;
use crate::session::Session;

/// Lists the calls that wait for the approval of a person, and answers them.
///
/// Which calls wait is set in `config.toml`, in `[approvals]`. By default an agent's calls of operations that are
/// declared destructive do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Show(show::Args),
    Approve(answer::ApproveArgs),
    Deny(answer::DenyArgs),
    Grants(grants::Args),
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list::run(&args, session),
        Command::Show(args) => show::run(&args, session),
        Command::Approve(args) => answer::approve(args, session),
        Command::Deny(args) => answer::deny(args, session),
        Command::Grants(args) => grants::run(&args, session),
    }
}
