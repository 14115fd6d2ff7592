//! The result of a scenario: whether it passed, and every way in which it did not.

use std::time::Duration;

use cofferdam_core::error::HostError;
use serde::Serialize;

use crate::scenario::{Difference, Place, Scenario};

/// The result of one scenario.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioReport {
    /// The file of the scenario.
    pub file: String,
    /// Its line.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// True if everything was as expected.
    pub passed: bool,
    /// The time that it took, in milliseconds.
    pub duration_ms: u64,
    /// The calls that were made.
    pub calls: Vec<CallSummary>,
    /// The number of requests that came.
    pub requests: usize,
    /// Every way in which something was not as expected.
    pub problems: Vec<Problem>,
}

/// A call of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct CallSummary {
    /// The operation.
    pub operation: String,
    /// `value`, `failure` or `error`.
    pub outcome: &'static str,
    /// The class of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'static str>,
    /// The code of the failure or the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The number of attempts.
    pub attempts: usize,
}

/// One way in which something was not as expected.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// The kind.
    pub kind: ProblemKind,
    /// The file that says what was expected.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The problem, in a sentence.
    pub message: String,
    /// The differences, field by field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// The known causes, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A request came that is not the next one.
    UnexpectedRequest,
    /// A request did not come.
    MissingRequest,
    /// A call had another outcome.
    Outcome,
    /// A call had another number of attempts.
    Attempts,
    /// The scenario could not be run.
    NotRun,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, place: &Place, message: impl Into<String>) -> Self {
        Self {
            kind,
            file: place.file.to_string(),
            line: place.line,
            message: message.into(),
            differences: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl ScenarioReport {
    pub(super) fn new(
        scenario: &Scenario,
        took: Duration,
        calls: Vec<CallSummary>,
        requests: usize,
        problems: Vec<Problem>,
    ) -> Self {
        Self {
            file: scenario.place.file.to_string(),
            line: scenario.place.line,
            name: scenario.name.clone(),
            passed: problems.is_empty(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            calls,
            requests,
            problems,
        }
    }

    /// Returns the report of a scenario that could not be run.
    pub(super) fn not_run(scenario: &Scenario, error: &HostError, took: Duration) -> Self {
        let mut problem = Problem::new(ProblemKind::NotRun, &scenario.place, error.message());
        problem.notes.extend(error.hint().map(ToOwned::to_owned));
        let cause = std::error::Error::source(error).map(|cause| format!("cause: {cause}"));
        problem.notes.extend(cause);
        Self::new(scenario, took, Vec::new(), 0, vec![problem])
    }
}
