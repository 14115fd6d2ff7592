//! A step of an action as the call that it is: of which package, with what, how often, and within what time.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::safe_line;
use cofferdam_core::limits::LimitRequest;
use cofferdam_model::action::{Action, RenderError, Step, Target, Values};
use serde_json::{Map, Value};

use super::ask::Run;
use super::runnable::{ReadyStep, ReadyTarget, Runnable};
use crate::call::{Alternate, Call};

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
        // Who asks for no credential of a service is told nothing of it: it would be refused for it.
        for (service, identity) in used(&ready.target, run) {
            call = call.identity(service, identity);
        }
        for (target, found) in step.fallback.iter().zip(ready.alternates()) {
            let alternate = alternate(action, target, found, args(target)?);
            // What the call chose for itself holds for its alternates, too.
            let chosen = used(found, run).filter(|(service, _)| !ready.target.services().contains(service));
            call = call.or_else(
                chosen
                    .fold(alternate, |alternate, (service, identity)| alternate.identity(service, identity)),
            );
        }
        Ok(call)
    }
}

/// What was chosen of the services that the connector asks for.
fn used<'r>(target: &'r ReadyTarget, run: &'r Run) -> impl Iterator<Item = (&'r String, &'r String)> {
    run.identities.iter().filter(|(service, _)| target.services().contains(service))
}

/// Every identity that was chosen is of a service that some step's connector asks for.
///
/// # Errors
/// `validation`: nobody asks for it.
pub(super) fn identities_fit(runnable: &Runnable, run: &Run) -> Result<(), HostError> {
    let targets =
        || runnable.steps().iter().flat_map(|ready| std::iter::once(&ready.target).chain(ready.alternates()));
    let asked = |service: &String| targets().any(|target| target.services().contains(service));
    let Some(service) = run.identities.keys().find(|service| !asked(service)) else { return Ok(()) };
    let message = format!(
        "An identity is chosen for the service `{}`, of which no connector of {} asks for a credential.",
        safe_line(service, 64),
        runnable.action().name()
    );
    let mut services: Vec<_> = targets().flat_map(ReadyTarget::services).map(String::as_str).collect();
    services.sort_unstable();
    services.dedup();
    let hint = match services.is_empty() {
        true => "They ask for no credentials at all: leave the choice out.".to_owned(),
        false => format!("They ask for: {}.", services.join(", ")),
    };
    Err(HostError::new(HostErrorKind::Validation, message).hint(hint))
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
