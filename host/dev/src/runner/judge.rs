//! Compares a run with what its scenario expects.

use std::time::Duration;

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::{Failure, sanitize_line};
use cofferdam_runtime::call::Report;
use serde_json::Value;

use super::report::{CallSummary, Problem, ProblemKind, ScenarioReport};
use super::{Execution, FinishedCall};
use crate::scenario::{
    Difference, ErrorPattern, ExpectedOutcome, FailurePattern, Scenario, ScenarioCall, ServiceStep,
};
use crate::service::{UnexpectedRequest, url_of};

/// The longest line of a note, in characters.
const NOTE_CHARS: usize = 500;

/// Returns the report of a run.
pub(super) fn judge(scenario: &Scenario, execution: &Execution, took: Duration) -> ScenarioReport {
    let Execution { calls, end } = execution;
    let mut problems = Vec::new();
    for unexpected in &end.unexpected {
        problems.push(unexpected_request(scenario, unexpected));
    }
    for (at, (expected, call)) in scenario.calls.iter().zip(calls).enumerate() {
        // A call with a request that nothing expects was cancelled for that.
        if !end.unexpected.iter().any(|unexpected| unexpected.call == at) {
            judge_call(expected, call, &mut problems);
        }
    }
    // After a request that nothing expects, the others had no chance to come.
    if end.unexpected.is_empty() {
        for (at, served) in &end.unserved {
            problems.extend(scenario.service.get(*at).map(|step| missing_request(step, *served)));
        }
    }
    let summaries =
        scenario.calls.iter().zip(calls).map(|(expected, call)| summary(expected, call)).collect();
    ScenarioReport::new(scenario, took, summaries, end.requests.len(), problems)
}

/// Returns a request as it is expected, in a few words.
pub(crate) fn shown_request(step: &ServiceStep) -> String {
    let request = &step.request;
    format!("{} {}{}", request.method, url_of(&request.host), request.path.source())
}

fn unexpected_request(scenario: &Scenario, unexpected: &UnexpectedRequest) -> Problem {
    let shown = sanitize_line(&format!("{} {}", unexpected.method, unexpected.url), NOTE_CHARS);
    let nearest = unexpected.nearest.as_ref();
    match nearest.and_then(|(at, differences)| Some((scenario.service.get(*at)?, differences))) {
        Some((step, differences)) => {
            let next =
                if scenario.unordered { "the most similar one that is expected" } else { "expected next" };
            let message = format!("{shown} came, and {next} is {}", shown_request(step));
            let mut problem = Problem::new(ProblemKind::UnexpectedRequest, &step.place, message);
            problem.differences.clone_from(differences);
            problem
        }
        None => {
            let place = scenario.calls.get(unexpected.call).map_or(&scenario.place, |call| &call.place);
            let message = format!("{shown} came, and no more requests are expected");
            Problem::new(ProblemKind::UnexpectedRequest, place, message)
        }
    }
}

fn missing_request(step: &ServiceStep, served: u32) -> Problem {
    let count = match (served, step.times) {
        (0, _) => "never came".to_owned(),
        (served, times) => format!("came {served} of {times} times"),
    };
    let message = format!("{} {count}", shown_request(step));
    Problem::new(ProblemKind::MissingRequest, &step.place, message)
}

fn judge_call(expected: &ScenarioCall, call: &FinishedCall, problems: &mut Vec<Problem>) {
    let FinishedCall { outcome, report } = call;
    let key = report.idempotency_key.as_deref().unwrap_or_default();
    let operation = &expected.operation;
    let mut differences = Vec::new();
    let message = match (&expected.expect.outcome, outcome) {
        (ExpectedOutcome::Value(pattern), Ok(value)) => {
            pattern.compare(value, "value", key, &mut differences);
            format!("`{operation}` returned another value")
        }
        (ExpectedOutcome::Failure(pattern), Err(Error::Failure(failure))) => {
            compare_failure(pattern, failure, key, &mut differences);
            format!("`{operation}` failed in another way")
        }
        (ExpectedOutcome::Error(pattern), Err(Error::Host(error))) => {
            compare_error(pattern, error.kind(), error.message(), key, &mut differences);
            format!("`{operation}` was refused for another reason")
        }
        (wanted, outcome) => {
            let wanted = match wanted {
                ExpectedOutcome::Value(pattern) => format!("value {}", pattern.shown()),
                ExpectedOutcome::Failure(pattern) => match pattern.class {
                    Some(class) => format!("failure {}", class.name()),
                    None => "failure".to_owned(),
                },
                ExpectedOutcome::Error(_) => "error of the host".to_owned(),
            };
            let (verb, actual) = match outcome {
                Ok(value) => ("returned a value", format!("value {value}")),
                Err(Error::Failure(failure)) => (
                    "failed",
                    format!("failure {} ({}): {}", failure.class().name(), failure.code(), failure.message()),
                ),
                Err(Error::Host(error)) => {
                    let hint = error.hint().map(|hint| format!(" {hint}")).unwrap_or_default();
                    ("was not accepted", format!("error {}: {}{hint}", error.kind().code(), error.message()))
                }
            };
            differences.push(Difference::new("outcome", wanted, sanitize_line(&actual, NOTE_CHARS)));
            format!("`{operation}` {verb}")
        }
    };
    if !differences.is_empty() {
        let mut problem = Problem::new(ProblemKind::Outcome, &expected.place, message);
        problem.differences = differences;
        problem.notes = notes(report);
        problems.push(problem);
    }
    let attempts = report.attempts.len();
    if let Some(wanted) = expected.expect.attempts.filter(|wanted| *wanted as usize != attempts) {
        let message = format!("`{operation}` had another number of attempts");
        let mut problem = Problem::new(ProblemKind::Attempts, &expected.place, message);
        problem.differences.push(Difference::new("attempts", wanted, attempts));
        problem.notes =
            report.attempts.iter().map(|attempt| sanitize_line(&attempt.to_string(), NOTE_CHARS)).collect();
        problems.push(problem);
    }
}

fn compare_failure(pattern: &FailurePattern, failure: &Failure, key: &str, found: &mut Vec<Difference>) {
    if let Some(class) = pattern.class.filter(|class| *class != failure.class()) {
        found.push(Difference::new("failure.class", class.name(), failure.class().name()));
    }
    if let Some(code) = pattern.code.as_ref().filter(|code| !code.matches(failure.code(), key)) {
        found.push(Difference::new("failure.code", code.source(), failure.code()));
    }
    if let Some(boundary) = pattern.boundary.filter(|boundary| *boundary != failure.boundary()) {
        found.push(Difference::new("failure.boundary", boundary.name(), failure.boundary().name()));
    }
    if let Some(message) = pattern.message.as_ref().filter(|message| !message.matches(failure.message(), key))
    {
        found.push(Difference::new("failure.message", message.source(), failure.message()));
    }
    if let Some(retriable) = pattern.retriable.filter(|retriable| *retriable != failure.retriable()) {
        found.push(Difference::new("failure.retriable", retriable, failure.retriable()));
    }
    for (name, pattern) in &pattern.details {
        let path = format!("failure.details.{name}");
        match failure.details().get(name) {
            Some(detail) => pattern.compare(detail, &path, key, found),
            None => found.push(Difference::new(path, pattern.shown(), "nothing")),
        }
    }
}

fn compare_error(
    pattern: &ErrorPattern,
    kind: HostErrorKind,
    message: &str,
    key: &str,
    found: &mut Vec<Difference>,
) {
    if let Some(code) = pattern.code.as_ref().filter(|code| !code.matches(kind.code(), key)) {
        found.push(Difference::new("error.code", code.source(), kind.code()));
    }
    if let Some(expected) = pattern.message.as_ref().filter(|expected| !expected.matches(message, key)) {
        found.push(Difference::new("error.message", expected.source(), message));
    }
}

/// Returns what the operator knows about a call that failed, a line each: the author is one.
fn notes(report: &Report) -> Vec<String> {
    let Some(view) = report.operator_view() else { return Vec::new() };
    let mut notes = Vec::new();
    for (field, label) in [("panic", "panic"), ("connector_detail", "connector"), ("stderr", "stderr")] {
        if let Some(text) = view.get(field).and_then(Value::as_str) {
            notes.push(format!("{label}: {text}"));
        }
    }
    for field in ["chain", "notes"] {
        // The first of the chain is the message.
        let lines = view.get(field).and_then(Value::as_array).into_iter().flatten();
        let lines = lines.skip(usize::from(field == "chain")).filter_map(Value::as_str);
        notes.extend(lines.map(|line| format!("cause: {line}")));
    }
    notes.iter().map(|note| sanitize_line(note, NOTE_CHARS)).collect()
}

fn summary(expected: &ScenarioCall, call: &FinishedCall) -> CallSummary {
    let (outcome, class, code) = match &call.outcome {
        Ok(_) => ("value", None, None),
        Err(Error::Failure(failure)) => {
            ("failure", Some(failure.class().name()), Some(failure.code().to_owned()))
        }
        Err(Error::Host(error)) => ("error", None, Some(error.kind().code().to_owned())),
    };
    let attempts = call.report.attempts.len();
    CallSummary { operation: expected.operation.clone(), outcome, class, code, attempts }
}
