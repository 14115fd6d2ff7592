//! A step of an action as the call that it is: of which package, with what, how often, and within what time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::action::{Action, RenderError, Retry, Step, Target, Values};
use crate::call::{Alternate, Call, ConnectorRef};
use crate::error::{HostError, HostErrorKind};
use crate::failure::Cause;
use crate::limits::LimitRequest;
use crate::resilience::{Backoff, Jitter, Profile, Schedule, Settings};

use super::ask::Run;

/// The name of the profile that four fields of a step make.
const OWN_PROFILE: &str = "step";

/// The connector that a step or its fallback calls: the package that the action pins, and no other.
pub(super) fn connector(action: &Action, target: &Target) -> Result<ConnectorRef, HostError> {
    let required = action.requires.get(target.requirement).ok_or_else(|| {
        HostError::new(HostErrorKind::Internal, "A step calls a connector that its action does not require.")
    })?;
    Ok(ConnectorRef::new(required.connector.clone(), required.version.clone()).pinned(required.hash))
}

/// The call that the step is; its inputs are filled in with `values`.
///
/// # Errors
/// What is referred to is not there, or the step's retries or times are not acceptable.
pub(super) fn call(
    action: &Action,
    step: &Step,
    values: &Values<'_>,
    run: &Run,
    settings: &Settings,
) -> Result<Call, HostError> {
    let target = &step.target;
    let args = target.render(values).map_err(|error| unfillable(&error))?;
    let call = Call::new(connector(action, target)?, target.op.as_str(), args.into());
    let mut call = asked(call, action, step, run, settings)?;
    for target in &step.fallback {
        let args = target.render(values).map_err(|error| unfillable(&error))?;
        call = call.or_else(alternate(action, target, args)?);
    }
    Ok(call)
}

/// Who is asked instead, with these inputs in the place of the step's.
pub(super) fn alternate(
    action: &Action,
    target: &Target,
    args: Map<String, Value>,
) -> Result<Alternate, HostError> {
    let alternate = Alternate::new(connector(action, target)?, target.op.as_str()).with_args(args);
    Ok(match action.requires.get(target.requirement) {
        Some(required) => alternate.within(Arc::clone(&required.scope)),
        None => alternate,
    })
}

/// The same of a call whose arguments are as they are.
pub(super) fn asked(
    mut call: Call,
    action: &Action,
    step: &Step,
    run: &Run,
    settings: &Settings,
) -> Result<Call, HostError> {
    call = call.step_of(&action.reference, &step.id);
    if let Some(required) = action.requires.get(step.target.requirement) {
        call = call.within(Arc::clone(&required.scope));
    }
    if let Some(actor) = &run.actor {
        call = call.actor(actor);
    }
    if let Some(key) = &run.key {
        call = call.idempotency_key(key_of(key, &step.id));
    }
    if step.once {
        call = call.not_idempotent();
    }
    if let Some(timeout) = step.timeout {
        call = call.limits(wall_time(timeout)?);
    }
    if let Some(retry) = &step.retry {
        call = call.retry(profile(retry, settings)?);
    }
    for (service, identity) in &run.identities {
        call = call.identity(service, identity);
    }
    Ok(call)
}

/// The key that a step carries where the action was given one.
pub(super) fn key_of(key: &str, step: &str) -> String {
    format!("{key}/{step}")
}

fn unfillable(error: &RenderError) -> HostError {
    HostError::new(HostErrorKind::Validation, format!("Its inputs cannot be filled in: {error}."))
        .hint("Correct the action's file; `cofferdam run --dry-run` shows what each step is given.")
}

fn wall_time(longest: Duration) -> Result<LimitRequest, HostError> {
    LimitRequest::parse(None, Some(&format!("{}ms", longest.as_millis())), None)
        .map_err(|error| HostError::new(HostErrorKind::Validation, format!("{error}.")))
}

/// How the step is tried again.
pub(super) fn profile(retry: &Retry, settings: &Settings) -> Result<Arc<Profile>, HostError> {
    match retry {
        Retry::Profile(name) => settings.profile(name).ok_or_else(|| {
            let names: Vec<_> = settings.profile_names().collect();
            HostError::new(HostErrorKind::Validation, format!("There is no retry profile `{name}`."))
                .hint(format!("There are: {}", names.join(", ")))
        }),
        Retry::Own { max, initial, max_delay, jitter } => {
            let standard = settings.profile("standard");
            let causes: Vec<Cause> = Cause::ALL
                .iter()
                .copied()
                .filter(|cause| standard.as_ref().is_some_and(|own| own.schedule(*cause).is_some()))
                .collect();
            let attempts = max.saturating_add(1);
            let schedule =
                Schedule::new(attempts, Backoff::Exponential, *initial, *max_delay, Jitter::Plus(*jitter));
            let profile = schedule.and_then(|schedule| Profile::new(OWN_PROFILE, schedule, &causes));
            profile.map(Arc::new).map_err(|error| {
                HostError::new(HostErrorKind::Validation, format!("Its retries are not acceptable: {error}."))
            })
        }
    }
}
