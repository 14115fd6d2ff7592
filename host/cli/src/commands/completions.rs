//! `completions`: what a shell needs to complete cofferdam's commands.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam completions bash > ~/.local/share/bash-completion/completions/cofferdam
  cofferdam completions zsh > ~/.zfunc/_cofferdam
  cofferdam completions fish > ~/.config/fish/completions/cofferdam.fish";

/// Prints a shell's completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints it.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cofferdam", &mut script);
    session.ui.raw(&script)
}
