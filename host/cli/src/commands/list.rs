//! `list`: the connectors that are installed.

use cofferdam_runtime::call::REBUILD_INDEX_HINT;
use serde::Serialize;

use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam list
  cofferdam list --format json";

/// Lists the installed connectors.
///
/// Nothing is verified: that is `cofferdam verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
struct ConnectorLine {
    name: String,
    version: String,
    hash: String,
}

/// Lists.
pub(crate) fn run(Args {}: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let entries = host.list()?;
    let lines = entries.iter().map(|entry| ConnectorLine {
        name: entry.name.to_string(),
        version: entry.version.to_string(),
        hash: format!("sha256:{}", entry.digest),
    });
    let lines: Vec<_> = lines.collect();
    session.ui.result(&lines, |page| {
        let row = |line: &ConnectorLine| [format!("{}@{}", line.name, line.version), line.hash.clone()];
        if !lines.is_empty() {
            page.table(["CONNECTOR", "HASH"], lines.iter().map(row).collect());
        }
    })?;
    if host.has_lost_its_index() {
        session.ui.warn(REBUILD_INDEX_HINT);
    } else if lines.is_empty() {
        session.ui.note("No connector is installed. `cofferdam install PACKAGE` installs one.");
    }
    Ok(())
}
