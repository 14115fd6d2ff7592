//! A value, with what has to be said of it: that items of it failed, or that another connector gave it.

use serde_json::{Map, Value, json};

use super::Rendered;
use super::error::named;
use crate::call::{AttemptOutcome, Report};
use crate::failure::{printable_json, safe_line};

/// Items that failed of which an agent is told one by one; the value has all of them.
const ITEMS: usize = 20;

/// Longest word or sentence of a connector in what an agent is told of an item, in characters.
const ITEM_CHARS: usize = 200;

/// Tells an agent the value of `action`, as JSON.
#[must_use]
pub fn value(action: &str, value: &Value, report: &Report) -> Rendered {
    let mut text = String::new();
    let mut structured = Map::from_iter([("value".to_owned(), value.clone())]);
    if let Some(failed) = report.partial {
        structured.insert("partial".into(), failed.into());
        let aborted = report.aborted_on_return();
        let items_failed = failed.saturating_sub(aborted.len() as u64);
        if items_failed > 0 {
            text.push_str(&format!(
                "Action '{}' answered in part: {items_failed} of its items failed.\n",
                named(action)
            ));
            for line in items(value) {
                text.push_str(&format!("- {line}\n"));
            }
        }
        if !aborted.is_empty() {
            structured.insert("aborted_on_return".into(), json!(aborted));
            text.push_str(&format!(
                "Action '{}' answered while requests of it were under way.\n",
                named(action)
            ));
            for request in aborted {
                text.push_str(&format!("- {}\n", safe_line(&request.to_string(), ITEM_CHARS)));
            }
        }
    }
    // The same value, with what could drive a terminal or hide in a text spelt out.
    text.push_str(&printable_json(&value.to_string()));
    if let Some(last) = report.answered_instead() {
        let failed = report.attempts.iter().rfind(|attempt| attempt.candidate < last.candidate);
        let class = failed.and_then(|attempt| match &attempt.outcome {
            Some(AttemptOutcome::Failure { class, .. }) => Some(class.name()),
            _ => None,
        });
        let instead_of = failed.map(|attempt| &*attempt.connector);
        structured.insert(
            "answered_by".into(),
            json!({"candidate": last.candidate, "connector": &*last.connector, "op": &*last.op, "instead_of": instead_of, "class": class}),
        );
        let why = instead_of.zip(class).map(|(from, class)| format!(" ({from} failed: {class})"));
        let (number, op, connector) = (last.candidate, &last.op, &last.connector);
        text.push_str(&format!(
            "\nanswered_by: alternate {number}, {op} of {connector}{}",
            why.unwrap_or_default()
        ));
    }
    if let Some(of) = &report.replayed {
        structured.insert("replayed".into(), of.as_str().into());
        text.push_str(&format!(
            "\nreplayed: the outcome of {of}, which was asked for with the same key; nothing was run"
        ));
    }
    Rendered { text, structured: Value::Object(structured), is_error: false }
}

/// What failed, a line for each item: its class and code where it has them, and what it says.
pub(super) fn items(value: &Value) -> Vec<String> {
    let errors = value.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<_> = errors.iter().take(ITEMS).map(item).collect();
    if let more @ 1.. = errors.len().saturating_sub(ITEMS) {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn item(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str).map(|text| safe_line(text, ITEM_CHARS));
    let words: Vec<_> = ["class", "code"].into_iter().filter_map(text).collect();
    let said = text("message").or_else(|| error.as_str().map(|text| safe_line(text, ITEM_CHARS)));
    match (words.is_empty(), said) {
        (false, Some(said)) => format!("{}: {said}", words.join(", ")),
        (false, None) => words.join(", "),
        (true, Some(said)) => said,
        (true, None) => "an item that says no more".to_owned(),
    }
}
