//! `audit`: shows and verifies the audit log.

mod attempt_facts;
mod changes;
mod chart;
mod clock;
mod export;
mod filter;
mod id;
mod key;
mod line;
mod list;
mod prune;
mod reindex;
mod show;
mod stats;
mod tail;
mod verify;

pub(crate) use attempt_facts::attempts_of;
use cofferdam_core::failure::AuditId;
#[cfg(feature = "server")]
pub(crate) use filter::PeriodArgs;
pub(crate) use line::ended_call;

use crate::report::CommandError;
use crate::session::Session;
use cofferdam_runtime::host::Host;

/// Shows the audit log of calls, and verifies that it was not edited.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Show(show::Args),
    Tail(tail::Args),
    Stats(stats::Args),
    Changes(changes::Args),
    Clock(clock::Args),
    Verify(verify::Args),
    Export(export::Args),
    Prune(prune::Args),
    Reindex(reindex::Args),
    Key(key::KeyArgs),
    Checkpoint(key::CheckpointArgs),
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list::run(args, session),
        Command::Show(args) => show::run(&args, session),
        Command::Tail(args) => tail::run(&args, session),
        Command::Stats(args) => stats::run(args, session),
        Command::Changes(args) => changes::run(&args, session),
        Command::Clock(args) => clock::run(&args, session),
        Command::Verify(args) => verify::run(&args, session),
        Command::Export(args) => export::run(&args, session),
        Command::Prune(args) => prune::run(&args, session),
        Command::Reindex(reindex::Args {}) => reindex::run(session),
        Command::Key(key::KeyArgs {}) => key::key(session),
        Command::Checkpoint(key::CheckpointArgs {}) => key::checkpoint(session),
    }
}

/// The call that `text` means: its ID, or the beginning of one that no other call has.
pub(crate) fn resolve_id(host: &Host, text: &str) -> Result<AuditId, CommandError> {
    match id::parse_full(text) {
        Some(id) => Ok(id),
        None => match host.audit().existing()? {
            Some(mut reader) => id::find(Some(&mut *reader), text),
            None => id::find(None, text),
        },
    }
}

/// The note if there is no audit log yet.
const NOTHING: &str = "Nothing was called yet.";
