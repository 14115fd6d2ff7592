//! A step of an action as the call that it is: of which package, with what, how often, and within what time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::ask::Run;
use super::runnable::{ReadyStep, ReadyTarget, Runnable};
use crate::action::{Action, RenderError, Step, Target, Values};
use crate::call::{Alternate, Call};
use crate::error::{HostError, HostErrorKind};
use crate::limits::LimitRequest;

/// A step of an action that was checked.
#[derive(Clone, Copy)]
pub(super) struct OneStep<'r> {
    pub(super) action: &'r Action,
    pub(super) step: &'r Step,
    pub(super) ready: &'r ReadyStep,
}

/// The steps of an action, in order.
pub(super) fn all(runnable: &Runnable) -> impl Iterator<Item = OneStep<'_>> {
    let action = &**runnable.action();
    action.steps.iter().zip(runnable.steps()).map(move |(step, ready)| OneStep { action, step, ready })
}

impl OneStep<'_> {
    /// The call that the step is; its inputs are filled in with `values`.
    ///
    /// # Errors
    /// What is referred to is not there.
    pub(super) fn call(&self, values: &Values<'_>, run: &Run) -> Result<Call, HostError> {
        let filled =
            |target: &Target| target.render(values).map(Value::Object).map_err(|error| unfillable(&error));
        self.asked(filled, run)
    }

    /// The same call with arguments that are not known.
    pub(super) fn without_arguments(&self, run: &Run) -> Result<Call, HostError> {
        self.asked(|_| Ok(Map::new().into()), run)
    }

    fn asked(
        &self,
        args: impl Fn(&Target) -> Result<Value, HostError>,
        run: &Run,
    ) -> Result<Call, HostError> {
        let Self { action, step, ready } = self;
        let mut call = Call::new(ready.connector().clone(), step.target.op.as_str(), args(&step.target)?)
            .step_of(&action.reference, &step.id);
        if let Some(required) = action.requires.get(step.target.requirement) {
            call = call.within(Arc::clone(&required.scope));
        }
        if let Some(actor) = &run.actor {
            call = call.actor(actor);
        }
        if let Some(key) = &run.key {
            call = call.idempotency_key(key_of(key, &step.id));
        }
        if !ready.idempotent() {
            call = call.not_idempotent();
        }
        if let Some(timeout) = step.timeout {
            call = call.limits(wall_time(timeout)?);
        }
        if let Some(profile) = ready.retry() {
            call = call.retry(Arc::clone(profile));
        }
        for (service, identity) in &run.identities {
            call = call.identity(service, identity);
        }
        for (target, found) in step.fallback.iter().zip(ready.alternates()) {
            call = call.or_else(alternate(action, target, found, args(target)?));
        }
        Ok(call)
    }
}

/// Who is asked instead, with these inputs in the place of the step's.
fn alternate(action: &Action, target: &Target, found: &ReadyTarget, args: Value) -> Alternate {
    let args = if let Value::Object(args) = args { args } else { Map::new() };
    let alternate = Alternate::new(found.connector().clone(), target.op.as_str()).with_args(args);
    match action.requires.get(target.requirement) {
        Some(required) => alternate.within(Arc::clone(&required.scope)),
        None => alternate,
    }
}

/// The key that a step carries where the action was given one.
pub(super) fn key_of(key: &str, step: &str) -> String {
    format!("{key}/{step}")
}

fn unfillable(error: &RenderError) -> HostError {
    HostError::new(HostErrorKind::Validation, format!("Its inputs cannot be filled in: {error}.")).hint(
        "Give other arguments, or correct the action's file: `cofferdam run --dry-run` shows what it does.",
    )
}

fn wall_time(longest: Duration) -> Result<LimitRequest, HostError> {
    LimitRequest::parse(None, Some(&format!("{}ms", longest.as_millis())), None)
        .map_err(|error| HostError::new(HostErrorKind::Validation, format!("{error}.")))
}
