//! `action remove`: takes an action away.

use serde::Serialize;

use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam action remove ship-update";

/// Removes an action. Its runs stay in the audit log.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The action's name.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct RemovedAction<'a> {
        removed: &'a str,
    }
    session.host()?.remove_action(&args.name)?;
    session.ui.result(&RemovedAction { removed: &args.name }, |page| {
        page.field("removed", &args.name);
    })
}
