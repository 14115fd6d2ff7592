//! `run`: runs an action, and prints what its last step returned, or the failure that ended it.

pub(super) mod arguments;
mod dry_run;
mod step_progress;

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::agent;
use cofferdam_runtime::call::Cancellation;
use cofferdam_runtime::flow::{
    ActionReport, ActionResult, ActionValue, RepeatAdvice, RunRequest, StepStatus,
};
use cofferdam_runtime::host::Host;

use super::call::{argument_text, service_and_identity, time};
use crate::allow_private::AllowPrivate;
use crate::answer::{OutcomeFields, ToolResult};
use crate::exit_codes::exit_code;
use crate::report::{CommandError, envelope_content, exit_after, with_signal};
use crate::session::Session;
use crate::{answer, progress, retries, runtime};

const EXAMPLES: &str = "\
What its last step returned is printed on standard output, and beside it what each step did: \
{\"action\", \"output\", \"steps\"}. The first step that fails ends the action; its failure decides the exit \
code, and nothing is rolled back. `cofferdam action show` has the action's arguments and steps.

Examples:
  cofferdam run ship-update branch=main channel=C024BE91L
  cofferdam run ship-update --args @update.json --idempotency-key update-17
  cofferdam run ship-update branch=main channel=C024BE91L --dry-run
  cofferdam run report 'team=\"42\"' --identity slack=work --wall-time 5m --format json";

/// Runs an action: its steps in order, up to the first that fails.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The action, as `cofferdam action list` shows it.
    #[arg(value_name = "NAME")]
    name: String,

    /// Arguments, as the action declares them: a text as it is, everything else as JSON.
    #[arg(value_name = "ARG=VALUE", value_parser = arguments::pair)]
    arguments: Vec<(String, String)>,

    /// All arguments at once: a JSON object, `@FILE` with one, or `-` for standard input.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    args: Option<String>,

    /// Prints what each step would do; runs nothing and records nothing.
    #[arg(long, conflicts_with_all = ["debug", "report", "as_tool_result"])]
    dry_run: bool,

    /// The key by which this run is known: given again with the same arguments, what is done is not done again, and
    /// what it came to is printed (docs/guides/actions.md).
    #[arg(long, visible_alias = "key", value_name = "KEY")]
    idempotency_key: Option<String>,

    /// The identity whose credential is used for a service, as bound under <kind>/SERVICE/IDENTITY; may be
    /// given several times [default: the action's, or `default`].
    #[arg(long = "identity", value_name = "SERVICE=IDENTITY", value_parser = service_and_identity)]
    identity: Vec<(String, String)>,

    /// The longest that the whole action may take, all its steps and waits included, like 30s or 5m [default: what its
    /// file says, or 2m].
    #[arg(long, visible_alias = "timeout", value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    wall_time: Option<Duration>,

    #[command(flatten)]
    private: AllowPrivate,

    /// Prints the result of each step, with every attempt: on standard error, or with `--format json` as `report` next to
    /// `value` or `error`.
    #[arg(long)]
    report: bool,

    /// Prints everything that the audit log has about a failure, on standard error, or with `--format json` as `debug` next to `error`.
    /// For operators: not to be shown to an agent.
    #[arg(long)]
    debug: bool,

    /// Prints the text for an agent, whatever the outcome: the message of a tool, `{"tool_call_id", "role", "content"}`.
    #[arg(long, value_name = "TOOL_CALL_ID", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["report", "debug"])]
    as_tool_result: Option<String>,
}

/// Runs it, and prints what comes of it.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let tool = args.as_tool_result.clone().map(|id| ToolResult::new(id, &args.name));
    let outcome = run_action(args, session, tool.as_ref());
    answer::finish(session.ui, tool.as_ref(), outcome)
}

fn run_action(args: Args, session: &Session<'_>, tool: Option<&ToolResult>) -> Result<(), CommandError> {
    let host = session.host_with(|builder| {
        let builder = args.private.clone().apply_to(builder);
        let builder = builder.listener(Arc::new(retries::WaitReporter(session.ui.clone())));
        builder.listener(Arc::new(step_progress::StepProgress::new(session.ui.clone())))
    })?;
    let run = run_request(&args, &host, session)?;
    if args.dry_run {
        return dry_run::show(&args.name, &run, &host, session);
    }
    let cancellation = Cancellation::new();
    let run = run.cancelled_by(&cancellation);
    let what = format!("running {}", sanitize_line(&args.name, 100));
    let running = progress::during(session.ui, &what, host.run_action(&args.name, run));
    let (ActionResult { outcome, report }, stop) = runtime::block_on_call(&host, &cancellation, running)?;
    let outcome = outcome.map_err(|error| with_signal(stop, error));
    if let Some(tool) = tool {
        return tool.action(session.ui, &outcome, &report);
    }
    if session.ui.json() && (args.report || args.debug) {
        return with_report(session, outcome, &report, &args);
    }
    if let Some(view) = report.operator_view() {
        answer::print_operator_view(session.ui, view, args.debug);
    }
    answer::note_replayed(session.ui, report.replayed.as_ref());
    if let Ok(value) = &outcome {
        for step in report.partial.keys() {
            let parts = agent::missing_parts_of_step(step, value, &report);
            answer::warn_of_missing(session.ui, &format!("the value of step {step}"), parts);
        }
    }
    if args.report || (outcome.is_err() && report.has_begun()) {
        summary(session, &report, args.report, outcome.is_err());
    }
    match outcome {
        Err(error @ Error::Failure(_)) if session.ui.json() => {
            let mut content = envelope_content(&error);
            report.apply_to(&error, &mut content);
            let printed = session.ui.line_of_json(&serde_json::json!({"error": content}));
            exit_after(printed, Some(exit_code(&error)))
        }
        outcome => session.ui.value(&serde_json::to_value(outcome?).unwrap_or_default()),
    }
}

/// The action as it is asked for.
fn run_request(args: &Args, host: &Host, session: &Session<'_>) -> Result<RunRequest, HostError> {
    let whole = args.args.as_deref().map(|text| argument_text(session, text)).transpose()?;
    let action = host.action(&args.name)?;
    let arguments = arguments::arguments(action.inputs(), whole, &args.arguments)?;
    let mut run = RunRequest::new(arguments);
    for (service, identity) in &args.identity {
        run = run.identity(service.as_str(), identity.as_str());
    }
    if let Some(key) = &args.idempotency_key {
        run = run.idempotency_key(key.as_str());
    }
    if let Some(longest) = args.wall_time {
        run = run.wall_time(longest);
    }
    Ok(run)
}

/// Says what came of each step, and warns if the action has no value and another run would repeat an effect.
fn summary(session: &Session<'_>, report: &ActionReport, attempts: bool, has_failed: bool) {
    for step in &report.steps {
        let call = step.report.as_ref();
        let record = call.map(|call| format!(", in the audit log as {}", call.audit_id)).unwrap_or_default();
        let what = match (step.status, call.is_some_and(|call| call.replayed.is_some())) {
            (StepStatus::Value, true) => "done before, and not again",
            (StepStatus::Value, false) => "done",
            (StepStatus::NotRun, _) => "not run",
            (StepStatus::Failure, true) => {
                "the earlier failure under this key: nothing was asked again. Another key runs all steps \
                 again: look at what they did before you give one"
            }
            (status, _) => status.name(),
        };
        session.ui.note(&format!("step {}: {what}{record}", step.id));
        for attempt in call.iter().flat_map(|call| &call.attempts).filter(|_| attempts) {
            session.ui.note(&format!("  {attempt}"));
        }
    }
    let once: Vec<_> = report.unrepeatable_steps().map(|step| &*step.id).collect();
    if has_failed && report.repeat_advice() == RepeatAdvice::AskFirst {
        session.ui.warn(&format!(
            "must not be repeated, and another run of the action would repeat them, with a key or without: {}",
            once.join(", ")
        ));
    }
    session.ui.note(&format!("the whole action: cofferdam audit show {}", report.audit_id));
}

/// Prints the outcome as one line of JSON, with the steps.
fn with_report(
    session: &Session<'_>,
    outcome: Result<ActionValue, Error>,
    report: &ActionReport,
    args: &Args,
) -> Result<(), CommandError> {
    #[derive(serde::Serialize)]
    struct RunAnswer<'a> {
        #[serde(flatten)]
        outcome: OutcomeFields<'a, ActionValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        report: Option<&'a ActionReport>,
        #[serde(skip_serializing_if = "Option::is_none")]
        debug: Option<&'a serde_json::Map<String, serde_json::Value>>,
    }
    let answer = RunAnswer {
        outcome: (&outcome).into(),
        report: args.report.then_some(report),
        debug: report.operator_view().filter(|_| args.debug),
    };
    let mut answer = serde_json::to_value(answer).unwrap_or_default();
    if let (Err(why), Some(error)) = (&outcome, answer.get_mut("error")) {
        report.apply_to(why, error);
    }
    let printed = session.ui.line_of_json(&answer);
    exit_after(printed, outcome.as_ref().err().map(exit_code))
}
