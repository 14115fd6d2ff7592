//! `call`: runs one operation of a connector, and prints its value or its failure.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::{LimitError, LimitRequest, Usage, parse_time};
use cofferdam_core::strict_json;
use cofferdam_core::trace::TraceCollector;
use cofferdam_runtime::agent;
use cofferdam_runtime::call::{Call, CallResult, Cancellation, OnKeyConflict, Report};
use cofferdam_runtime::host::HostBuilder;
use serde_json::{Map, Value};

use crate::allow_private::AllowPrivate;
use crate::answer::{OutcomeFields, ToolResult};
use crate::commands::fallback::{self, FallbackPlan};
use crate::commands::{batch, packaging, trace};
use crate::dev_options::{self, DevOptions, DevPackage};
use crate::exit_codes::exit_code;
use crate::report::{CommandError, exit_after, with_signal};
use crate::session::{Session, resolve};
use crate::{answer, files, progress, retries, runtime};

/// Longest text of arguments that is read, in bytes. A call accepts less, and reports it.
const ARGS_BYTES: u64 = 16 * 1024 * 1024;

const EXAMPLES: &str = "\
The value is printed on standard output as JSON. A failure has a class, which decides the exit code; with \
`--format json` its envelope is printed on standard output in the place of the value. `cofferdam inspect` \
shows a connector's operations, their parameters and their types.

Examples:
  cofferdam call github://acme/hello greet '{\"name\": \"Ada\"}'
  cofferdam call github://acme/hello greet --arg name=Ada --arg times=3
  cofferdam call github://acme/slack@1.2.0 post_message @message.json --wall-time 10s
  cofferdam call github://acme/slack post_message --each messages.jsonl --concurrency 4
  jq '{name: .user}' user.json | cofferdam call github://acme/hello greet -
  cofferdam call github://acme/api get --arg path=/ --allow-private localhost:8080
  cofferdam call github://acme/api get --arg path=/ --retry patient --attempt-timeout 10s
  cofferdam call ./api-0.1.0.wasm get --arg path=/ --dev --upstream api.acme.example:443=http://localhost:8099";

/// Calls an operation of an installed connector.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The connector: NAME@VERSION, or NAME for its active version; `#sha256:...` pins its bytes.
    #[arg(value_name = "CONNECTOR")]
    connector: String,

    /// The operation.
    #[arg(value_name = "OP")]
    op: String,

    /// The arguments: a JSON object, `@FILE` with one, or `-` for standard input [default: {}].
    #[arg(value_name = "ARGS")]
    args: Option<String>,

    /// One call for each line of FILE (`-`: standard input): `{"args": {..}, "idempotency_key": ".."}`, or the
    /// arguments alone. Each outcome is one line of JSON, in the order in which they come.
    ///
    /// Lines with keys can be run again after an end of whatever kind: what is done is replayed and not done twice.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["args", "arg", "idempotency_key", "usage", "as_tool_result"]
    )]
    each: Option<PathBuf>,

    /// The number of lines of `--each` that are called at once, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256), requires = "each")]
    concurrency: u32,

    /// One argument: a value that is JSON is taken as JSON, other text as a string ('zip="01234"' is one,
    /// too); may be given several times.
    #[arg(long = "arg", value_name = "KEY=VALUE", value_parser = key_and_value)]
    arg: Vec<(String, Value)>,

    /// The longest the call may take, all its attempts and waits included, like 500ms, 30s or 2m [default: the
    /// manifest's, or the retry profile's, or 30s].
    #[arg(long, visible_alias = "timeout", value_name = "TIME", value_parser = wall_time, allow_hyphen_values = true)]
    wall_time: Option<String>,

    /// The retries after a temporary failure: a retry profile's name (standard, patient, failover,
    /// failover-windowed, deterministic, none, or one in `config.toml`), or `@FILE` with one [default: the
    /// connector's in `config.toml`, or `standard`].
    #[arg(long, value_name = "PROFILE", value_parser = retries::ProfileName, hide_possible_values = true)]
    retry: Option<String>,

    /// The longest that one attempt may take; the call's own limit takes precedence [default: the profile's, or all the
    /// time that is left].
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    attempt_timeout: Option<Duration>,

    /// Treats the operation as one that must not be repeated, whatever its manifest says.
    #[arg(long)]
    not_idempotent: bool,

    /// The most it may compute [default: the manifest's, or 1e9 for each second].
    #[arg(long, value_name = "AMOUNT", value_parser = fuel, allow_hyphen_values = true)]
    fuel: Option<u64>,

    /// The most memory it may have, like 64MiB [default: the manifest's, or 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = memory, allow_hyphen_values = true)]
    memory: Option<String>,

    /// The key by which this call is known: given again with the same call, nothing is run and the recorded outcome is
    /// printed (docs/guides/recovery.md). Services are sent it, too. 1 to 200 printable ASCII characters without spaces, `:`
    /// and `~` [default: a new one].
    #[arg(long, visible_alias = "key", value_name = "KEY")]
    idempotency_key: Option<String>,

    /// The reaction if a call with the same key is still running.
    #[arg(long, value_name = "WHAT", default_value = "wait", requires = "idempotency_key")]
    if_running: KeyConflictArg,

    /// The identity whose credential is used for a service, as bound under <kind>/SERVICE/IDENTITY; may be
    /// given several times [default: `default`].
    #[arg(long = "identity", value_name = "SERVICE=IDENTITY", value_parser = service_and_identity)]
    identity: Vec<(String, String)>,

    #[command(flatten)]
    private: AllowPrivate,

    /// The fallbacks if this call cannot be answered: a file of candidates (docs/guides/fallback.md).
    #[arg(long, value_name = "FILE")]
    fallback: Option<PathBuf>,

    /// For development: runs a package that has no signature.
    #[arg(long)]
    allow_unsigned: bool,

    /// For development: CONNECTOR is the file of a package, which runs as it is, neither signed nor installed, in a home of
    /// its own.
    #[arg(long, conflicts_with_all = ["allow_unsigned", "fallback"])]
    dev: bool,

    #[command(flatten)]
    dev_options: DevOptions,

    /// Says what each attempt used of its limits: on standard error, or with `--format json` as `usage` (the last
    /// attempt's) and `report` (all attempts) next to `value` or `error`.
    #[arg(long)]
    usage: bool,

    /// Prints everything that the audit log has about a failure: causes, what the connector wrote before it ended, what the host
    /// noted; on standard error, or with `--format json` as `debug` next to `error`. For operators: not to be shown to
    /// an agent.
    #[arg(long)]
    debug: bool,

    /// Writes a trace of every attempt to FILE, for `cofferdam trace show` and for Perfetto: each host call, request and log
    /// line with its time, and the contents of requests and responses. After a trap, the failure's notes name the
    /// connector's functions.
    #[arg(long, value_name = "FILE", conflicts_with = "each")]
    trace: Option<PathBuf>,

    /// Prints the text for an agent, whatever the outcome: the message of a tool, `{"tool_call_id", "role", "content"}`.
    #[arg(long, value_name = "TOOL_CALL_ID", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["usage", "debug"])]
    as_tool_result: Option<String>,
}

/// The reaction if a call with the same idempotency key is still running.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum KeyConflictArg {
    /// It waits for the other's outcome, for its own time at most.
    Wait,
    /// It is refused.
    Refuse,
}

/// Calls, and prints what comes of it.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let tool = args.as_tool_result.clone().map(|id| ToolResult::new(id, &args.op));
    let outcome = call(args, session, tool.as_ref());
    answer::finish(session.ui, tool.as_ref(), outcome)
}

fn call(args: Args, session: &Session<'_>, tool: Option<&ToolResult>) -> Result<(), CommandError> {
    let not_texts = not_texts(&args.arg);
    let arguments = arguments(session, args.args.as_deref(), args.arg)?;
    let limits = LimitRequest::parse(args.fuel, args.wall_time.as_deref(), args.memory.as_deref());
    let limits = limits.map_err(|error| HostError::new(HostErrorKind::Validation, error.to_string()))?;
    let each = args.each.as_ref().map(|_| args.concurrency);
    let private = args.private;
    let compiler = match &args.trace {
        None => None,
        Some(path) => {
            // Find out before the work is done, and not after.
            packaging::check_output(path)?;
            Some(session.compiler()?.debugging_guests())
        }
    };
    let configured = |mut builder: HostBuilder| {
        if let Some(compiler) = compiler {
            builder = builder.compiler(compiler);
        }
        if let Some(concurrency) = each {
            builder = builder.concurrency(concurrency);
        }
        private.apply_to(builder).listener(Arc::new(retries::WaitReporter(session.ui.clone())))
    };
    // Its home and its network are in use until the call has ended.
    let mut development = None;
    let (host, connector) = match args.dev {
        true => {
            let package = Path::new(&args.connector);
            let started =
                development.insert(DevPackage::open(package, &args.dev_options, session, configured)?);
            (started.host.clone(), started.connector.clone())
        }
        false if args.dev_options.is_given() => return Err(dev_options::only_in_development().into()),
        false => {
            let host = session.host_with(configured)?;
            let connector = resolve(&host, &args.connector)?;
            (host, connector)
        }
    };
    let what = format!("calling {} of {connector}", sanitize_line(&args.op, 100));
    let mut call = Call::new(connector, args.op, arguments).limits(limits);
    if let Some(key) = args.idempotency_key {
        call = call.idempotency_key(key).if_running(match args.if_running {
            KeyConflictArg::Wait => OnKeyConflict::Wait,
            KeyConflictArg::Refuse => OnKeyConflict::Refuse,
        });
    }
    for (service, identity) in args.identity {
        call = call.identity(service, identity);
    }
    if args.allow_unsigned {
        call = call.allow_unsigned();
    }
    if let Some(text) = args.retry {
        call = call.retry(retries::profile(&host, &text)?);
    }
    if let Some(longest) = args.attempt_timeout {
        call = call.attempt_timeout(longest);
    }
    if args.not_idempotent {
        call = call.not_idempotent();
    }
    if let Some(path) = &args.fallback {
        call = FallbackPlan::read(path, &host, call.connector(), call.op())?.apply_to(call);
    }
    if let Some(path) = &args.each {
        return batch::run(path, args.concurrency, call, &host, session);
    }
    let cancellation = Cancellation::new();
    let call = call.cancelled_by(&cancellation);
    let (connector, operation) = (call.connector().to_string(), call.op().to_owned());
    let traces = TraceCollector::default();
    let call = if args.trace.is_some() { call.traced_by(&traces) } else { call };
    let running = progress::during(session.ui, &what, host.run(call));
    let (CallResult { outcome, report }, stop) = runtime::block_on_call(&host, &cancellation, running)?;
    if let Some(path) = &args.trace {
        match trace::write(path, (&connector, &operation), &report.audit_id, &traces.take()) {
            Ok(note) => session.ui.note(&note),
            Err(warning) => session.ui.warn(&warning),
        }
    }
    let outcome = outcome.map_err(|error| with_signal(stop, with_quotes(error, &not_texts)));
    // The audit log of a development home ends with the command.
    let with_reference = |error: Error| match development {
        None => CommandError::from_call(error, &host),
        Some(_) => error.into(),
    };
    let ended = |outcome: Result<Value, Error>| outcome.map_err(with_reference);
    if let (Some(tool), Ok(value)) = (tool, &outcome) {
        return tool.value(session.ui, &connector, &value.to_string(), &report);
    }
    let requests = report.aborted_on_return();
    match &outcome {
        Ok(value) => {
            let missing = report.partial.unwrap_or(0);
            answer::warn_of_missing(session.ui, "the value", agent::missing_parts(value, missing, requests));
        }
        Err(_) => requests.iter().for_each(|request| session.ui.warn(&request.to_string())),
    }
    if let Some(by) = report.answered_instead() {
        session.ui.note(&fallback::note(by));
    }
    answer::note_replayed(session.ui, report.replayed.as_ref());
    if session.ui.json() && (args.usage || args.debug) {
        return with_report(session, outcome, &report, args.usage, args.debug);
    }
    if let Some(view) = report.operator_view().filter(|_| tool.is_none()) {
        answer::print_operator_view(session.ui, view, args.debug);
    }
    if !args.usage {
        return session.ui.value(&ended(outcome)?);
    }
    match (report.last_usage(), &report.attempts[..]) {
        (_, [_, _, ..]) => report.attempts.iter().zip(1..).for_each(|(attempt, n)| {
            session.ui.note(&format!("attempt {n}: {attempt}"));
        }),
        (Some(usage), _) => session.ui.note(&format!("used: {usage}")),
        (None, _) => {}
    }
    session.ui.value(&ended(outcome)?)
}

/// Prints the outcome as one line of JSON, with the attempts if they are asked for.
fn with_report(
    session: &Session<'_>,
    outcome: Result<Value, Error>,
    report: &Report,
    usage: bool,
    debug: bool,
) -> Result<(), CommandError> {
    #[derive(serde::Serialize)]
    struct CallAnswer<'a> {
        #[serde(flatten)]
        outcome: OutcomeFields<'a, Value>,
        #[serde(flatten)]
        how: Option<CallCost<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        answered_by: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        replayed: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        debug: Option<&'a Map<String, Value>>,
    }
    #[derive(serde::Serialize)]
    struct CallCost<'a> {
        usage: Option<Usage>,
        report: &'a Report,
    }
    let printed = session.ui.line_of_json(&CallAnswer {
        outcome: (&outcome).into(),
        how: usage.then(|| CallCost { usage: report.last_usage(), report }),
        answered_by: report.answered_instead().map(fallback::answered_by),
        replayed: report.replayed.as_ref().map(cofferdam_core::failure::AuditId::as_str),
        debug: report.operator_view().filter(|_| debug),
    });
    exit_after(printed, outcome.as_ref().err().map(exit_code))
}

/// Single arguments that were taken as JSON and are no texts: each with how the text would be written.
fn not_texts(single: &[(String, Value)]) -> Vec<(String, String)> {
    let others = single.iter().filter(|(_, value)| !value.is_string());
    // The shell takes the outer quotation marks, JSON the inner ones.
    let quoted = |(key, value): &(String, Value)| {
        (key.clone(), format!("--arg '{key}={}'", Value::from(value.to_string())))
    };
    others.map(quoted).collect()
}

/// The error, with the way to write a text that looks like a number, where that is what was meant.
fn with_quotes(error: Error, not_texts: &[(String, String)]) -> Error {
    let Error::Host(error) = error else { return error };
    let wants_text = |key: &str| error.message().contains(&format!("args.{key}: expected a string"));
    match not_texts.iter().find(|(key, _)| wants_text(key)) {
        Some((_, written)) => Error::Host(error.with_hint(format!("To give it as a text, write {written}."))),
        None => Error::Host(error),
    }
}

/// The arguments of the call: those of `whole`, and the `single` ones.
pub(super) fn arguments(
    session: &Session<'_>,
    whole: Option<&str>,
    single: Vec<(String, Value)>,
) -> Result<Value, HostError> {
    match whole {
        None => merge(Value::Object(Map::new()), single),
        Some(text) => merge(argument_text(session, text)?, single),
    }
}

/// Arguments as one text: JSON, `@` and a file with it, or `-` for standard input.
pub(super) fn argument_text(session: &Session<'_>, text: &str) -> Result<Value, HostError> {
    let (text, place) = match text {
        "-" => {
            if io::stdin().is_terminal() {
                session.ui.note("reading the arguments from this terminal; end them with Ctrl-D");
            }
            let from = "standard input";
            (files::read_stream("The arguments on", io::stdin().lock(), Path::new(from), ARGS_BYTES)?, from)
        }
        text => match text.strip_prefix('@') {
            Some(path) => (files::bounded("The file of arguments", Path::new(path), ARGS_BYTES)?, path),
            None => (text.as_bytes().to_vec(), "ARGS"),
        },
    };
    parse(&text, place)
}

fn parse(text: &[u8], place: &str) -> Result<Value, HostError> {
    strict_json::parse(text).map_err(|error| {
        let place = files::shown(Path::new(place));
        HostError::new(HostErrorKind::Validation, format!("The arguments are not JSON: {place}: {error}."))
            .with_hint(
                "Give one JSON object, like '{\"name\": \"Ada\"}', or single arguments with --arg name=Ada.",
            )
    })
}

fn merge(mut whole: Value, single: Vec<(String, Value)>) -> Result<Value, HostError> {
    if single.is_empty() {
        return Ok(whole);
    }
    let wrong =
        |message: String, hint: &str| Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
    let Some(object): Option<&mut Map<_, _>> = whole.as_object_mut() else {
        return wrong(
            "ARGS is not a JSON object, so that nothing can be added to it.".into(),
            "Leave out --arg.",
        );
    };
    for (key, value) in single {
        if object.insert(key.clone(), value).is_some() {
            let message = format!("The argument `{}` is given twice.", sanitize_line(&key, 100));
            return wrong(message, "Give it once.");
        }
    }
    Ok(whole)
}

pub(super) fn key_and_value(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    if key.is_empty() {
        return Err("the key is missing; write it as KEY=VALUE".into());
    }
    let value = match strict_json::parse(value.as_bytes()) {
        Ok(value) => value,
        // JSON with a duplicate name is not taken as text either.
        Err(error) if error.is_data() => return Err(error.to_string()),
        Err(_) => Value::from(value),
    };
    Ok((key.to_owned(), value))
}

pub(super) fn service_and_identity(text: &str) -> Result<(String, String), String> {
    let (service, identity) = text.split_once('=').ok_or("write it as SERVICE=IDENTITY, like slack=work")?;
    match service.is_empty() || identity.is_empty() {
        true => Err("write it as SERVICE=IDENTITY, like slack=work".into()),
        false => Ok((service.to_owned(), identity.to_owned())),
    }
}

fn wall_time(text: &str) -> Result<String, String> {
    amount(text, LimitRequest::parse(None, Some(text), None))
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .ok_or_else(|| "write it as a whole number above zero with ms, s or m, like 500ms or 2s".to_owned())
}

pub(super) fn fuel(text: &str) -> Result<u64, String> {
    let written = "write it as a whole number above zero, like 30000000000";
    text.replace('_', "").parse().ok().filter(|fuel| *fuel > 0).ok_or_else(|| written.to_owned())
}

pub(super) fn memory(text: &str) -> Result<String, String> {
    amount(text, LimitRequest::parse(None, None, Some(text)))
}

/// The text, if it is an amount; how to write one otherwise. The limit's name is the option's already.
fn amount(text: &str, parsed: Result<LimitRequest, LimitError>) -> Result<String, String> {
    match parsed {
        Ok(_) => Ok(text.to_owned()),
        Err(LimitError::Malformed { form, .. }) => Err(format!("write it as {form}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_single_argument_is_json_if_it_can_be() {
        for (text, key, value) in [
            ("name=Ada", "name", json!("Ada")),
            ("times=3", "times", json!(3)),
            ("zip=\"01234\"", "zip", json!("01234")),
            ("zip=01234", "zip", json!("01234")),
            ("on=true", "on", json!(true)),
            ("none=null", "none", Value::Null),
            ("empty=", "empty", json!("")),
            ("query=a=b", "query", json!("a=b")),
            ("list=[1, \"a\"]", "list", json!([1, "a"])),
            ("broken={\"a\":", "broken", json!("{\"a\":")),
        ] {
            assert_eq!(key_and_value(text).unwrap(), (key.to_owned(), value), "{text}");
        }
        assert!(key_and_value("name").is_err());
        assert!(key_and_value("twice={\"a\": 1, \"a\": 2}").is_err());
        assert!(key_and_value("=3").is_err());
    }

    #[test]
    fn single_arguments_are_merged_and_never_replace() {
        let single = |key: &str| vec![(key.to_owned(), json!(1))];
        assert_eq!(merge(json!({"a": 0}), single("b")).unwrap(), json!({"a": 0, "b": 1}));
        assert!(merge(json!({"a": 0}), single("a")).unwrap_err().message().contains("`a`"));
        assert!(merge(json!([]), single("a")).is_err());
        assert_eq!(merge(json!([]), Vec::new()).unwrap(), json!([]));
    }

    #[test]
    fn malformed_json_is_refused_with_its_place() {
        let error = parse(b"{name: 1}", "args.json").unwrap_err();
        assert!(
            error.message().contains("args.json: ") && error.message().contains("line 1 column 2"),
            "{error}"
        );
        assert!(parse(b"{} {}", "ARGS").is_err());
        let error = parse(b"{\"a\": 1, \"a\": 2}", "ARGS").unwrap_err();
        assert!(error.message().contains("`a` stands twice"), "{error}");
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes(), "ARGS").is_err());
    }
}
