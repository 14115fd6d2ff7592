//! `action list`: the actions that are kept.

use serde::Serialize;
use serde_json::Value;

use crate::cli::page::Page;
use crate::cli::report::Stop;
use crate::cli::session::Session;
use crate::flow::ShelvedAction;

const EXAMPLES: &str = "\
Examples:
  cofferdam action list
  cofferdam action list --format json";

/// Lists the actions that are kept.
///
/// Their files are read; whether they fit what is installed is for `cofferdam action check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {}

/// One action; of a file that cannot be read, why.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// What stands under `error` in the envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(skip)]
    shown: String,
}

pub(super) fn run(Args {}: &Args, session: &Session<'_>) -> Result<(), Stop> {
    let lines: Vec<_> = session.host()?.actions()?.into_iter().map(line).collect();
    session.ui.result(&lines, || {
        let mut page = Page::default();
        if !lines.is_empty() {
            let row = |line: &Line| {
                let number = |number: Option<usize>| number.map(|it| it.to_string()).unwrap_or_default();
                [
                    line.name.clone(),
                    line.version.clone().unwrap_or_default(),
                    number(line.steps),
                    line.shown.clone(),
                ]
            };
            page.table(["ACTION", "VERSION", "STEPS", "DOES"], lines.iter().map(row).collect());
        }
        page
    })?;
    match lines.iter().filter(|line| line.error.is_some()).count() {
        _ if lines.is_empty() => {
            session.ui.note("No action is kept. `cofferdam action add FILE` adds one.");
        }
        0 => {}
        _ => session.ui.note("Not all of them can be read; all that is wrong: cofferdam action check"),
    }
    Ok(())
}

fn line(ShelvedAction { name, action }: ShelvedAction) -> Line {
    match action {
        Ok(action) => Line {
            name,
            version: Some(action.version().to_string()),
            description: Some(action.description().to_owned()),
            steps: Some(action.steps().len()),
            hash: Some(format!("sha256:{}", action.hash())),
            error: None,
            shown: crate::failure::safe_line(action.title().unwrap_or(action.description()), 70),
        },
        Err(error) => Line {
            name,
            version: None,
            description: None,
            steps: None,
            hash: None,
            shown: format!("cannot be read: {}", error.message()),
            // An envelope is strings and numbers: nothing in it can fail.
            error: serde_json::to_value(&error).ok().and_then(|mut it| it.get_mut("error").map(Value::take)),
        },
    }
}
