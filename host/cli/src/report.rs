//! Errors of commands, and how they are shown.

use std::error::Error as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::CommandFactory as _;
use cofferdam_audit::AuditError;
use cofferdam_core::document::DocumentError;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Failure, printable_json, sanitize_line};
use cofferdam_runtime::agent::refused_arguments;
use cofferdam_runtime::host::{Host, unreadable};
use serde_json::{Map, Value, json};

use super::args::Cli;
use super::exit_codes::{INTERRUPTED, TERMINATED, USAGE, exit_code};
use super::ui::{Ui, err_line};

/// The end of a command before its result.
#[derive(Debug)]
pub(super) enum CommandError {
    /// It failed, and the error is not shown yet. The audit log has nothing under the error's id.
    Error(Error),
    /// It failed, and the audit log has the call under the error's id.
    Recorded(Error),
    /// It failed with this exit code, and its result has said so.
    Shown(u8),
    /// Ended by SIGINT (Ctrl-C).
    Interrupted,
    /// Ended by SIGTERM.
    Terminated,
    /// The reader closed the output.
    PipeClosed,
}

impl From<HostError> for CommandError {
    fn from(error: HostError) -> Self {
        Self::Error(Error::Host(error))
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<AuditError> for CommandError {
    /// Returns the end of a command that cannot read the audit log.
    fn from(error: AuditError) -> Self {
        unreadable(error).into()
    }
}

impl CommandError {
    /// Why a call of `host` has no value.
    pub(super) fn from_call(error: Error, host: &Host) -> Self {
        match is_logged(host, id_of(&error)) {
            Some(true) => Self::Recorded(error),
            Some(false) | None => Self::Error(error),
        }
    }

    /// Returns the end of a command that stops with work left, since its output cannot be written. It is no success
    /// either if the reader closed the output.
    pub(super) fn with_work_left(self) -> Self {
        match self {
            Self::PipeClosed => Self::Interrupted,
            other => other,
        }
    }

    /// The error, where it is one.
    pub(super) fn into_error(self) -> Result<Error, Self> {
        match self {
            Self::Error(error) | Self::Recorded(error) => Ok(error),
            other => Err(other),
        }
    }
}

/// Ends a command that has printed its result, with the exit code if that is a failure. It has that code also if the
/// reader closed the output: it must not look like a success.
pub(super) fn exit_after(printed: Result<(), CommandError>, failure: Option<u8>) -> Result<(), CommandError> {
    match (printed, failure) {
        (Ok(()) | Err(CommandError::PipeClosed), Some(code)) => Err(CommandError::Shown(code)),
        (printed, _) => printed,
    }
}

/// Returns whether the audit log of `host` has a call under `id`; none if it cannot be read. Blocks.
pub(super) fn is_logged(host: &Host, id: &AuditId) -> Option<bool> {
    let Some(mut reader) = host.audit().existing().ok()? else { return Some(false) };
    Some(reader.call(id).ok()?.is_some())
}

/// The id under which the audit log has the call that ended so, if it has it.
fn id_of(error: &Error) -> &AuditId {
    match error {
        Error::Failure(failure) => failure.audit_id(),
        Error::Host(error) => error.request_id(),
    }
}

/// Shows why the command ended; the exit code.
pub(super) fn report_end(ui: &Ui, stop: CommandError) -> ExitCode {
    match stop {
        CommandError::Error(error) => {
            show(ui, &error);
            ExitCode::from(exit_code(&error))
        }
        CommandError::Recorded(error) if ui.json() => {
            // An envelope is strings and numbers: nothing in it can fail.
            show_envelope(&serde_json::to_string(&error).unwrap_or_default());
            ExitCode::from(exit_code(&error))
        }
        CommandError::Recorded(error) => {
            show(ui, &error);
            let id = id_of(&error);
            let code = match &error {
                Error::Host(error) => Some(("code", error.kind().code())),
                Error::Failure(_) => None,
            };
            show_facts(&code.into_iter().chain([("record", id.as_str())]).collect::<Vec<_>>());
            err_line("  more: ", DIM, &format!("cofferdam audit show {id}"));
            ExitCode::from(exit_code(&error))
        }
        CommandError::Shown(code) => ExitCode::from(code),
        CommandError::Interrupted => {
            ui.note("cancelled");
            ExitCode::from(INTERRUPTED)
        }
        CommandError::Terminated => ExitCode::from(TERMINATED),
        CommandError::PipeClosed => ExitCode::SUCCESS,
    }
}

/// The error, with the signal that ended the call, if one did.
pub(super) fn with_signal(stop: Option<CommandError>, error: Error) -> Error {
    match (stop, error) {
        (Some(stop), Error::Host(error)) if error.kind() == HostErrorKind::Cancelled => {
            let signal = if matches!(stop, CommandError::Terminated) { "SIGTERM" } else { "SIGINT" };
            error.detail("signal", signal).into()
        }
        (_, error) => error,
    }
}

/// Shows what is wrong with the arguments, or the help that was asked for; the exit code.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    // Printing fails only if the output is closed.
    drop(error.print());
    ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
}

/// Refuses a command line with a secret key on it, before anything could repeat it; the exit code.
pub(super) fn secret_argument() -> ExitCode {
    err_line("error: ", ERROR, "A secret key does not belong on the command line, where others can read it.");
    err_line("fix: ", FIX, "Give the path of its file. If others may have seen the key, make a new one.");
    ExitCode::from(USAGE)
}

/// Shows the help if there are no arguments; the exit code.
pub(super) fn help() -> ExitCode {
    let help = Cli::command().render_long_help();
    drop(std::io::Write::write_all(&mut anstream::stderr().lock(), help.ansi().to_string().as_bytes()));
    ExitCode::from(USAGE)
}

/// The prefix of every secret key's text.
pub(super) const SECRET_MARK: &str = "cofferdam-secret-key:";

const ERROR: Style = AnsiColor::Red.on_default().bold();
const FIX: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// Shows an error on standard error: its envelope, or its text for people. The audit log has nothing under its id.
pub(super) fn show(ui: &Ui, error: &Error) {
    match error {
        error if ui.json() => show_envelope(&json!({"error": without_audit_id(error)}).to_string()),
        Error::Failure(failure) => show_failure(failure),
        // Nothing is wrong: it was asked for. But the hint may name the only key under which it is repeated.
        Error::Host(error) if error.kind() == HostErrorKind::Cancelled => {
            ui.note(error.message());
            show_fix(error.hint());
        }
        Error::Host(error) => show_host_error(ui, error),
    }
}

/// Returns the content of the envelope of an error that the audit log does not have: null for the id under which
/// nothing would be found.
pub(super) fn without_audit_id(error: &Error) -> Value {
    let mut error = envelope_content(error);
    if let Some(id) = error.get_mut("audit_id") {
        *id = Value::Null;
    }
    error
}

/// Returns the content of `error` in the envelope.
pub(super) fn envelope_content(error: &impl serde::Serialize) -> Value {
    // An envelope is strings and numbers: nothing in it can fail.
    let mut envelope = serde_json::to_value(error).unwrap_or_default();
    envelope.get_mut("error").map(Value::take).unwrap_or_default()
}

fn show_envelope(envelope: &str) {
    let mut err = anstream::stderr().lock();
    drop(std::io::Write::write_all(&mut err, (printable_json(envelope) + "\n").as_bytes()));
}

fn show_failure(failure: &Failure) {
    let suggestion = failure.details().get("suggestion").and_then(Value::as_str);
    match refused_arguments(failure) {
        Some(refusal) => {
            err_line("error: ", ERROR, &refusal);
            err_line("fix: ", FIX, "Change the arguments: the connector refuses the same call again.");
        }
        None => err_line("error: ", ERROR, &format!("{}: {}", failure.class().name(), failure.message())),
    }
    if let Some(fix) = suggestion.filter(|fix| !failure.message().contains(*fix)) {
        err_line("fix: ", FIX, fix);
    }
    let facts = [
        ("code", failure.code()),
        ("boundary", failure.boundary().name()),
        ("retriable", if failure.retriable() { "yes" } else { "no" }),
    ];
    show_facts(&facts);
    for line in detail_lines(failure.details()) {
        err_line(&line, DIM, "");
    }
    // Loading is the operator's own check: the causes have no data of a call.
    if failure.code() == "load_failed" {
        for cause in failure.operator_notes().iter().filter_map(|note| note.strip_prefix("cause: ")) {
            err_line("cause: ", DIM, cause);
        }
    }
}

/// On one line.
fn show_facts(facts: &[(&str, &str)]) {
    let facts: Vec<_> = facts.iter().map(|(label, fact)| format!("{label}: {fact}")).collect();
    err_line(&format!("  {}", facts.join("   ")), DIM, "");
}

fn show_host_error(ui: &Ui, error: &HostError) {
    let document = causes(error).find_map(|cause| {
        let boxed = cause.downcast_ref::<Box<DocumentError>>().map(|boxed| &**boxed);
        boxed.or_else(|| cause.downcast_ref::<DocumentError>())
    });
    match document {
        // Has more than the message: every problem, with its lines.
        Some(document) => {
            let mut err = anstream::stderr().lock();
            drop(std::io::Write::write_all(&mut err, (document.render(true) + "\n").as_bytes()));
        }
        None => {
            let mut lines = error.message().lines();
            err_line("error: ", ERROR, lines.next().unwrap_or_default());
            lines.for_each(|line| err_line("", Style::new(), line));
        }
    }
    // A document's own problems come with their fixes.
    let told = document.is_some_and(|document| {
        document.problems().iter().any(|problem| Some(problem.fix()) == error.hint())
    });
    show_fix(error.hint().filter(|_| !told));
    if ui.verbose() && document.is_none() {
        for cause in causes(error) {
            err_line("cause: ", DIM, &cause.to_string());
        }
    }
}

fn show_fix(hint: Option<&str>) {
    let mut fix = hint.into_iter().flat_map(str::lines);
    if let Some(first) = fix.next() {
        err_line("fix: ", FIX, first);
        fix.for_each(|line| err_line("", Style::new(), line));
    }
}

fn causes(error: &HostError) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| std::error::Error::source(*cause))
}

/// Longest line, in characters.
const LINE_CHARS: usize = 2_000;

/// A line of the simple facts, one of the circuit, and one for each candidate of a chain, which are indented, and safe
/// to print; without what is said elsewhere.
pub(super) fn detail_lines(details: &Map<String, Value>) -> Vec<String> {
    let simple: Vec<_> = details.iter().filter_map(|(key, value)| detail_fact(key, value)).collect();
    let simple = (!simple.is_empty()).then(|| simple.join("   "));
    let circuit = details.get("circuit").and_then(Value::as_object).map(circuit_line);
    let chain = details.get("chain").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let chain = chain.iter().filter_map(Value::as_object).zip(1..).map(|(entry, number)| {
        let word = |key| text(entry, key).unwrap_or_default();
        let attempts = match entry.get("attempts").and_then(Value::as_u64) {
            Some(0) | None => "not attempted".to_owned(),
            Some(1) => "1 attempt".to_owned(),
            Some(some) => format!("{some} attempts"),
        };
        let who = format!("`{}` of {}", word("op"), word("connector"));
        format!("{number}. {who}: {} ({attempts}): {}", word("code"), word("message"))
    });
    let indented = |depth: &str, line: &str| format!("{depth}{}", sanitize_line(line, LINE_CHARS));
    let facts = simple.into_iter().chain(circuit).map(|line| indented("  ", &line));
    facts.chain(chain.map(|line| indented("    ", &line))).collect()
}

/// A fact of the class.
fn detail_fact(key: &str, value: &Value) -> Option<String> {
    let said = ["code", "connector", "connector_hash", "op", "suggestion", "circuit", "chain"];
    match value {
        _ if said.contains(&key) => None,
        Value::Null => None,
        Value::String(text) => Some(format!("{key}: {text}")),
        other => Some(format!("{key}: {other}")),
    }
}

/// Its state, why, since when, and until when.
fn circuit_line(circuit: &Map<String, Value>) -> String {
    let word = |key| text(circuit, key).unwrap_or_default();
    let state = match word("state") {
        "half_open" => "half-open: another call is trying the host",
        state => state,
    };
    let until = match circuit.get("retry_after_ms").and_then(Value::as_u64) {
        Some(ms) => format!("tried again in {} s", ms.div_ceil(1000)),
        None => "for good".to_owned(),
    };
    let (cause, seen_by, since) = (word("cause_code"), word("cause_audit_id"), word("opened_at"));
    format!("circuit: {state}, because of {cause} (seen by {seen_by}), since {since}, {until}")
}

fn text<'v>(of: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
    of.get(key).and_then(Value::as_str)
}
