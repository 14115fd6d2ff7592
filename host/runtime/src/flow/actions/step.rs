//! Converts a step of an action to its call: its package, its inputs, its retries and its time limit.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::LimitRequest;
use cofferdam_model::action::{Action, ActionStep, RenderError, StepTarget, TemplateValues};
use serde_json::{Map, Value};

use super::ask::RunRequest;
use super::runnable::{CheckedAction, CheckedStep, ReadyTarget};
use crate::call::{Call, Fallback};

/// A step of a checked action.
#[derive(Clone, Copy)]
pub(super) struct OneStep<'r> {
    pub(super) action: &'r Action,
    pub(super) step: &'r ActionStep,
    pub(super) ready: &'r CheckedStep,
}

/// Returns the steps of an action, in order.
pub(super) fn all(runnable: &CheckedAction) -> impl Iterator<Item = OneStep<'_>> {
    let action = &**runnable.action();
    action.steps.iter().zip(runnable.steps()).map(move |(step, ready)| OneStep { action, step, ready })
}

impl OneStep<'_> {
    /// Returns the call of the step. Its inputs are filled in with `values`.
    ///
    /// # Errors
    /// A referenced value is missing.
    pub(super) fn call(&self, values: &TemplateValues<'_>, run: &RunRequest) -> Result<Call, HostError> {
        let filled = |target: &StepTarget| {
            target.render(values).map(Value::Object).map_err(|error| unfillable(&error))
        };
        self.asked(filled, run)
    }

    /// Returns the call of the step without its arguments, which are not known.
    pub(super) fn without_arguments(&self, run: &RunRequest) -> Result<Call, HostError> {
        self.asked(|_| Ok(Map::new().into()), run)
    }

    fn asked(
        &self,
        args: impl Fn(&StepTarget) -> Result<Value, HostError>,
        run: &RunRequest,
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
        // A connector that requests no credential for a service does not get its identity: it would be refused for
        // it.
        for (service, identity) in used(&ready.target, run) {
            call = call.identity(service, identity);
        }
        for (target, found) in step.fallback.iter().zip(ready.alternates()) {
            let alternate = alternate(action, target, found, args(target)?);
            // A choice that the run made applies to the step's fallbacks, too.
            let chosen = used(found, run).filter(|(service, _)| !ready.target.services().contains(service));
            call = call.or_else(
                chosen
                    .fold(alternate, |alternate, (service, identity)| alternate.identity(service, identity)),
            );
        }
        Ok(call)
    }
}

/// Returns the chosen identities of the services that the connector requests credentials for.
fn used<'r>(target: &'r ReadyTarget, run: &'r RunRequest) -> impl Iterator<Item = (&'r String, &'r String)> {
    run.identities.iter().filter(|(service, _)| target.services().contains(service))
}

/// Checks that every chosen identity is for a service that some step's connector requests credentials for.
///
/// # Errors
/// `validation`: no step does.
pub(super) fn identities_fit(runnable: &CheckedAction, run: &RunRequest) -> Result<(), HostError> {
    let targets =
        || runnable.steps().iter().flat_map(|ready| std::iter::once(&ready.target).chain(ready.alternates()));
    let asked = |service: &String| targets().any(|target| target.services().contains(service));
    let Some(service) = run.identities.keys().find(|service| !asked(service)) else { return Ok(()) };
    let message = format!(
        "An identity is chosen for the service `{}`, of which no connector of {} asks for a credential.",
        sanitize_line(service, 64),
        runnable.action().name()
    );
    let mut services: Vec<_> = targets().flat_map(ReadyTarget::services).map(String::as_str).collect();
    services.sort_unstable();
    services.dedup();
    let hint = match services.is_empty() {
        true => "They ask for no credentials at all: leave the choice out.".to_owned(),
        false => format!("They ask for: {}.", services.join(", ")),
    };
    Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
}

/// Returns the fallback with these inputs in place of the step's.
fn alternate(action: &Action, target: &StepTarget, found: &ReadyTarget, args: Value) -> Fallback {
    let args = if let Value::Object(args) = args { args } else { Map::new() };
    let alternate = Fallback::new(found.connector().clone(), target.op.as_str()).with_args(args);
    match action.requires.get(target.requirement) {
        Some(required) => alternate.within(Arc::clone(&required.scope)),
        None => alternate,
    }
}

/// Returns the key that a step carries if the action was given one.
pub(super) fn key_of(key: &str, step: &str) -> String {
    format!("{key}/{step}")
}

fn unfillable(error: &RenderError) -> HostError {
    HostError::new(HostErrorKind::Validation, format!("Its inputs cannot be filled in: {error}.")).with_hint(
        "Give other arguments, or correct the action's file: `cofferdam run --dry-run` shows what it does.",
    )
}

fn wall_time(longest: Duration) -> Result<LimitRequest, HostError> {
    LimitRequest::parse(None, Some(&format!("{}ms", longest.as_millis())), None)
        .map_err(|error| HostError::new(HostErrorKind::Validation, format!("{error}.")))
}
