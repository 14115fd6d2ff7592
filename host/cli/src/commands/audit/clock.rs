//! `audit clock`: the time that the audit log goes by, and the operator's word for it.

use cofferdam_audit::LogTime;

use crate::commands::time_format::format_timestamp;
use crate::layout::TextStyle;
use crate::report::CommandError;
use crate::runtime::block_on;
use crate::session::Session;

const EXAMPLES: &str = "\
Idempotency keys expire, and `retention` removes calls, by the time of the audit log. That is the clock's, unless \
the clock is more than a day away from the newest entry: it may be wrong, or nothing was called for so long. While it \
is ahead no key expires; while it is behind no call runs under a key.

Examples:
  cofferdam audit clock
  cofferdam audit clock --accept";

/// Shows the time that idempotency keys expire by, and accepts the clock after a leap.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Has the audit log go by the clock from now on, and records who said so.
    #[arg(long)]
    accept: bool,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let audit = host.audit();
    if args.accept {
        audit.accept_clock()?;
    }
    let now = block_on(async { Ok(audit.time().await?) })?;
    let LogTime { time, clock, is_believed } = now;
    session.ui.result(&now, |page| {
        page.field("clock", &format_timestamp(clock));
        let (style, by) = match is_believed {
            true => (TextStyle::Good, "the clock".to_owned()),
            false => (TextStyle::Doubtful, format_timestamp(time)),
        };
        page.styled_field("keys expire by", style, &by);
    })?;
    if !is_believed {
        session.ui.note("If the clock is right: cofferdam audit clock --accept");
    }
    Ok(())
}
