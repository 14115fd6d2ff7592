//! Checks an action against the installed connectors: every connector is verified, every operation found, every
//! input's type compared, and all problems are reported at once.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{Diagnostics, InvalidValue, PathSegment};
use cofferdam_core::error::HostError;
use cofferdam_core::failure::{FailureCause, RepeatRule};
use cofferdam_egress::resilience::{Backoff, Jitter, ResilienceSettings, RetryProfile, RetrySchedule};
use cofferdam_model::action::{Action, ActionStep, DEFAULT_TIMEOUT, StepRetry, StepTarget, Template};
use cofferdam_model::manifest::OperationEffect;
use cofferdam_model::package::OperationSignature;

use super::checked_action::{CheckedAction, CheckedStep, NonIdempotentReason, ReadyTarget};
use super::packages::{self, PackageLookup, StepPackage};
use super::type_check::{GivenInputs, StepResults, TypedInputs};
use crate::call::CallPipeline;

/// Checks an action. Connectors are read, verified and compiled as for a call; none of their code runs.
///
/// # Errors
/// `validation`: everything that is wrong with the action here, each problem with its line and key; or the host's
/// own error.
pub(crate) async fn check(pipeline: &CallPipeline, action: Arc<Action>) -> Result<CheckedAction, HostError> {
    let mut found = Vec::with_capacity(action.requires().len());
    for required in action.requires() {
        found.push(packages::loaded(pipeline, required).await?);
    }
    fitting(pipeline, action, &found)
}

/// Checks an action against the lookup results of its required connectors, in their order.
///
/// # Errors
/// `validation`, as [`check`].
pub(super) fn fitting(
    pipeline: &CallPipeline,
    action: Arc<Action>,
    found: &[PackageLookup],
) -> Result<CheckedAction, HostError> {
    let toml = action.text.toml();
    let mut findings = Diagnostics::new(action.text.label(), action.text.text(), &toml);
    let required = action.requires().iter().zip(found).enumerate();
    let packages: Vec<_> = required
        .map(|(at, (required, found))| packages::usable_package(required, found, at, &mut findings))
        .collect();
    let ceiling = pipeline.loader.ceilings.wall_time();
    let timeout = whole_time(&action, ceiling, &mut findings);
    let found: Vec<Option<(ReadyTarget, Vec<ReadyTarget>)>> = action
        .steps()
        .iter()
        .zip(0..)
        .map(|(step, at)| targets(&action, step, at, &packages, &mut findings))
        .collect();
    let mut steps = Vec::with_capacity(found.len());
    for (at, (step, ready)) in action.steps().iter().zip(&found).enumerate() {
        let retry = retry(step, at, &pipeline.settings, &mut findings);
        if step.timeout().is_some_and(|timeout| timeout > ceiling) {
            let refused = above(ceiling, "ask for that or less");
            findings.refuse(
                &[PathSegment::Name("execute"), PathSegment::At(at), PathSegment::Name("timeout")],
                &refused,
            );
        }
        let once = non_idempotent_reason(step, at, &packages, retry.as_ref(), &mut findings);
        let Some((target, fallbacks)) = ready else { continue };
        let results: StepResults<'_> = found.iter().take(at).map(operations).collect();
        inputs(&action, step, at, (target, fallbacks), &results, &mut findings);
        steps.push(CheckedStep {
            target: target.clone(),
            non_idempotent_reason: once,
            retry: retry.flatten(),
            fallbacks: fallbacks.clone(),
        });
    }
    findings.finish().map_err(cofferdam_core::document::DocumentError::into_host_error)?;
    Ok(CheckedAction { action, timeout, steps })
}

/// Returns the operations whose value the step may have.
fn operations(found: &Option<(ReadyTarget, Vec<ReadyTarget>)>) -> Option<Vec<&OperationSignature>> {
    let (target, fallbacks) = found.as_ref()?;
    Some(std::iter::once(target).chain(fallbacks).map(ReadyTarget::operation).collect())
}

/// Determines the time limit of the whole action.
fn whole_time(action: &Action, ceiling: Duration, findings: &mut Diagnostics<'_>) -> Duration {
    let steps = u32::try_from(action.steps().len()).unwrap_or(u32::MAX).max(1);
    let most = ceiling.saturating_mul(steps);
    match action.timeout() {
        Some(timeout) if timeout > most => {
            let refused =
                above(most, "ask for that or less: it is the host's ceiling for a call, times the steps");
            findings.refuse(&[PathSegment::Name("timeout")], &refused);
            most
        }
        Some(timeout) => timeout,
        None => DEFAULT_TIMEOUT.min(most),
    }
}

fn above(ceiling: Duration, fix: &str) -> InvalidValue {
    InvalidValue::new(format!("this is above what the host allows, {ceiling:?}"), fix)
}

/// Returns the operations of a step and of its fallbacks. None if one is missing, which was reported already.
fn targets(
    action: &Action,
    step: &ActionStep,
    at: usize,
    packages: &[Option<&StepPackage>],
    findings: &mut Diagnostics<'_>,
) -> Option<(ReadyTarget, Vec<ReadyTarget>)> {
    let here = [PathSegment::Name("execute"), PathSegment::At(at)];
    let first = target(action, step.target(), packages, &here, findings);
    let fallbacks: Vec<_> = step
        .fallback()
        .iter()
        .zip(0..)
        .map(|(other, n)| {
            let here = [here.as_slice(), &[PathSegment::Name("fallback"), PathSegment::At(n)]].concat();
            target(action, other, packages, &here, findings)
        })
        .collect();
    Some((first?, fallbacks.into_iter().collect::<Option<_>>()?))
}

fn target(
    action: &Action,
    target: &StepTarget,
    packages: &[Option<&StepPackage>],
    here: &[PathSegment<'_>],
    findings: &mut Diagnostics<'_>,
) -> Option<ReadyTarget> {
    let package = packages.get(target.requirement()).copied()??;
    let found = package.operations.iter().find(|operation| operation.name().json() == target.op());
    if found.is_none() && findings.is_empty() {
        // The capabilities include the operation, so the problem was reported there if there is any finding.
        let message = format!("{} has no operation `{}`", package.connector, target.op());
        findings.refuse(
            &[here, &[PathSegment::Name("op")]].concat(),
            &InvalidValue::new(message, "name one that it has"),
        );
    }
    // A connector that the action lets reach no host can only compute.
    let reaches = action
        .requires()
        .get(target.requirement())
        .is_some_and(|required| !required.scope().hosts().is_empty());
    let effect = package.manifest.effect(target.op()).or((!reaches).then_some(OperationEffect::ReadOnly));
    let services = Arc::clone(&package.services);
    let repeat = package.manifest.repeat_rule(target.op());
    let (connector, operation) = (package.connector.clone(), found?.clone());
    Some(ReadyTarget { connector, operation, effect, repeat, services })
}

/// Checks the inputs of a step, and the effective inputs of each of its fallbacks.
fn inputs<'a>(
    action: &'a Action,
    step: &'a ActionStep,
    at: usize,
    (target, fallbacks): (&'a ReadyTarget, &'a [ReadyTarget]),
    results: &StepResults<'a>,
    findings: &mut Diagnostics<'_>,
) {
    let own = [PathSegment::Name("execute"), PathSegment::At(at), PathSegment::Name("inputs")];
    let written = |inputs: &'a [(String, Template)], here: &[PathSegment<'a>]| -> Vec<GivenInputs<'a>> {
        let each = |(name, value): &'a (String, Template)| GivenInputs {
            name,
            value,
            path: [here, &[PathSegment::Name(name)]].concat(),
            held: None,
        };
        inputs.iter().map(each).collect()
    };
    let first = written(step.target().inputs(), &own);
    let mut typed = TypedInputs { action, results, findings };
    typed.inputs(target.operation(), &first, &own);
    for (n, (other, ready)) in step.fallback().iter().zip(fallbacks).enumerate() {
        let here = [
            PathSegment::Name("execute"),
            PathSegment::At(at),
            PathSegment::Name("fallback"),
            PathSegment::At(n),
            PathSegment::Name("inputs"),
        ];
        let mut given = written(other.inputs(), &here);
        // An input that the fallback does not set is the step's. A type error is reported for the fallback, whose
        // operation it is, but not twice if the step's parameter has the same type.
        let type_of = |name: &str| {
            let param = target.operation().params().iter().find(|param| param.name.json() == name);
            param.map(|param| &param.shape)
        };
        let rest: Vec<_> = first
            .iter()
            .filter(|input| !given.iter().any(|own| own.name == input.name))
            .map(|input| GivenInputs { path: here.to_vec(), held: type_of(input.name), ..input.clone() })
            .collect();
        given.extend(rest);
        typed.inputs(ready.operation(), &given, &here);
    }
}

/// The name of the profile that consists of a step's own four fields.
const OWN: &str = "own";

/// Returns the source of the rule that the step must not be repeated, if there is one. A file cannot allow what its
/// manifest forbids. A retry of a step that must not be repeated would never happen, so it is reported to the
/// action's author. `retry` is the file's retry setting, as read by [`retry`].
pub(super) fn non_idempotent_reason(
    step: &ActionStep,
    at: usize,
    packages: &[Option<&StepPackage>],
    retry: Option<&Option<Arc<RetryProfile>>>,
    findings: &mut Diagnostics<'_>,
) -> Option<NonIdempotentReason> {
    // For a missing package the rule is unknown, and the missing package was reported already.
    let rule = |target: &StepTarget| {
        let package = packages.get(target.requirement()).copied().flatten();
        package.map(|package| package.manifest.repeat_rule(target.op()))
    };
    let forbids = |target: &StepTarget| rule(target) == Some(RepeatRule::Never);
    let here = [PathSegment::Name("execute"), PathSegment::At(at)];
    let under = |key| [here.as_slice(), &[PathSegment::Name(key)]].concat();
    let (own, op) = (forbids(step.target()), step.target().op());
    if step.repeatable && own {
        let message = format!("`{op}` must not be repeated, says its connector's manifest");
        let fix = "remove it: a file can only make it stricter";
        findings.refuse(&under("idempotent"), &InvalidValue::new(message, fix));
    } else if step.repeatable && rule(step.target()) == Some(RepeatRule::UnlessUnkeyed) {
        let message = format!("`{op}` is not declared idempotent by its connector's manifest");
        let fix = "remove it: a file can only make it stricter, and the host decides by what the step sends";
        findings.refuse(&under("idempotent"), &InvalidValue::new(message, fix));
    }
    let once = match (own, step.non_idempotent) {
        (true, _) => Some(NonIdempotentReason::Manifest),
        (false, true) => Some(NonIdempotentReason::File),
        (false, false) => None,
    };
    for (n, other) in step.fallback().iter().enumerate() {
        if once.is_some() || forbids(other) {
            let which = if once.is_some() { op } else { other.op() };
            let message = format!("`{which}` must not be repeated, and who is asked instead might repeat it");
            let path = [here.as_slice(), &[PathSegment::Name("fallback"), PathSegment::At(n)]].concat();
            findings.refuse(&path, &InvalidValue::new(message, "remove the fallback"));
        }
    }
    let repeats = retry.and_then(Option::as_ref).is_some_and(|profile| profile.max_attempts() > 1);
    if let Some(once) = once.filter(|_| repeats) {
        let message =
            format!("nothing would be tried again: `{op}` must not be repeated, {}", once.description());
        let fix = match once {
            NonIdempotentReason::Manifest => "remove it, or write \"none\"",
            NonIdempotentReason::File => {
                "remove it, or write \"none\"; or remove `idempotent = false`, if it may be repeated"
            }
        };
        findings.refuse(&under("retry"), &InvalidValue::new(message, fix));
    }
    once
}

/// Returns the profile that a step names or defines. None if there is none, or if it is invalid, which is reported.
pub(super) fn retry(
    step: &ActionStep,
    at: usize,
    settings: &ResilienceSettings,
    findings: &mut Diagnostics<'_>,
) -> Option<Option<Arc<RetryProfile>>> {
    let path = [PathSegment::Name("execute"), PathSegment::At(at), PathSegment::Name("retry")];
    match step.retry() {
        None => Some(None),
        Some(StepRetry::Profile(name)) => match settings.profile(name) {
            Some(profile) => Some(Some(profile)),
            None => {
                findings.refuse(&path, &settings.unknown(name));
                None
            }
        },
        Some(StepRetry::Own { max, initial, max_delay, jitter }) => {
            let jitter = if *jitter == 0.0 { Jitter::None } else { Jitter::Plus(*jitter) };
            let standard = ResilienceSettings::default().profile("standard");
            let causes: Vec<_> = FailureCause::ALL
                .into_iter()
                .filter(|cause| standard.as_ref().is_some_and(|it| it.schedule(*cause).is_some()))
                .collect();
            let attempts = max.saturating_add(1);
            let profile = RetrySchedule::new(attempts, Backoff::Exponential, *initial, *max_delay, jitter)
                .and_then(|schedule| RetryProfile::new(OWN, schedule, &causes));
            match profile {
                Ok(profile) => Some(Some(Arc::new(profile))),
                Err(error) => {
                    findings.refuse(&path, &InvalidValue::new(error.to_string(), "correct the four fields"));
                    None
                }
            }
        }
    }
}
