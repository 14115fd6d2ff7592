//! `submit run`: puts an action on the queue.

use std::time::Duration;

use serde_json::{Value, json};

use super::{fields, identities, require_queue, submit};
use crate::commands::call::{argument_text, service_and_identity, time};
use crate::commands::run::arguments;
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
A worker that dies between two steps leaves the rest to another one: what is done is not done again.

Examples:
  cofferdam submit run ship-update branch=main channel=C024BE91L --key update-17
  cofferdam submit run report --args @report.json --wall-time 5m --format json";

/// Puts an action on the queue.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The action, as `cofferdam action list` shows it. The workers have the same file.
    #[arg(value_name = "NAME")]
    name: String,

    /// Arguments, as the action declares them: a text as it is, everything else as JSON.
    #[arg(value_name = "ARG=VALUE", value_parser = arguments::pair)]
    arguments: Vec<(String, String)>,

    /// All arguments at once: a JSON object, `@FILE` with one, or `-` for standard input.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    args: Option<String>,

    /// The key by which this job is known: submitted again with the same arguments, it is one job [default: a new one,
    /// which is printed].
    #[arg(long, visible_alias = "key", value_name = "KEY")]
    idempotency_key: Option<String>,

    /// The identity whose credential is used for a service, as bound under <kind>/SERVICE/IDENTITY on the workers; may be
    /// given several times [default: the action's, or `default`].
    #[arg(long = "identity", value_name = "SERVICE=IDENTITY", value_parser = service_and_identity)]
    identity: Vec<(String, String)>,

    /// The longest that one run of the whole action may take, like 30s or 5m [default: what its file says, or 2m].
    #[arg(long, visible_alias = "timeout", value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    wall_time: Option<Duration>,
}

pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    require_queue(session)?;
    let whole = args.args.as_deref().map(|text| argument_text(session, text)).transpose()?;
    let host = session.host()?;
    let action = host.action(&args.name)?;
    let arguments = arguments::arguments(action.inputs(), whole, &args.arguments)?;
    let run = fields([
        ("name", args.name.into()),
        ("args", arguments),
        ("identities", identities(args.identity)),
        ("wall_time", args.wall_time.map_or(Value::Null, |time| format!("{}ms", time.as_millis()).into())),
    ]);
    submit(session, &host, &json!({"action": run}), args.idempotency_key)
}
