//! `audit tail`: the last calls, and those that come.

use std::collections::HashSet;
use std::time::Duration;

use cofferdam_audit::{AuditReader, CallRow, Filter, LogPosition};
use cofferdam_core::failure::AuditId;

use super::{NOTHING, line};
use crate::commands::time_format;
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;
use cofferdam_runtime::host::Host;

const EXAMPLES: &str = "\
A call is shown when it ends, whichever process made it. With --format json each is a line of its own.

Examples:
  cofferdam audit tail
  cofferdam audit tail -f
  cofferdam audit tail -f -n 0 --format json | jq -c 'select(.status == \"failure\")'";

/// The interval between two reads of the audit log.
const LOOK: Duration = Duration::from_millis(200);

/// Most calls that are read at once.
const CALLS: usize = 500;

/// Shows the last calls, the newest last; and with -f those that end from now on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Runs until it is stopped (Ctrl-C).
    #[arg(short, long)]
    follow: bool,

    /// Begins with so many of the last calls.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: usize,
}

/// Shows them.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let mut reader = host.audit().existing()?;
    let mut place = TailPosition::default();
    if let Some(reader) = &mut reader {
        place.position = reader.end()?;
        if args.lines > 0 {
            let filter = Filter { limit: args.lines, ..Filter::default() };
            for row in reader.list(&filter)?.iter().rev() {
                show(session, row)?;
                if row.status.has_end() {
                    place.shown.insert(row.audit_id.clone());
                }
            }
        }
    } else if !args.follow {
        session.ui.note(NOTHING);
    }
    if !args.follow {
        return Ok(());
    }
    session.ui.note("waiting for calls; Ctrl-C ends it");
    match runtime::block_on(follow(session, &host, reader, place)) {
        // That is how it is meant to end.
        Err(CommandError::Interrupted) => Ok(()),
        outcome => outcome,
    }
}

/// The last position that was read in the audit log.
#[derive(Default)]
struct TailPosition {
    position: LogPosition,
    /// Calls that were shown with their end, though that may be after the position.
    shown: HashSet<AuditId>,
}

async fn follow(
    session: &Session<'_>,
    host: &Host,
    mut reader: Option<Box<dyn AuditReader>>,
    mut place: TailPosition,
) -> Result<(), CommandError> {
    loop {
        match &mut reader {
            // Others write as we read: whatever came is shown before the next look.
            Some(reader) => {
                while show_ended_calls(session, &mut **reader, &mut place)? {
                    tokio::task::yield_now().await;
                }
            }
            None => reader = host.audit().existing()?,
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Shows the calls that have ended since; returns whether there were any.
fn show_ended_calls(
    session: &Session<'_>,
    reader: &mut dyn AuditReader,
    place: &mut TailPosition,
) -> Result<bool, CommandError> {
    let ended = reader.ended_after(&mut place.position, CALLS)?;
    for row in &ended {
        if !place.shown.remove(&row.audit_id) {
            show(session, row)?;
        }
    }
    Ok(!ended.is_empty())
}

fn show(session: &Session<'_>, row: &CallRow) -> Result<(), CommandError> {
    session.ui.result(row, |page| {
        let attempts = match row.attempts {
            None | Some(1) => String::new(),
            Some(attempts) => format!("{attempts} attempts"),
        };
        let took = row.duration_us.map(time_format::format_duration).unwrap_or_default();
        let (at, why) = (time_format::format_timestamp(row.at), line::why(row));
        let words =
            [&at, row.audit_id.as_str(), &row.connector, &row.op, row.status.name(), &why, &took, &attempts];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        page.styled(line::tone(row), &words.join("  "));
    })
}
