//! `recover list`: the interrupted calls.

use cofferdam_audit::{CallStatus, Filter};
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::flow::IncompleteCall;
use cofferdam_runtime::host::Host;

use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::Session;

/// Longest text of arguments for people, in characters; the JSON has all of it.
const SHOWN_CHARS: usize = 400;

/// And so much of a key.
const KEY_CHARS: usize = 40;

const EXAMPLES: &str = "\
The effect of a call that is listed is not known. One that has no end and whose operation may be repeated can \
be resumed; for any other, look at the service first.

Examples:
  cofferdam recover list
  cofferdam recover list --format json";

/// Lists the calls that were interrupted, with what is known about each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(super) fn run(Args {}: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    // Before the others: a host that ends in between leaves calls that are listed.
    let running = running(&host)?;
    let found = host.incomplete()?;
    session.ui.result(&found, |it| page(&found, it))?;
    match found.iter().filter(|call| call.resumable).count() {
        _ if found.is_empty() && running > 0 => session.ui.note(&format!(
            "No call is known to be interrupted. {running} without an end: their host lives, or the file \
             `lock` of its journal is missing."
        )),
        _ if found.is_empty() => session.ui.note("No call was interrupted."),
        0 => session.ui.note("Look at the services; then: cofferdam recover skip ID --reason TEXT"),
        _ => session.ui.note("Do again what may be repeated: cofferdam recover resume --all"),
    }
    Ok(())
}

/// The number of calls without an end that do not count as interrupted.
fn running(host: &Host) -> Result<usize, CommandError> {
    let Some(mut reader) = host.audit().existing()? else { return Ok(0) };
    let filter = Filter { status: Some(CallStatus::Running), ..Filter::default() };
    Ok(reader.list(&filter)?.len())
}

fn page(found: &[IncompleteCall], page: &mut Page) {
    for call in found {
        page.heading(call.audit_id.as_str());
        page.field("received", &format!("{:.3}", call.at));
        page.field("call", &format!("{} {}", call.connector, call.op));
        if let Some(action) = &call.action {
            page.field("action", &[action.as_str(), call.step.as_deref().unwrap_or_default()].join(" "));
        }
        if let Some(arguments) = &call.arguments {
            page.field("arguments", &sanitize_line(arguments, SHOWN_CHARS));
        }
        if let Some(key) = &call.idempotency_key {
            page.field("key", &sanitize_line(key, KEY_CHARS));
        }
        page.field("asked by", &call.actor);
        page.field(
            "why",
            match call.reason {
                "cancelled" => "cancelled",
                "effect_unknown" => "it ended while a request was under way",
                _ => "its host is gone",
            },
        );
        page.field("attempts", &call.attempts.to_string());
        let (tone, sent) = match call.may_have_sent {
            true => (TextStyle::Doubtful, "not known: it may have had its effect"),
            false => (TextStyle::Good, "no request had left"),
        };
        page.styled_field("effect", tone, sent);
        let (tone, next) = match call.not_resumable {
            None => (TextStyle::Good, "may be repeated: recover resume"),
            Some("not_kept") => {
                (TextStyle::Doubtful, "may be repeated, but what was asked for is not kept: recover skip")
            }
            Some("sealed_under_another_key") => (
                TextStyle::Doubtful,
                "may be repeated, but what was asked for does not open with this host.key",
            ),
            Some("not_installed") => {
                (TextStyle::Doubtful, "may be repeated once its package is installed again; or recover skip")
            }
            Some("undeclared") => (
                TextStyle::Bad,
                "not declared idempotent, and it may have had its effect: look at the service, then recover skip",
            ),
            Some("effect_unknown") => (TextStyle::Doubtful, "look at the service, then recover skip"),
            Some(_) => (TextStyle::Bad, "must not be repeated: look at the service, then recover skip"),
        };
        match call.hint {
            Some(hint) => page.styled_field("next", TextStyle::Doubtful, hint),
            None => page.styled_field("next", tone, next),
        };
    }
}
