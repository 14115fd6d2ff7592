//! `audit prune`: removes the oldest calls, and the rest can still be verified.

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use crate::commands::time_format::{format_timestamp, parse_timestamp};
use crate::layout::TextStyle;
use crate::progress::during;
use crate::report::CommandError;
use crate::runtime::block_on;
use crate::session::Session;

const EXAMPLES: &str = "\
Whole segments of the journals are removed, of 8 MiB or a day each, from the oldest on, up to the first with a call \
that is younger, has no end, or holds an idempotency key that is not free yet, or a younger change by an operator. A \
call without an end or with a key is named, and an entry that is more than a day ahead of the time of the log. A signed \
checkpoint takes their place, so that `cofferdam audit verify` tells a pruned audit log from a truncated one. Export \
first what you want to keep. With `retention` in config.toml a host prunes once an hour.

Examples:
  cofferdam audit prune --older-than 90d --dry-run
  cofferdam audit prune --older-than 2026-01-01";

/// Removes the oldest calls from the audit log.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Calls that were received longer ago, like `90d`, or before a date, like `2026-01-01`.
    #[arg(long, value_name = "TIME", value_parser = parse_timestamp)]
    older_than: Timestamp,

    /// Only says what would go.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let pruned = block_on(during(session.ui, "pruning the audit log", async {
        Ok(host.audit().prune(args.older_than, args.dry_run).await?)
    }))?;
    session.ui.result(&pruned, |page| {
        let word = if args.dry_run { "would go" } else { "removed" };
        page.styled_field(
            word,
            TextStyle::Good,
            &format!("{} calls, {} entries", pruned.calls, pruned.entries),
        );
        if let Some(until) = pruned.until {
            page.field("up to", &format_timestamp(until));
        }
        if let Some(stopped) = &pruned.stopped {
            let entry = stopped.audit_id.as_ref().map_or("a change by an operator", AuditId::as_str);
            page.styled_field("stopped by", TextStyle::Doubtful, entry);
            page.field("why", stopped.why.says());
            if let Some(decide) = &stopped.decide {
                page.field("decide", decide);
            }
        } else if pruned.calls == 0 {
            page.field("why", "no call is older, or each segment has an entry that stays");
        }
    })
}
