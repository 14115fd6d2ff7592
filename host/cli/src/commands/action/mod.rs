//! `action`: the files that say which steps an agent's tool has, stored once they are known to fit.

mod add;
mod check;
mod edit;
mod list;
mod remove;
mod show;
mod view;

use crate::report::CommandError;
use crate::session::Session;

/// Keeps actions: files of steps, each a call of a connector, checked before any of them runs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Add(add::Args),
    List(list::Args),
    Show(show::Args),
    Check(check::Args),
    Edit(edit::Args),
    Remove(remove::Args),
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::Add(args) => add::run(&args, session),
        Command::List(args) => list::run(&args, session),
        Command::Show(args) => show::run(&args, session),
        Command::Check(args) => check::run(&args, session),
        Command::Edit(args) => edit::run(&args, session),
        Command::Remove(args) => remove::run(&args, session),
    }
}
