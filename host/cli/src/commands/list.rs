//! `list`: the connectors that are installed.

use cofferdam_audit::{AuditReader, Filter};
use cofferdam_runtime::call::REBUILD_INDEX_HINT;
use serde::Serialize;

use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam list
  cofferdam list --format json";

/// Lists the installed connectors, with the active version of each and the time of the last call.
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
    /// True for the version that the name without a version resolves to.
    active: bool,
    /// The time of the last call; none if the audit log has no call, or cannot be read.
    last_call: Option<String>,
}

/// Lists.
pub(crate) fn run(Args {}: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let entries = host.list()?;
    let mut log = host.audit().existing().ok().flatten();
    let lines = entries.iter().map(|entry| {
        let connector = format!("{}@{}", entry.name, entry.version);
        ConnectorLine {
            name: entry.name.to_string(),
            version: entry.version.to_string(),
            hash: format!("sha256:{}", entry.digest),
            active: entry.is_active,
            last_call: log.as_deref_mut().and_then(|log| last_call(log, connector)),
        }
    });
    let lines: Vec<_> = lines.collect();
    session.ui.result(&lines, |page| {
        let row = |line: &ConnectorLine| {
            let active = if line.active { "yes" } else { "no" }.to_owned();
            let last_call = line.last_call.clone().unwrap_or_else(|| "never".to_owned());
            [format!("{}@{}", line.name, line.version), active, last_call, line.hash.clone()]
        };
        if !lines.is_empty() {
            page.table(["CONNECTOR", "ACTIVE", "LAST CALL", "HASH"], lines.iter().map(row).collect());
        }
    })?;
    if host.has_lost_its_index() {
        session.ui.warn(REBUILD_INDEX_HINT);
    } else if lines.is_empty() {
        session.ui.note("No connector is installed. `cofferdam install PACKAGE` installs one.");
    }
    Ok(())
}

fn last_call(log: &mut dyn AuditReader, connector: String) -> Option<String> {
    let filter = Filter { connector: Some(connector), limit: 1, ..Filter::default() };
    let newest = log.list(&filter).ok()?.into_iter().next()?;
    Some(format!("{:.0}", newest.at))
}
