//! `rollback`: makes the version active again that was active before.

use crate::commands::use_version;
use crate::report::CommandError;
use crate::session::{Session, resolve};

const EXAMPLES: &str = "\
A second rollback returns to the version that the first one replaced.

Examples:
  cofferdam rollback github://acme/slack";

/// Makes the version active again that was active before the present one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The connector's name.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Rolls back.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let activated = host.rollback(resolve(&host, &args.name)?.name())?;
    use_version::show(&activated, &host, session)
}
