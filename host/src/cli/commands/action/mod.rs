//! `action`: the files that say which steps an agent's tool has, kept on a shelf once they are known to fit.

mod add;
mod check;
mod edit;
mod list;
mod remove;
mod show;
mod view;

use crate::cli::report::Stop;
use crate::cli::session::Session;

/// Keeps actions: files of steps, each a call of a connector, checked before any of them runs.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Command {
    Add(add::Args),
    List(list::Args),
    Show(show::Args),
    Check(check::Args),
    Edit(edit::Args),
    Remove(remove::Args),
}

/// Does one of them.
pub(in crate::cli) fn run(command: Command, session: &Session<'_>) -> Result<(), Stop> {
    match command {
        Command::Add(args) => add::run(&args, session),
        Command::List(args) => list::run(&args, session),
        Command::Show(args) => show::run(&args, session),
        Command::Check(args) => check::run(&args, session),
        Command::Edit(args) => edit::run(&args, session),
        Command::Remove(args) => remove::run(&args, session),
    }
}
