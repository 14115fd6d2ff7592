//! `audit reindex`: makes the index of the audit log again.

use serde_json::json;

use super::NOTHING;
use crate::layout::TextStyle;
use crate::progress::ProgressCounter;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
The index is derived from the journals, and calls are found by it. A host makes it again by itself if it is missing or \
damaged; this command is for the case that you want to be sure. Calls go on meanwhile.

Examples:
  cofferdam audit reindex";

/// Makes the index of the audit log again, from which calls are found.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(super) fn run(session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    if host.audit().is_new()? {
        session.ui.result(&json!({"entries": 0}), |_| {})?;
        session.ui.note(NOTHING);
        return Ok(());
    }
    let mut counted = ProgressCounter::start(session.ui, "bytes read");
    let entries = host.audit().reindex(&mut |done, of| counted.update(done, of))?;
    drop(counted);
    session.ui.result(&json!({"entries": entries}), |page| {
        page.styled_field("indexed", TextStyle::Good, &format!("{entries} entries"));
    })?;
    Ok(())
}
