//! `audit list`: the calls on record, the newest first.

use super::filter::{CallFilterArgs, check_code};
use super::line::{CallLine, HEADER, cells};
use super::{NOTHING, existing, read, resolve_id};
use crate::layout::Page;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
All options narrow: a call is listed if it fits every one. `audit show ID` has everything about one call.

Examples:
  cofferdam audit list
  cofferdam audit list --failed --since 2h
  cofferdam audit list --class network_error --connector github://acme/slack
  cofferdam audit list --status incomplete
  cofferdam audit list --since 2026-11-01 --until 2026-12-01 --limit 0 --format json";

/// Lists the calls on record, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: CallFilterArgs,

    /// At most so many; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Those before this one: the next page of a list, after the last ID of this page. It may be cut short.
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

/// Lists.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let mut filter = args.which.filter()?;
    filter.limit = args.limit;
    let host = session.host()?;
    filter.before = args.before.map(|text| resolve_id(&host, &text)).transpose()?;
    let Some(mut reader) = existing(&host)? else {
        check_code(&filter, None)?;
        session.ui.result(&[(); 0], Page::default)?;
        session.ui.note(NOTHING);
        return Ok(());
    };
    check_code(&filter, Some(&mut *reader))?;
    let rows = read(reader.list(&filter))?;
    let lines: Vec<_> = rows.iter().map(CallLine::new).collect();
    session.ui.result(&lines, || {
        let mut page = Page::default();
        if !rows.is_empty() {
            page.table(HEADER, rows.iter().map(cells).collect());
        }
        page
    })?;
    if rows.is_empty() {
        session.ui.note("No call on record fits.");
    } else if rows.len() == args.limit
        && let Some(last) = rows.last()
    {
        session.ui.note(&format!(
            "There may be more: --limit {}, or --before {}.",
            args.limit * 10,
            last.audit_id
        ));
    }
    Ok(())
}
