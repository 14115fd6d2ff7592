//! `man`: the manual pages of all commands.

use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::files;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam man ~/.local/share/man/man1";

/// Writes the manual pages of all commands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory to write them to; it must exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes them.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .map_err(|error| files::unwritable(&args.dir, error))?;
    session.ui.note(&format!("manual pages written to {}", files::shown(&args.dir)));
    Ok(())
}
