//! `submit call`: puts a call on the queue.

use std::time::Duration;

use serde_json::{Value, json};

use super::{fields, identities, require_queue, submit};
use crate::commands::call::{arguments, fuel, key_and_value, memory, service_and_identity, time};
use crate::report::CommandError;
use crate::session::{Session, resolve};

const EXAMPLES: &str = "\
Examples:
  cofferdam submit call github://acme/slack post_message --arg channel=C024 --arg text=Hi --key greeting-17
  cofferdam submit call github://acme/reports build @report.json --retry patient --format json";

/// Puts a call on the queue.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The connector: NAME@VERSION, or NAME for the version that is active now; `#sha256:...` pins its bytes.
    #[arg(value_name = "CONNECTOR")]
    connector: String,

    /// The operation.
    #[arg(value_name = "OP")]
    op: String,

    /// The arguments: a JSON object, `@FILE` with one, or `-` for standard input [default: {}].
    #[arg(value_name = "ARGS")]
    args: Option<String>,

    /// One argument: a value that is JSON is taken as JSON, other text as a string; may be given several times.
    #[arg(long = "arg", value_name = "KEY=VALUE", value_parser = key_and_value)]
    arg: Vec<(String, Value)>,

    /// The key by which this job is known: submitted again with the same call, it is one job. A direct call with the key
    /// gets the job's outcome [default: a new one, which is printed].
    #[arg(long, visible_alias = "key", value_name = "KEY")]
    idempotency_key: Option<String>,

    /// The identity whose credential is used for a service, as bound under <kind>/SERVICE/IDENTITY on the workers; may be
    /// given several times [default: `default`].
    #[arg(long = "identity", value_name = "SERVICE=IDENTITY", value_parser = service_and_identity)]
    identity: Vec<(String, String)>,

    /// The retries after a temporary failure: the name of a retry profile that the workers have. Waits are in the queue.
    #[arg(long, value_name = "PROFILE")]
    retry: Option<String>,

    /// The longest that one run may take, like 500ms, 30s or 2m [default: the manifest's, or the profile's, or 30s].
    #[arg(long, visible_alias = "timeout", value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    wall_time: Option<Duration>,

    /// The most it may compute [default: the manifest's, or 1e9 for each second].
    #[arg(long, value_name = "AMOUNT", value_parser = fuel, allow_hyphen_values = true)]
    fuel: Option<u64>,

    /// The most memory it may have, like 64MiB [default: the manifest's, or 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = memory, allow_hyphen_values = true)]
    memory: Option<String>,

    /// Treats the operation as one that must not be repeated, whatever its manifest says.
    #[arg(long)]
    not_idempotent: bool,
}

pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    require_queue(session)?;
    let arguments = arguments(session, args.args.as_deref(), args.arg)?;
    let host = session.host()?;
    let connector = resolve(&host, &args.connector)?;
    let connector = match connector.hash() {
        Some(hash) => format!("{connector}#sha256:{hash}"),
        None => connector.to_string(),
    };
    let millis = |time: Duration| Value::from(format!("{}ms", time.as_millis()));
    let limits = fields([
        ("wall_time", args.wall_time.map_or(Value::Null, millis)),
        ("fuel", args.fuel.into()),
        ("memory", args.memory.into()),
    ]);
    let call = fields([
        ("connector", connector.into()),
        ("op", args.op.into()),
        ("args", arguments),
        ("limits", limits),
        ("identities", identities(args.identity)),
        ("retry", args.retry.into()),
        ("not_idempotent", if args.not_idempotent { true.into() } else { Value::Null }),
    ]);
    submit(session, &host, &json!({"call": call}), args.idempotency_key)
}
