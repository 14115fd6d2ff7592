//! `action show`: shows one action in detail, for review.

use super::view::ActionView;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam action show ship-update
  cofferdam action show ship-update --format json";

/// Shows an action: what it needs, what it takes, and what each of its steps is given.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The action's name.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let action = host.action(&args.name)?;
    let view = ActionView::new(&action, &host);
    session.ui.result(&view, |it| view.page(it))
}
