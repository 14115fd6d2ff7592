//! `list`: the connectors that are installed.

use cofferdam_audit::{AuditReader, Filter};
use cofferdam_core::error::HostError;
use cofferdam_runtime::call::REBUILD_INDEX_HINT;
use cofferdam_runtime::host::unreadable;
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
    let mut log = host.audit().existing();
    let mut lines = Vec::new();
    for entry in &entries {
        let connector = format!("{}@{}", entry.name, entry.version);
        let last_call = match &mut log {
            Ok(Some(reader)) => last_call(&mut **reader, connector).unwrap_or_else(|error| {
                log = Err(error);
                None
            }),
            Ok(None) | Err(_) => None,
        };
        lines.push(ConnectorLine {
            name: entry.name.to_string(),
            version: entry.version.to_string(),
            hash: format!("sha256:{}", entry.digest),
            active: entry.is_active,
            last_call,
        });
    }
    let without_call = if log.is_ok() { "never" } else { "unknown" };
    session.ui.result(&lines, |page| {
        let row = |line: &ConnectorLine| {
            let active = if line.active { "yes" } else { "no" }.to_owned();
            let last_call = line.last_call.clone().unwrap_or_else(|| without_call.to_owned());
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
    } else if let Err(error) = log {
        let (what, fix) = (error.message(), error.hint().unwrap_or_default());
        session.ui.warn(&format!("The times of the last calls are unknown. {what} {fix}"));
    }
    Ok(())
}

fn last_call(log: &mut dyn AuditReader, connector: String) -> Result<Option<String>, HostError> {
    let filter = Filter { connector: Some(connector), limit: 1, ..Filter::default() };
    Ok(log.list(&filter).map_err(unreadable)?.first().map(|newest| format!("{:.0}", newest.at)))
}
