//! `action list`: the actions that are kept.

use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::flow::{ListedAction, Readiness};
use serde::Serialize;
use serde_json::Value;

use crate::report::{CommandError, envelope_content};
use crate::session::Session;

const EXAMPLES: &str = "\
Examples:
  cofferdam action list
  cofferdam action list --format json";

/// Lists the actions that are kept, and whether they can run.
///
/// Each is held against what is installed, as `cofferdam action check` does, but nothing is compiled. Bindings are not
/// looked at: `cofferdam run --dry-run` does that.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

/// One action; where it cannot run, why.
#[derive(Debug, Serialize)]
struct ActionLine {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// The readiness to run, as one word.
    readiness: Readiness,
    /// The content of `error` in the envelope; its `details` have every problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(skip)]
    shown: String,
}

pub(super) fn run(Args {}: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let lines: Vec<_> = session.host()?.listed_actions()?.into_iter().map(line).collect();
    session.ui.result(&lines, |page| {
        if !lines.is_empty() {
            let row = |line: &ActionLine| {
                let number = |number: Option<usize>| number.map(|it| it.to_string()).unwrap_or_default();
                [
                    line.name.clone(),
                    line.version.clone().unwrap_or_default(),
                    number(line.steps),
                    match line.readiness {
                        Readiness::Ready => "yes".to_owned(),
                        readiness => readiness.name().replace('_', " "),
                    },
                    line.shown.clone(),
                ]
            };
            page.table(["ACTION", "VERSION", "STEPS", "READY", "DOES"], lines.iter().map(row).collect());
        }
    })?;
    match lines.iter().filter(|line| line.error.is_some()).count() {
        _ if lines.is_empty() => {
            session.ui.note("No action is kept. `cofferdam action add FILE` adds one.");
        }
        0 => {}
        _ => {
            session.ui.note("Not all of them can run; what is wrong, and what to do: cofferdam action check")
        }
    }
    Ok(())
}

fn line(ListedAction { name, action, readiness, problem, .. }: ListedAction) -> ActionLine {
    let shown = match (&action, &problem) {
        (Some(action), _) => sanitize_line(action.title().unwrap_or(action.description()), 70),
        (None, Some(error)) => format!("cannot be read: {}", error.message()),
        (None, None) => String::new(),
    };
    let of = action.as_deref();
    ActionLine {
        name,
        version: of.map(|action| action.version().to_string()),
        description: of.map(|action| action.description().to_owned()),
        steps: of.map(|action| action.steps().len()),
        hash: of.map(|action| format!("sha256:{}", action.hash())),
        readiness,
        error: problem.as_ref().map(envelope_content),
        shown,
    }
}
