//! An action held against what is installed: every connector verified, every operation found, every input's type
//! known to fit, and all that is wrong told at once.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{Findings, Key, Refused};
use cofferdam_core::error::HostError;
use cofferdam_model::action::{Action, DEFAULT_TIMEOUT, Step, Target, Template};
use cofferdam_model::manifest::Effect;
use cofferdam_model::package::Operation;

use super::again;
use super::known::Results;
use super::packages::{self, Found, Package};
use super::runnable::{ReadyStep, ReadyTarget, Runnable};
use super::typed::{Given, Typed};
use crate::call::Pipeline;

/// Checks an action. Connectors are read, verified and compiled as a call would; nothing of them runs.
///
/// # Errors
/// `validation`: everything that is wrong with the action here, each with its line and key; the host's own trouble.
pub(crate) async fn check(pipeline: &Pipeline, action: Arc<Action>) -> Result<Runnable, HostError> {
    let mut found = Vec::with_capacity(action.requires().len());
    for required in action.requires() {
        found.push(packages::loaded(pipeline, required).await?);
    }
    fitting(pipeline, action, &found)
}

/// The same with what was found of each connector that it requires, in their order.
///
/// # Errors
/// `validation`, as [`check`].
pub(super) fn fitting(
    pipeline: &Pipeline,
    action: Arc<Action>,
    found: &[Found],
) -> Result<Runnable, HostError> {
    let toml = action.text.toml();
    let mut findings = Findings::new(action.text.label(), action.text.text(), &toml);
    let required = action.requires().iter().zip(found).enumerate();
    let packages: Vec<_> =
        required.map(|(at, (required, found))| packages::held(required, found, at, &mut findings)).collect();
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
        let retry = again::retry(step, at, &pipeline.settings, &mut findings);
        if step.timeout().is_some_and(|timeout| timeout > ceiling) {
            let refused = above(ceiling, "ask for that or less");
            findings.refuse(&[Key::Name("execute"), Key::At(at), Key::Name("timeout")], &refused);
        }
        let once = again::once(step, at, &packages, retry.as_ref(), &mut findings);
        let Some((target, alternates)) = ready else { continue };
        let results: Results<'_> = found.iter().take(at).map(operations).collect();
        inputs(&action, step, at, (target, alternates), &results, &mut findings);
        steps.push(ReadyStep {
            target: target.clone(),
            once,
            retry: retry.flatten(),
            alternates: alternates.clone(),
        });
    }
    findings.finish().map_err(cofferdam_core::document::DocumentError::into_host_error)?;
    Ok(Runnable { action, timeout, steps })
}

/// Whose value a step's may be.
fn operations(found: &Option<(ReadyTarget, Vec<ReadyTarget>)>) -> Option<Vec<&Operation>> {
    let (target, alternates) = found.as_ref()?;
    Some(std::iter::once(target).chain(alternates).map(ReadyTarget::operation).collect())
}

/// The time of the whole action.
fn whole_time(action: &Action, ceiling: Duration, findings: &mut Findings<'_>) -> Duration {
    let steps = u32::try_from(action.steps().len()).unwrap_or(u32::MAX).max(1);
    let most = ceiling.saturating_mul(steps);
    match action.timeout() {
        Some(timeout) if timeout > most => {
            let refused =
                above(most, "ask for that or less: it is the host's ceiling for a call, times the steps");
            findings.refuse(&[Key::Name("timeout")], &refused);
            most
        }
        Some(timeout) => timeout,
        None => DEFAULT_TIMEOUT.min(most),
    }
}

fn above(ceiling: Duration, fix: &str) -> Refused {
    Refused::new(format!("this is above what the host allows, {ceiling:?}"), fix)
}

/// The operations of a step and of its alternates; none where one is not there, which was told.
fn targets(
    action: &Action,
    step: &Step,
    at: usize,
    packages: &[Option<&Package>],
    findings: &mut Findings<'_>,
) -> Option<(ReadyTarget, Vec<ReadyTarget>)> {
    let here = [Key::Name("execute"), Key::At(at)];
    let first = target(action, step.target(), packages, &here, findings);
    let alternates: Vec<_> = step
        .fallback()
        .iter()
        .zip(0..)
        .map(|(other, n)| {
            let here = [here.as_slice(), &[Key::Name("fallback"), Key::At(n)]].concat();
            target(action, other, packages, &here, findings)
        })
        .collect();
    Some((first?, alternates.into_iter().collect::<Option<_>>()?))
}

fn target(
    action: &Action,
    target: &Target,
    packages: &[Option<&Package>],
    here: &[Key<'_>],
    findings: &mut Findings<'_>,
) -> Option<ReadyTarget> {
    let package = packages.get(target.requirement()).copied()??;
    let found = package.operations.iter().find(|operation| operation.name().json() == target.op());
    if found.is_none() && findings.is_empty() {
        // That it is none of the connector's was told of the capabilities, which it is among.
        let message = format!("{} has no operation `{}`", package.connector, target.op());
        findings.refuse(&[here, &[Key::Name("op")]].concat(), &Refused::new(message, "name one that it has"));
    }
    // What the action lets reach no host can only compute.
    let reaches = action
        .requires()
        .get(target.requirement())
        .is_some_and(|required| !required.scope().hosts().is_empty());
    let effect = package.manifest.effect(target.op()).or((!reaches).then_some(Effect::ReadOnly));
    let services = Arc::clone(&package.services);
    let repeat = package.manifest.repeat_rule(target.op());
    let (connector, operation) = (package.connector.clone(), found?.clone());
    Some(ReadyTarget { connector, operation, effect, repeat, services })
}

/// The inputs of a step, and those that each of its alternates would be given.
fn inputs<'a>(
    action: &'a Action,
    step: &'a Step,
    at: usize,
    (target, alternates): (&'a ReadyTarget, &'a [ReadyTarget]),
    results: &Results<'a>,
    findings: &mut Findings<'_>,
) {
    let own = [Key::Name("execute"), Key::At(at), Key::Name("inputs")];
    let written = |inputs: &'a [(String, Template)], here: &[Key<'a>]| -> Vec<Given<'a>> {
        let each = |(name, value): &'a (String, Template)| Given {
            name,
            value,
            path: [here, &[Key::Name(name)]].concat(),
            held: None,
        };
        inputs.iter().map(each).collect()
    };
    let first = written(step.target().inputs(), &own);
    let mut typed = Typed { action, results, findings };
    typed.inputs(target.operation(), &first, &own);
    for (n, (other, ready)) in step.fallback().iter().zip(alternates).enumerate() {
        let here =
            [Key::Name("execute"), Key::At(at), Key::Name("fallback"), Key::At(n), Key::Name("inputs")];
        let mut given = written(other.inputs(), &here);
        // What the alternate does not say is the step's. It is told of the alternate, whose operation it is, and not
        // again where it was held against the same type.
        let type_of = |name: &str| {
            let param = target.operation().params().iter().find(|param| param.name.json() == name);
            param.map(|param| &param.shape)
        };
        let rest: Vec<_> = first
            .iter()
            .filter(|input| !given.iter().any(|own| own.name == input.name))
            .map(|input| Given { path: here.to_vec(), held: type_of(input.name), ..input.clone() })
            .collect();
        given.extend(rest);
        typed.inputs(ready.operation(), &given, &here);
    }
}
