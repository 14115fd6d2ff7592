//! `action check`: actions held against what is installed, with every problem in its line.

use std::path::Path;
use std::sync::Arc;

use cofferdam_core::document::DocumentError;
use cofferdam_core::error::{Error, HostError};
use cofferdam_model::action::Action;
use cofferdam_runtime::flow::CheckedAction;
use cofferdam_runtime::host::Host;
use serde::Serialize;
use serde_json::Value;

use super::add::read;
use crate::exit_codes::exit_code;
use crate::layout::{Page, TextStyle};
use crate::report::{self, CommandError, exit_after};
use crate::session::Session;
use crate::{progress, runtime};

const EXAMPLES: &str = "\
All problems are reported at once, each with its line, its key and what to do. Nothing runs, and \
nothing is changed. The exit code is that of the first action that does not fit.

Examples:
  cofferdam action check
  cofferdam action check ship-update
  cofferdam action check ./ship-update.md --format json";

/// Checks actions against the connectors that are installed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files (with a `/` or the ending .md, or - for standard input), or names of actions that are kept [default: all
    /// that are kept].
    #[arg(value_name = "FILE|NAME")]
    actions: Vec<String>,
}

/// One action's result.
#[derive(Debug, Serialize)]
struct ActionCheck {
    action: String,
    ok: bool,
    /// The content of `error` in the envelope; its `details` have every problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let wanted = match args.actions.is_empty() {
        true => host.actions()?.into_iter().map(|shelved| shelved.name).collect(),
        false => args.actions.clone(),
    };
    let mut first_failure = None;
    let checked = runtime::block_on(async {
        let mut checked = Vec::new();
        for text in &wanted {
            let what = format!("checking {text}");
            let outcome = progress::during(session.ui, &what, check(&host, text)).await.map_err(Error::Host);
            if let Err(error) = &outcome {
                first_failure.get_or_insert(exit_code(error));
                if !session.ui.json() {
                    report::show(session.ui, error);
                }
            }
            checked.push(ActionCheck {
                action: text.clone(),
                ok: outcome.is_ok(),
                error: outcome.as_ref().err().map(report::envelope_content),
            });
        }
        Ok(checked)
    })?;
    let printed = session.ui.result(&checked, |it| page(&checked, it));
    if checked.is_empty() {
        session.ui.note("No action is kept.");
    }
    exit_after(printed, first_failure)
}

async fn check(host: &Host, text: &str) -> Result<CheckedAction, HostError> {
    let is_file = text == "-" || text.contains('/') || (text.ends_with(".md") && Path::new(text).exists());
    let action = if is_file {
        let (label, bytes) = read(Path::new(text))?;
        Arc::new(Action::parse(&label, &bytes).map_err(DocumentError::into_host_error)?)
    } else {
        host.action(text.strip_suffix(".md").unwrap_or(text))?
    };
    host.check_action(action).await
}

fn page(checked: &[ActionCheck], page: &mut Page) {
    for ActionCheck { action, ok, .. } in checked {
        match ok {
            true => page.styled_field("ok", TextStyle::Good, action),
            false => page.styled_field("NOT OK", TextStyle::Bad, action),
        };
    }
}
