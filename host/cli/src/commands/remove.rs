//! `remove`: takes an installed connector away.

use serde::Serialize;

use crate::report::CommandError;
use crate::session::{Session, resolve};

const EXAMPLES: &str = "\
Examples:
  cofferdam remove github://acme/slack@1.2.0";

/// Removes an installed connector, and the code that was compiled of it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The connector: NAME@VERSION, or NAME for its active version.
    #[arg(value_name = "CONNECTOR")]
    connector: String,
}

/// Removes.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct RemovedConnector {
        removed: String,
        /// The version that becomes active, if the removed version was active and others are installed.
        #[serde(skip_serializing_if = "Option::is_none")]
        active: Option<String>,
    }
    let host = session.host()?;
    let connector = resolve(&host, &args.connector)?;
    let active = host.remove(&connector)?.map(|version| format!("{}@{version}", connector.name()));
    let removed = RemovedConnector { removed: connector.to_string(), active };
    session.ui.result(&removed, |page| {
        page.field("removed", &removed.removed);
        if let Some(active) = &removed.active {
            page.field("active", active);
        }
    })
}
