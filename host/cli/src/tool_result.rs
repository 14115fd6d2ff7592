//! What an agent would be told of a call, as the message of a tool that agents' protocols have.

use cofferdam_core::error::Error;
use cofferdam_runtime::agent::{self, RenderedAnswer};
use cofferdam_runtime::call::Report;
use cofferdam_runtime::flow::{ActionReport, ActionValue};
use serde::Serialize;

use super::report::{CommandError, exit_code};
use super::ui::Ui;

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
            Err(error) => {
                self.print(ui, &agent::action_error(&self.action, error, report))?;
                Err(CommandError::Shown(exit_code(error)))
            }
        }
    }

    /// Prints what came in the place of a value, if that did; what ends the command stays what it was.
    pub(super) fn ended(&self, ui: &Ui, outcome: Result<(), CommandError>) -> Result<(), CommandError> {
        let Err(stop) = outcome else { return Ok(()) };
        let error = stop.into_error()?;
        self.print(ui, &agent::error(&self.action, &error))?;
        Err(CommandError::Shown(exit_code(&error)))
    }

    fn print(&self, ui: &Ui, rendered: &RenderedAnswer) -> Result<(), CommandError> {
        let content = rendered.text();
        ui.line_of_json(&ToolMessage { tool_call_id: self.id.as_deref(), role: "tool", content })
    }
}
