//! `audit list`: the calls in the audit log, the newest first.

use cofferdam_audit::Filter;
use cofferdam_core::error::{HostError, HostErrorKind};

use super::filter::{CallFilterArgs, check_code};
use super::line::{HEADER, cells};
use super::{NOTHING, resolve_id};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
All options narrow: a call is listed if it fits every one. `audit show ID` has everything about one call.

Examples:
  cofferdam audit list
  cofferdam audit list --failed --since 2h
  cofferdam audit list --class network_error --connector github://acme/slack
  cofferdam audit list --status incomplete
  cofferdam audit list --key order-17
  cofferdam audit list --since 2026-11-01 --until 2026-12-01 --limit 0 --format json";

/// Lists the calls in the audit log, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: CallFilterArgs,

    /// Those that ran under this idempotency key of their caller: KEY itself, or `sha256:` and the 64 digits of its
    /// SHA-256.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// At most so many; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Those before this one: the next page of a list, after the last ID of this page. It may be abbreviated.
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

/// Lists.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let mut filter = args.which.filter()?;
    select_key(&mut filter, args.key.as_deref())?;
    filter.limit = args.limit;
    let host = session.host()?;
    filter.before = args.before.map(|text| resolve_id(&host, &text)).transpose()?;
    let Some(mut reader) = host.audit().existing()? else {
        check_code(&filter, None)?;
        session.ui.result(&[(); 0], |_| {})?;
        session.ui.note(NOTHING);
        return Ok(());
    };
    check_code(&filter, Some(&mut *reader))?;
    let rows = reader.list(&filter)?;
    session.ui.result(&rows, |page| {
        if !rows.is_empty() {
            page.table(HEADER, rows.iter().map(cells).collect());
        }
    })?;
    if rows.is_empty() {
        session.ui.note("No call in the audit log fits.");
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

/// Selects the calls under a key. It is the caller's own, so no error repeats it.
fn select_key(filter: &mut Filter, key: Option<&str>) -> Result<(), HostError> {
    match key {
        Some(key) if !filter.select_key(key) => {
            Err(HostError::new(HostErrorKind::Validation, "The value of --key is no idempotency key.")
                .with_hint(Filter::KEY_FORM))
        }
        _ => Ok(()),
    }
}
