//! The output of `dev`: builds, calls with their requests and log lines, and use against the limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use cofferdam_core::error::Error;
use cofferdam_core::event::recorded::{AttemptEnded, RecordedRequest, RecordedUsage};
use cofferdam_core::failure::{AuditId, printable_json};
use cofferdam_core::trace::AttemptTrace;
use cofferdam_model::package::Package;
use cofferdam_runtime::agent::refused_arguments;
use cofferdam_runtime::call::CallResult;
use cofferdam_runtime::host::Host;
use serde::Serialize;
use serde_json::{Map, Value};

use super::prompt::SharedPrinter;
use crate::answer::{self, OutcomeFields};
use crate::commands::audit;
use crate::files;
use crate::layout::{bytes, printable_line};
use crate::report::{self, CommandError};
use crate::ui::{Ui, err_line};

/// The longest line that is printed, in characters.
const LINE_CHARS: usize = 8_000;

/// The waits for the recorded end of a call.
const RECORDED_TRIES: usize = 100;
const RECORDED_WAIT: Duration = Duration::from_millis(10);

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// The highest use of the limits so far, in percent.
#[derive(Debug, Default, Clone, Copy)]
struct HighestUse {
    fuel: u64,
    memory: u64,
    wall_time: u64,
}

/// Prints for people, above the line that is being typed, or for programs.
pub(super) struct Display {
    ui: Ui,
    terminal: Terminal,
    highest: HighestUse,
    /// True if standard output belongs to a protocol.
    is_silent: bool,
}

/// Prints lines on the terminal: through the line editor if there is one.
#[derive(Clone)]
pub(super) struct Terminal {
    printer: Option<SharedPrinter>,
    is_shown: bool,
}

impl Terminal {
    /// Prints a line as it is.
    pub(super) fn raw(&self, text: &str) {
        self.styled(Style::new(), text);
    }

    fn styled(&self, style: Style, text: &str) {
        if !self.is_shown {
            return;
        }
        let printed = self.printer.as_ref().is_some_and(|printer| {
            let mut printer = printer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            printer.print(format!("{style}{text}{style:#}\n")).is_ok()
        });
        // The line editor has ended, or there is none.
        if !printed {
            err_line("", style, text);
        }
    }

    /// Returns `ui`, without progress on a terminal where a line is being typed.
    pub(super) fn ui(&self, ui: &Ui) -> Ui {
        if self.printer.is_some() { Ui::silent() } else { ui.clone() }
    }

    /// Returns cargo's `--color` for its messages here.
    pub(super) fn cargo_color(&self) -> &'static str {
        if self.printer.is_some() { "always" } else { "auto" }
    }
}

/// A build, for programs.
#[derive(Serialize)]
struct BuildLine<'a> {
    event: &'static str,
    connector: String,
    hash: String,
    milliseconds: u64,
    operations: Vec<&'a str>,
}

/// A call, for programs.
#[derive(Serialize)]
struct CallLine<'a> {
    event: &'static str,
    operation: &'a str,
    #[serde(flatten)]
    outcome: OutcomeFields<'a, Value>,
    audit_id: &'a str,
    attempts: Vec<AttemptEnded<'static>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<&'a str>,
}

impl Display {
    /// Prints with `ui`; through `printer` if a line editor reads the terminal.
    pub(super) fn new(ui: Ui, printer: Option<SharedPrinter>) -> Self {
        let terminal = Terminal { printer, is_shown: ui.shows_notes() };
        Self { ui, terminal, highest: HighestUse::default(), is_silent: false }
    }

    /// Leaves standard output to a protocol.
    pub(super) fn beside_a_protocol(mut self) -> Self {
        self.is_silent = true;
        self
    }

    /// Returns whether results are lines of JSON on standard output.
    fn is_json(&self) -> bool {
        self.ui.json() && !self.is_silent
    }

    /// Returns where the messages of compilers go.
    pub(super) fn terminal(&self) -> Terminal {
        self.terminal.clone()
    }

    /// Tells the developer what goes on.
    pub(super) fn note(&self, text: &str) {
        self.line(DIM, text);
    }

    /// Tells the developer what is wrong with a line.
    pub(super) fn error(&self, text: &str) {
        self.line(BAD, text);
    }

    /// Explains the input.
    pub(super) fn help(&self) {
        for line in [
            "OPERATION {\"name\": \"Ada\"}      calls it with these arguments",
            "OPERATION name=Ada times=3      the same, in pairs",
            "OPERATION ... --key K           under an idempotency key",
            "OPERATION ... --trace FILE      writes a trace, for `cofferdam trace show FILE`",
            "quit                            ends, as Ctrl-D does; Ctrl-C cancels the calls that run, or ends",
        ] {
            self.line(Style::new(), line);
        }
    }

    /// Tells that sources changed and a build begins.
    pub(super) fn changed(&self, dir: &Path, paths: &[PathBuf]) {
        let first = paths.first().map(|path| files::shown(path.strip_prefix(dir).unwrap_or(path)));
        let first = first.unwrap_or_default();
        let more = match paths.len() {
            0 | 1 => String::new(),
            all => format!(" and {} more", all.saturating_sub(1)),
        };
        self.note(&format!("{first}{more} changed, building"));
    }

    /// Shows a build that can be called now.
    pub(super) fn ready(&self, package: &Package, took: Duration) -> Result<(), CommandError> {
        let manifest = package.manifest();
        let connector = format!("{}@{}", manifest.name(), manifest.version());
        if self.is_json() {
            return self.ui.line_of_json(&BuildLine {
                event: "built",
                connector,
                hash: format!("sha256:{}", package.digest()),
                milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                operations: package.operations().iter().map(|it| it.name().json()).collect(),
            });
        }
        self.line(GOOD, &format!("{connector} is ready, after {:.1} s", took.as_secs_f64()));
        for operation in package.operations() {
            self.line(DIM, &format!("  {operation}"));
        }
        Ok(())
    }

    /// Shows a build that failed.
    pub(super) fn not_built(&self, error: &Error, has_earlier: bool) -> Result<(), CommandError> {
        if self.is_json() {
            return self.ui.line_of_json(&Map::from_iter([
                ("event".to_owned(), Value::from("not_built")),
                ("error".to_owned(), report::without_audit_id(error)),
            ]));
        }
        self.failure(error);
        if has_earlier {
            self.note("calls go to the build before");
        }
        Ok(())
    }

    /// Shows a call that has ended.
    pub(super) fn ended(
        &mut self,
        host: &Host,
        operation: &str,
        result: &CallResult,
        traces: &[AttemptTrace],
    ) -> Result<(), CommandError> {
        let CallResult { outcome, report } = result;
        let (stdout, stderr) =
            traces.last().map_or((None, None), |it| (it.stdout.as_deref(), it.stderr.as_deref()));
        let attempts = audit::attempts_of(host, &report.audit_id)?;
        if self.is_json() {
            return self.ui.line_of_json(&CallLine {
                event: "call",
                operation,
                outcome: outcome.into(),
                audit_id: report.audit_id.as_str(),
                attempts,
                stdout,
                stderr,
            });
        }
        self.attempts(&attempts);
        answer::note_replayed(&self.ui, report.replayed.as_ref());
        let ending = report.operator_view().map(answer::ending_lines).unwrap_or_default();
        // The failure of a guest that was ended includes its output.
        let stderr = stderr.filter(|_| ending.is_empty());
        for (stream, text) in [("stdout", stdout), ("stderr", stderr)] {
            for line in text.into_iter().flat_map(str::lines) {
                self.line(DIM, &format!("  {stream}: {line}"));
            }
        }
        ending.iter().for_each(|line| self.line(Style::new(), line));
        match outcome {
            Ok(value) if self.terminal.printer.is_none() => self.ui.value(value)?,
            Ok(value) => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                self.terminal.raw(&printable_json(&text));
            }
            Err(error) => self.failure(error),
        }
        Ok(())
    }

    /// Shows a call of a client, from the audit log. Calls that were typed have their own display.
    pub(super) async fn recorded(&mut self, host: &Host, id: &AuditId) -> Result<(), CommandError> {
        // Its last event comes shortly before its end is recorded.
        for _ in 0..RECORDED_TRIES {
            let Some(call) = audit::ended_call(host, id)? else {
                tokio::time::sleep(RECORDED_WAIT).await;
                continue;
            };
            if call.actor == super::ACTOR {
                return Ok(());
            }
            let style = if call.is_good { GOOD } else { BAD };
            let why = if call.why.is_empty() { String::new() } else { format!(" {}", call.why) };
            self.line(style, &format!("{} by {}: {}{why}", call.operation, call.actor, call.status));
            let attempts = audit::attempts_of(host, id)?;
            self.attempts(&attempts);
            return Ok(());
        }
        Ok(())
    }

    fn attempts(&mut self, attempts: &[AttemptEnded<'_>]) {
        for attempt in attempts {
            if attempts.len() > 1 {
                self.note(&format!("attempt {}", attempt.attempt));
            }
            attempt.requests.iter().for_each(|request| self.request(request));
            for line in &attempt.log {
                self.line(DIM, &format!("  {:<5} {}", line.level, line.text));
            }
            self.usage(&attempt.usage);
        }
    }

    fn request(&self, request: &RecordedRequest<'_>) {
        let status = request.status.map(|status| status.to_string());
        let failure = request.code.as_deref().map(str::to_owned);
        let result = [status, failure].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let style = match request.status {
            Some(status) if status < 400 => GOOD,
            _ => BAD,
        };
        let mut notes = vec![format!("{} ms", request.ms), bytes(request.bytes_received)];
        if request.keyed {
            notes.push("with the call's key".to_owned());
        }
        notes.extend(request.bindings.iter().map(|binding| format!("with {binding}")));
        let (method, host, path) = (&request.method, &request.host, &request.path);
        self.line(style, &format!("  {method} {host}{path} -> {result} ({})", notes.join(", ")));
    }

    fn usage(&mut self, usage: &RecordedUsage) {
        let percent = |used: u64, limit: u64| used.saturating_mul(100).checked_div(limit).unwrap_or(0);
        let wall = usage.wall_us / 1_000;
        let now = HighestUse {
            fuel: percent(usage.fuel, usage.fuel_limit),
            memory: percent(usage.memory_bytes, usage.memory_limit_bytes),
            wall_time: percent(wall, usage.wall_limit_ms),
        };
        let HighestUse { fuel, memory, wall_time } = &mut self.highest;
        *fuel = now.fuel.max(*fuel);
        *memory = now.memory.max(*memory);
        *wall_time = now.wall_time.max(*wall_time);
        let text = format!(
            "  fuel {} % (highest {fuel} %), memory {} % ({memory} %), wall time {wall} ms, {} % ({wall_time} %)",
            now.fuel, now.memory, now.wall_time
        );
        self.note(&text);
    }

    fn failure(&self, error: &Error) {
        let (code, hint) = match error {
            Error::Failure(failure) => (format!("{}.{}", failure.class().name(), failure.code()), None),
            Error::Host(error) => (error.kind().code().to_owned(), error.hint().map(str::to_owned)),
        };
        let message = match error {
            Error::Failure(failure) => {
                refused_arguments(failure).unwrap_or_else(|| failure.message().to_owned())
            }
            Error::Host(error) => error.message().to_owned(),
        };
        self.line(BAD, &format!("{code}: {message}"));
        if let Error::Failure(failure) = error {
            report::detail_lines(failure.details()).iter().for_each(|line| self.line(DIM, line));
        }
        if let Some(hint) = hint {
            hint.lines().for_each(|line| self.line(Style::new(), &format!("  {line}")));
        }
    }

    fn line(&self, style: Style, text: &str) {
        self.terminal.styled(style, &printable_line(text, LINE_CHARS));
    }
}
