//! `approvals grants`: the requests for grants, which are what connectors were denied.

use cofferdam_runtime::host::GrantRequest;

use crate::layout::Page;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
A request is an access that calls of the last 7 days were denied, or a binding that they missed, and that a call \
would still be denied or miss now. To accept one, grant the access: `cofferdam install` of a version whose manifest \
asks for it, `cofferdam binding set`, or `config.toml`.

Examples:
  cofferdam approvals grants
  cofferdam approvals grants --format json";

/// Lists the access that calls were denied, and the bindings that they missed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(super) fn run(Args {}: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let found = session.host()?.grant_requests()?;
    session.ui.result(&found, |it| page(&found, it))?;
    match found.is_empty() {
        true => session.ui.note("No request for a grant is open."),
        false => {
            session.ui.note("To accept one, use cofferdam install, cofferdam binding set, or config.toml.")
        }
    }
    Ok(())
}

fn page(found: &[GrantRequest], page: &mut Page) {
    for request in found {
        let GrantRequest { connector, subject, binding, .. } = request;
        page.heading(&format!("{connector} {}", binding.as_deref().unwrap_or(subject)));
        page.field("asked for", request.kind);
        page.field("calls", &format!("{}, since {}", request.calls, request.first));
        page.field("last call", &format!("{} at {} by {}", request.last_call, request.last, request.actor));
        page.field("code", request.code);
        page.field("why", &request.reason);
        if let Some(command) = &request.suggestion {
            page.field("to fix it", command);
        }
        page.field("to look at", &format!("cofferdam why {connector} {subject}"));
    }
}
