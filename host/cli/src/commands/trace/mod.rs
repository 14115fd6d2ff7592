//! `trace`: shows the trace of a call.

mod file;
mod waterfall;

use std::path::{Path, PathBuf};

use cofferdam_core::failure::AuditId;
use cofferdam_core::trace::AttemptTrace;

use crate::files;
use crate::report::CommandError;
use crate::session::Session;
use file::TraceFile;

const EXAMPLES: &str = "\
`cofferdam call --trace FILE` and `--trace FILE` at the end of a line in `cofferdam dev` write a trace: every host call, \
request and log line of each attempt with its time. The file is in Chrome's trace format, which https://ui.perfetto.dev \
and chrome://tracing open, too. It has the contents of requests and responses, without the secrets that the host knows: \
look at it before you pass it on.

Examples:
  cofferdam call github://acme/tickets list_issues --trace issues.json
  cofferdam trace show issues.json
  cofferdam trace show issues.json --verbose";

/// Shows traces of calls.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Show(ShowArgs),
}

/// Shows a trace as a waterfall: what happened when, and for how long.
///
/// Host calls that follow each other are one line; `--verbose` shows each, and what requests and responses contained. With
/// `--format json` the events of the file are printed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The trace.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Writes the trace of a call of this connector and operation. A trace that cannot be written changes nothing about the
/// call. Returns a note for the user, or a warning.
pub(super) fn write(
    path: &Path,
    (connector, operation): (&str, &str),
    audit_id: &AuditId,
    attempts: &[AttemptTrace],
) -> Result<String, String> {
    let trace = TraceFile::new(connector.to_owned(), operation.to_owned(), audit_id, attempts);
    match trace.write(path) {
        Ok(()) if attempts.is_empty() => Ok("nothing ran: the trace has no attempts".to_owned()),
        Ok(()) => Ok(format!("see `cofferdam trace show {}`", files::shown(path))),
        Err(error) => Err(format!("the trace was not written: {}", error.message())),
    }
}

/// Shows a trace.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    let Command::Show(ShowArgs { file }) = command;
    let trace = TraceFile::read(&file)?;
    session.ui.result(&trace, |page| waterfall::show(&trace, session.ui.verbose(), page))
}
