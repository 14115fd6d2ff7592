//! Printing the answers of calls and actions: for people, as JSON, and as the tool message of agents' protocols.

use cofferdam_core::error::Error;
use cofferdam_core::failure::{AuditId, printable_json};
use cofferdam_runtime::agent::{self, RenderedAnswer};
use cofferdam_runtime::call::Report;
use cofferdam_runtime::flow::{ActionReport, ActionValue};
use serde::Serialize;
use serde_json::{Map, Value};

use super::exit_codes::exit_code;
use super::report::{CommandError, exit_after};
use super::ui::Ui;

/// The value or the envelope of an outcome, as fields of a line of JSON.
#[derive(Serialize)]
pub(super) struct OutcomeFields<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a T>,
    #[serde(flatten)]
    error: Option<&'a Error>,
}

impl<'a, T> From<&'a Result<T, Error>> for OutcomeFields<'a, T> {
    fn from(outcome: &'a Result<T, Error>) -> Self {
        Self { value: outcome.as_ref().ok(), error: outcome.as_ref().err() }
    }
}

/// Ends a command whose value was printed. An error becomes the tool message, or with `--format json` the answer on
/// standard output, as the value would have been.
pub(super) fn finish(
    ui: &Ui,
    tool: Option<&ToolResult>,
    outcome: Result<(), CommandError>,
) -> Result<(), CommandError> {
    match (outcome, tool) {
        (Err(stop), Some(tool)) => {
            let error = stop.into_error()?;
            exit_after(tool.print(ui, &agent::error(&tool.action, &error)), Some(exit_code(&error)))
        }
        (Err(stop), None) if ui.json() => {
            let error = stop.into_error()?;
            exit_after(ui.line_of_json(&error), Some(exit_code(&error)))
        }
        (outcome, _) => outcome,
    }
}

/// Prints the note that the outcome is the one of an earlier call.
pub(super) fn note_replayed(ui: &Ui, replayed: Option<&AuditId>) {
    if let Some(of) = replayed {
        ui.note(&format!("replayed: the outcome of {of}, with the same idempotency key; nothing was run"));
    }
}

/// Warns of the [missing parts](agent::missing_parts) of this partial value.
pub(super) fn warn_of_missing(ui: &Ui, value: &str, (items, aborted): (u64, Vec<String>)) {
    let failed = (items > 0).then(|| format!("{items} of its items failed; its `errors` says which"));
    for part in failed.into_iter().chain(aborted) {
        ui.warn(&format!("{value} is partial: {part}"));
    }
}

/// Prints the operator's view of a failure on standard error: the guest's output, and with `debug` all of it.
pub(super) fn print_operator_view(ui: &Ui, view: &Map<String, Value>, debug: bool) {
    ending_lines(view).iter().for_each(|line| ui.note(line));
    if debug {
        detail_lines(view).iter().for_each(|line| ui.note(&format!("debug: {line}")));
    }
}

/// Returns what the guest wrote on standard error before it was ended, a panic's message or a traceback: line by line, each
/// marked as the guest's; and the functions that it was in, if they are known. A failure that the guest reports itself is
/// not repeated.
pub(super) fn ending_lines(view: &Map<String, Value>) -> Vec<String> {
    let text = |name: &str| view.get(name).and_then(Value::as_str);
    let ended =
        matches!(text("code"), Some("trap" | "exit")) || text("class") == Some("resource_limit_exceeded");
    let lines = text("stderr").filter(|_| ended).into_iter().flat_map(str::lines);
    let frames = view.get("frames").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let lines = lines.map(|line| format!("connector: {line}"));
    lines.chain(frames.map(|frame| format!("  in {frame}"))).collect()
}

/// The lines: each field and what it says, texts as they are but for what could drive a terminal.
fn detail_lines(view: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in view {
        match value {
            Value::Array(items) => items.iter().for_each(|item| lines.push(line(name, item))),
            Value::Object(fields) => {
                fields.iter().for_each(|(field, value)| lines.push(line(&format!("{name}.{field}"), value)));
            }
            value => lines.push(line(name, value)),
        }
    }
    lines
}

fn line(name: &str, value: &Value) -> String {
    format!("{name}: {}", printable_json(&value.to_string()))
}

/// The answer to one call of a tool.
pub(super) struct ToolResult {
    id: Option<String>,
    action: String,
}

#[derive(Serialize)]
struct ToolMessage<'a> {
    tool_call_id: Option<&'a str>,
    role: &'static str,
    content: &'a str,
}

impl ToolResult {
    /// The answer to the call with this id, which may be empty, of this action or operation.
    pub(super) fn new(id: String, action: &str) -> Self {
        Self { id: Some(id).filter(|id| !id.is_empty()), action: action.to_owned() }
    }

    /// Prints a value.
    pub(super) fn value(
        &self,
        ui: &Ui,
        connector: &str,
        json: &str,
        report: &Report,
    ) -> Result<(), CommandError> {
        self.print(ui, &agent::value(&self.action, connector, json, report, agent::VALUE_BYTES))
    }

    /// Prints what came of an action.
    pub(super) fn action(
        &self,
        ui: &Ui,
        outcome: &Result<ActionValue, Error>,
        report: &ActionReport,
    ) -> Result<(), CommandError> {
        match outcome {
            Ok(value) => {
                self.print(ui, &agent::action_value(&self.action, value, report, agent::VALUE_BYTES))
            }
            Err(error) => exit_after(
                self.print(ui, &agent::action_error(&self.action, error, report)),
                Some(exit_code(error)),
            ),
        }
    }

    fn print(&self, ui: &Ui, rendered: &RenderedAnswer) -> Result<(), CommandError> {
        let content = rendered.text();
        ui.line_of_json(&ToolMessage { tool_call_id: self.id.as_deref(), role: "tool", content })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_text_drives_no_terminal() {
        let view =
            json!({"class": "a", "chain": ["one", "two\u{1b}[31m\n"], "details": {"code": "b"}, "none": []});
        let lines = view.as_object().map(super::detail_lines).unwrap_or_default();
        assert_eq!(
            lines,
            ["class: \"a\"", "chain: \"one\"", "chain: \"two\\u001b[31m\\n\"", "details.code: \"b\""]
        );
    }
}
