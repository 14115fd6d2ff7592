//! Renders the outcome of an action for an agent: the values of its steps, or the error and the steps that are
//! done.

use cofferdam_core::error::Error;
use serde_json::{Map, Value};

use super::RenderedAnswer;
use super::error;
use super::value::ShownValue;
use super::value::{self, ValueFacts};
use crate::call::Report;
use crate::flow::{ActionReport, ActionValue, RepeatAdvice};

/// Renders the value of the action `name` as `{"action", "output", "steps"}`. At most `limit` bytes of it are
/// shown.
#[must_use]
pub fn action_value(name: &str, answer: &ActionValue, report: &ActionReport, limit: usize) -> RenderedAnswer {
    let mut about = ValueFacts {
        action: name,
        from: connectors(report),
        before: String::new(),
        after: String::new(),
        facts: Map::new(),
        audit_id: report.audit_id.as_str(),
    };
    let mut partial = Map::new();
    for (id, missing) in &report.partial {
        partial.insert(id.clone(), (*missing).into());
        about.lacks(Some(id), answer.steps.get(id), missing_parts_of_step(id, answer, report));
    }
    for step in &report.steps {
        let Some(last) = step.report.as_ref().and_then(|report| report.answered_instead()) else { continue };
        let (id, number, op, connector) = (&step.id, last.candidate, &last.op, &last.connector);
        about.after.push_str(&format!("\nanswered_by: in step {id} fallback {number}, {op} of {connector}"));
    }
    if !partial.is_empty() {
        about.facts.insert("partial".into(), partial.into());
    }
    about.replays(report.replayed.as_ref().map(|of| of.as_str()));
    let shown = serde_json::to_string(answer).ok().and_then(|json| ShownValue::new(&json, limit));
    about.rendered(shown, |value| match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    })
}

/// Returns the [missing parts](value::missing_parts) of a step's partial value.
#[must_use]
pub fn missing_parts_of_step(step: &str, answer: &ActionValue, report: &ActionReport) -> (u64, Vec<String>) {
    let call = report.steps.iter().find(|of| *of.id == *step).and_then(|of| of.report.as_ref());
    let value = answer.steps.get(step).unwrap_or(&Value::Null);
    let missing = report.partial.get(step).copied().unwrap_or(0);
    value::missing_parts(value, missing, call.map(Report::aborted_on_return).unwrap_or_default())
}

/// Returns the connectors that returned the values of its steps, or the action itself if it was replayed.
fn connectors(report: &ActionReport) -> Vec<String> {
    let mut connectors: Vec<String> = Vec::new();
    for attempt in report.steps.iter().filter_map(|step| step.report.as_ref()?.attempts.last()) {
        if !connectors.iter().any(|known| **known == *attempt.connector) {
            connectors.push(attempt.connector.to_string());
        }
    }
    if connectors.is_empty() {
        connectors.push(report.action.to_string());
    }
    connectors
}

/// Renders the error that ended the action `name`, and the steps that are done nevertheless.
///
/// The structure is the envelope of that error, as that [of the whole action](ActionReport::apply_to).
#[must_use]
pub fn action_error(name: &str, why: &Error, report: &ActionReport) -> RenderedAnswer {
    let again = report.repeat_advice();
    let mut rendered = match why {
        Error::Host(error) if report.has_begun() => error::render_interrupted(name, error, again),
        why if again == RepeatAdvice::AskFirst => error::render_final_error(name, why),
        why => error::render_action_error(name, why),
    };
    // This includes errors that the operator fixes, whose own details the agent does not see.
    if let Some(error) = rendered.structured.get_mut("error") {
        report.apply_to(why, error);
    }
    // Insert the line after the hint and before the audit id.
    let mut add = |line: &str| {
        let at = rendered.text.rfind('\n').unwrap_or(rendered.text.len());
        rendered.text.insert_str(at, &format!("\n{line}"));
    };
    if let Some(of) = report.ended_in().and_then(|step| step.report.as_ref()?.replayed.as_ref()) {
        add(&format!(
            "replayed: the failure of {of}, which stands under this key; nothing was asked again. Another key runs all \
             steps again: ask before you give one."
        ));
    }
    if let Some(line) = done(report) {
        add(&line);
    }
    rendered
}

/// Lists the steps that are done, and the consequence for a retry. None if no step was begun.
fn done(report: &ActionReport) -> Option<String> {
    if !report.has_begun() {
        return None;
    }
    let done: Vec<_> = report.done().map(|step| format!("'{}'", step.id)).collect();
    let ended = report.ended_in().map(|step| format!("It ended in step '{}'. ", step.id));
    let before = match done.is_empty() {
        true if report.ended_in().is_some_and(|step| step.is_undecided) => {
            "What was done under its key is not known.".to_owned()
        }
        true => "No step is done.".to_owned(),
        false => format!("Done before, and not undone: {}.", done.join(", ")),
    };
    let again = report.repeat_hint().map(|hint| format!(" {hint}")).unwrap_or_default();
    Some(format!("{}{before}{again}", ended.unwrap_or_default()))
}
