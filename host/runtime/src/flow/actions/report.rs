//! How an action came to its outcome: each step, whether it was done, and how its call came to that.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::AuditId;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::call::Report;

/// The report of one run of an action, beside its outcome.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ActionReport {
    /// The action's record. That of a failure is its step's own.
    pub audit_id: AuditId,
    /// The action, as `name@version`.
    #[serde(serialize_with = "text")]
    pub action: Arc<str>,
    /// The key that its caller gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its steps, in order.
    pub steps: Vec<StepReport>,
    /// The run whose recorded outcome this is: one before it, with the same idempotency key. Nothing was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<AuditId>,
    /// The steps whose values are partial, and how many of their items failed; also of a run whose recorded outcome
    /// this is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub partial: BTreeMap<String, u64>,
    #[serde(skip)]
    pub(super) operator: Option<Map<String, Value>>,
}

/// One step.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct StepReport {
    /// Its id in the action.
    #[serde(serialize_with = "text")]
    pub id: Arc<str>,
    /// What came of it.
    pub status: StepStatus,
    /// Whether it may be repeated. Where its manifest leaves that open: whether its call has sent no unkeyed request.
    pub idempotent: bool,
    /// How its call came to that; none where none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepStatus {
    /// It was not begun.
    NotRun,
    /// It has a value: it is done, and stays done.
    Value,
    /// It failed.
    Failure,
    /// Its call was not taken up.
    Refused,
    /// It was cancelled.
    Cancelled,
}

/// What it is to run an action once more that ended without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Again {
    /// Nothing that must not be repeated was done: its failure's `retriable` holds for all of it.
    Freely,
    /// What is done is not done again under its key, and would be without: its failure's `retriable` holds under it.
    UnderKey,
    /// There is no key, and a step that must not be repeated is done or may be: somebody has to look before.
    AskFirst,
}

impl Again {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Freely => "freely",
            Self::UnderKey => "under_key",
            Self::AskFirst => "ask_first",
        }
    }
}

impl StepStatus {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::Value => "value",
            Self::Failure => "failure",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn of<T>(outcome: &Result<T, Error>) -> Self {
        match outcome {
            Ok(_) => Self::Value,
            Err(Error::Failure(_)) => Self::Failure,
            Err(Error::Host(error)) if error.kind() == HostErrorKind::Cancelled => Self::Cancelled,
            Err(Error::Host(_)) => Self::Refused,
        }
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl ActionReport {
    /// The report of an action none of whose steps was begun; each with whether it may be repeated.
    pub(crate) fn new(
        audit_id: AuditId,
        action: Arc<str>,
        steps: impl Iterator<Item = (Arc<str>, bool)>,
    ) -> Self {
        let step = |(id, idempotent)| StepReport { id, status: StepStatus::NotRun, idempotent, report: None };
        Self {
            audit_id,
            action,
            idempotency_key: None,
            steps: steps.map(step).collect(),
            replayed: None,
            partial: BTreeMap::new(),
            operator: None,
        }
    }

    /// The steps that are done, in order: nothing undoes them.
    pub fn done(&self) -> impl Iterator<Item = &StepReport> {
        self.steps.iter().filter(|step| step.status == StepStatus::Value)
    }

    /// The steps that must not be repeated and are done, or may have had their effect, in order.
    pub fn not_again(&self) -> impl Iterator<Item = &StepReport> {
        let had_effect = |step: &StepReport| {
            let replayed_or_sent = |report: &Report| report.replayed.is_some() || report.may_have_sent();
            step.status == StepStatus::Value || step.report.as_ref().is_some_and(replayed_or_sent)
        };
        self.steps.iter().filter(move |step| !step.idempotent && had_effect(step))
    }

    /// What it is to run the action once more, after it ended without a value.
    #[must_use]
    pub fn again(&self) -> Again {
        match (self.not_again().next(), &self.idempotency_key) {
            (None, _) => Again::Freely,
            (Some(_), Some(_)) => Again::UnderKey,
            (Some(_), None) => Again::AskFirst,
        }
    }

    /// Whether something of it is done, or may be.
    #[must_use]
    pub fn did_something(&self) -> bool {
        self.done().next().is_some()
            || self.steps.iter().any(|step| step.report.as_ref().is_some_and(Report::may_have_sent))
    }

    /// The step that has no value although it was begun: where the action ended.
    #[must_use]
    pub fn ended_in(&self) -> Option<&StepReport> {
        self.steps.iter().find(|step| !matches!(step.status, StepStatus::Value | StepStatus::NotRun))
    }

    /// Whether any step was begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.steps.iter().any(|step| step.status != StepStatus::NotRun)
    }

    /// The failure or the error as the record has it; see [`Report::operator_view`].
    #[must_use]
    pub fn operator_view(&self) -> Option<&Map<String, Value>> {
        self.operator.as_ref()
    }
}
