//! `replay`: the recorded outcome of a call, given again.

use crate::answer;
use crate::commands::audit;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Nothing runs and nothing is loaded: the connector need not be installed any more. What is printed, and \
the exit code, are what the call itself had. A call without a kept outcome is an error that says why.

Examples:
  cofferdam replay audit-01890000-0000-7000-8000-000000000001
  cofferdam replay 01890000-0000-7000-8000-000000000001 --format json";

/// Prints the recorded outcome of a call, byte for byte, without running anything.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The call, as `cofferdam audit list` shows it; it may be abbreviated if no other call begins the same.
    #[arg(value_name = "ID")]
    id: String,
}

/// Prints it.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    match host.replay(&audit::resolve_id(&host, &args.id)?)?.outcome {
        Ok(value) if session.ui.json() => session.ui.text_of_json(&value),
        Ok(value) => match serde_json::from_str(&value) {
            Ok(value) => session.ui.value(&value),
            Err(_) => session.ui.text_of_json(&value),
        },
        Err(error) => answer::finish(session.ui, None, Err(CommandError::Recorded(error))),
    }
}
