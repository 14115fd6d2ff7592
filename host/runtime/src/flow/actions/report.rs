//! The report of an action: each step, its status, and the report of its call.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::{AuditId, sanitize_line};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::call::Report;

/// The result of a run of an action.
#[derive(Debug)]
#[must_use]
pub struct ActionResult {
    /// The action's output, or the reason that there is none.
    pub outcome: Result<ActionValue, Error>,
    /// The report of the action's steps.
    pub report: ActionReport,
}

/// The report of one run of an action, which is returned with its outcome.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ActionReport {
    /// The action's audit id. A failure has the audit id of its step.
    pub audit_id: AuditId,
    /// The action, as `name@version`.
    pub action: Arc<str>,
    /// The idempotency key that its caller gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its steps, in order.
    pub steps: Vec<StepReport>,
    /// The earlier run with the same idempotency key whose recorded outcome this is. Nothing was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<AuditId>,
    /// The steps whose values are partial, each with the [missing amount](Report::partial). This includes the steps of
    /// a replayed outcome.
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
    pub id: Arc<str>,
    /// Its status.
    pub status: StepStatus,
    /// True if it may be repeated. If its manifest leaves that open: true if its call has sent no unkeyed request.
    /// False if its call [relied on its key](Report::relies_on_key), and the action has none.
    pub idempotent: bool,
    /// True if its call was refused for what an earlier call under its key did: the step may be done, and so may those
    /// after it.
    #[serde(skip)]
    pub(crate) is_undecided: bool,
    /// The report of its call. None if no call was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// The status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepStatus {
    /// It was not begun.
    NotRun,
    /// It has a value: it is done, and is not undone.
    Value,
    /// It failed.
    Failure,
    /// Its call was refused.
    Refused,
    /// It was cancelled.
    Cancelled,
}

/// The advice about running an action again that ended without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RepeatAdvice {
    /// No step that must not be repeated was done: its failure's `retriable` holds for the whole action.
    Freely,
    /// The done steps are not repeated under the action's key, but would be without it: its failure's `retriable`
    /// holds for a run under that key.
    UnderKey,
    /// There is no key, and a step that must not be repeated is done or may be: a person has to check before.
    AskFirst,
}

impl RepeatAdvice {
    /// Returns the stable word for it.
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
    /// Returns the stable word for it.
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

    pub(super) fn from_outcome<T>(outcome: &Result<T, Error>) -> Self {
        match outcome {
            Ok(_) => Self::Value,
            Err(Error::Failure(_)) => Self::Failure,
            Err(Error::Host(error)) if error.kind() == HostErrorKind::Cancelled => Self::Cancelled,
            Err(Error::Host(_)) => Self::Refused,
        }
    }
}

impl ActionReport {
    /// Creates the report of an action that has not begun, with the repeat rule of each step.
    pub(crate) fn new(
        audit_id: AuditId,
        action: Arc<str>,
        steps: impl Iterator<Item = (Arc<str>, bool)>,
    ) -> Self {
        let step = |(id, idempotent)| StepReport {
            id,
            status: StepStatus::NotRun,
            idempotent,
            is_undecided: false,
            report: None,
        };
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

    /// Returns the steps that are done, in order: nothing undoes them.
    pub fn done(&self) -> impl Iterator<Item = &StepReport> {
        self.steps.iter().filter(|step| step.status == StepStatus::Value)
    }

    /// Returns the steps that must not be repeated and are done, or may have had their effect, in order.
    pub fn unrepeatable_steps(&self) -> impl Iterator<Item = &StepReport> {
        let had_effect = |step: &StepReport| {
            let replayed_or_sent = |report: &Report| report.replayed.is_some() || report.may_have_sent();
            step.status == StepStatus::Value || step.report.as_ref().is_some_and(replayed_or_sent)
        };
        let undecided = self.steps.iter().position(|step| step.is_undecided).unwrap_or(usize::MAX);
        let all = self.steps.iter().enumerate();
        let unrepeatable =
            all.filter(move |(n, step)| !step.idempotent && (*n >= undecided || had_effect(step)));
        unrepeatable.map(|(_, step)| step)
    }

    /// Returns the advice about running the action again after it ended without a value.
    #[must_use]
    pub fn repeat_advice(&self) -> RepeatAdvice {
        match (self.unrepeatable_steps().next(), &self.idempotency_key) {
            (None, _) => RepeatAdvice::Freely,
            (Some(_), Some(_)) => RepeatAdvice::UnderKey,
            (Some(_), None) => RepeatAdvice::AskFirst,
        }
    }

    /// Returns the advice about running the action again, as a sentence. None if it may be run freely.
    pub(crate) fn repeat_hint(&self) -> Option<String> {
        let steps: Vec<_> = self.unrepeatable_steps().map(|step| format!("'{}'", step.id)).collect();
        let steps = steps.join(", ");
        match (steps.is_empty(), &self.idempotency_key) {
            (true, _) => None,
            (false, Some(key)) => Some(format!(
                "{steps} must not be repeated: if the action is run again, then under the key '{}' alone.",
                sanitize_line(key, 200)
            )),
            (false, None) => Some(format!(
                "{steps} must not be repeated, and running the action again may do so: ask before that."
            )),
        }
    }

    /// Returns what the details of an error say about the action that ended with it: the steps that are done, the
    /// step in which it ended, and whether it may be run again.
    pub(crate) fn half_done(&self) -> impl Iterator<Item = (String, Value)> {
        fn ids<'s>(steps: impl Iterator<Item = &'s StepReport>) -> Value {
            steps.map(|step| &*step.id).collect()
        }
        let facts = [
            ("action", Some(Value::from(&*self.action))),
            ("action_audit_id", Some(self.audit_id.as_str().into())),
            ("done", Some(ids(self.done()))),
            ("step", self.ended_in().map(|step| (*step.id).into())),
            ("not_again", Some(ids(self.unrepeatable_steps()))),
            ("again", Some(self.repeat_advice().name().into())),
        ];
        facts.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), fact?)))
    }

    /// Turns `error`, the content of the envelope of `why`, into that of the whole action, so that a program that branches
    /// on it decides about the action and not about the step. If a step that must not be repeated is done, or may be, the
    /// details say so (`again`). If there is no key either, `retriable` is false, no retry time is given, and the step's
    /// own envelope is `details.failure`.
    pub fn apply_to(&self, why: &Error, error: &mut Value) {
        let again = self.repeat_advice();
        let is_told = matches!(why, Error::Host(_)) || again != RepeatAdvice::Freely;
        let own = matches!((why, again), (Error::Failure(_), RepeatAdvice::AskFirst)).then(|| error.clone());
        let Some(error) = error.as_object_mut().filter(|_| self.has_begun() && is_told) else { return };
        if own.is_some() {
            error.insert("retriable".into(), false.into());
        }
        if let Some(details) = error.get_mut("details").and_then(Value::as_object_mut) {
            if let Some(own) = own {
                details.shift_remove("retry_after_ms");
                details.insert("failure".into(), own);
            }
            details.extend(self.half_done());
        }
    }

    /// True if a part of it is done, or may be.
    #[must_use]
    pub fn may_have_effect(&self) -> bool {
        self.done().next().is_some()
            || self.steps.iter().any(|step| step.report.as_ref().is_some_and(Report::may_have_sent))
    }

    /// Returns the step in which the action ended: it was begun and has no value.
    #[must_use]
    pub fn ended_in(&self) -> Option<&StepReport> {
        self.steps.iter().find(|step| !matches!(step.status, StepStatus::Value | StepStatus::NotRun))
    }

    /// True if any step was begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.steps.iter().any(|step| step.status != StepStatus::NotRun)
    }

    /// Returns the failure or error as the audit log has it; see [`Report::operator_view`].
    #[must_use]
    pub fn operator_view(&self) -> Option<&Map<String, Value>> {
        self.operator.as_ref()
    }
}

/// The value of an action, all of whose steps have a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ActionValue {
    /// The action's name.
    pub action: String,
    /// The value of its last step.
    pub output: Value,
    /// The value of each step, in their order.
    pub steps: Map<String, Value>,
}

impl ActionValue {
    /// Builds the value of the action `name` with these steps. The last step's value is the action's.
    pub(super) fn build_json<'s>(
        name: &str,
        ids: impl Iterator<Item = &'s str>,
        values: Vec<Value>,
    ) -> Value {
        let output = values.last().cloned().unwrap_or_default();
        let steps: Map<String, Value> = ids.map(str::to_owned).zip(values).collect();
        json!({"action": name, "output": output, "steps": steps})
    }

    /// Restores the value from its recorded form.
    pub(super) fn recorded(value: Value) -> Self {
        let Value::Object(mut fields) = value else {
            return Self { action: String::new(), output: Value::Null, steps: Map::new() };
        };
        let mut take = |name: &str| fields.remove(name).unwrap_or_default();
        let text = |value| if let Value::String(text) = value { text } else { String::new() };
        let object = |value| if let Value::Object(fields) = value { fields } else { Map::new() };
        Self { action: text(take("action")), output: take("output"), steps: object(take("steps")) }
    }
}
