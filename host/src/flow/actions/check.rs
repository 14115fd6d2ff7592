//! An action held against what is installed: every connector verified, every operation found, every input's type
//! known to fit, and all that is wrong told at once.

use std::sync::Arc;
use std::time::Duration;

use super::known::Results;
use super::runnable::{ReadyStep, ReadyTarget, Runnable};
use super::typed::{Given, Typed};
use crate::action::{Action, DEFAULT_TIMEOUT, Requirement, Retry, Step, Target, Template};
use crate::call::{ConnectorRef, Pipeline};
use crate::document::{Findings, Key, Refused};
use crate::error::{Error, HostError, HostErrorKind};
use crate::failure::{AuditId, Cause, Context};
use crate::manifest::{Effect, HostGrant, Manifest};
use crate::package::Operation;
use crate::resilience::{Backoff, Jitter, Profile, Schedule, Settings};
use crate::spelling;
use crate::vault::BindingName;

/// The name of the profile that a step's own four fields are.
const OWN: &str = "own";

/// What was found of a required connector.
struct Package {
    connector: ConnectorRef,
    manifest: Manifest,
    operations: Vec<Operation>,
    /// Whether the action lets it reach any host.
    reaches: bool,
}

/// Checks an action. Connectors are read, verified and compiled as a call would; nothing of them runs.
///
/// # Errors
/// `validation`: everything that is wrong with the action here, each with its line and key; the host's own trouble.
pub(crate) async fn check(pipeline: &Pipeline, action: Arc<Action>) -> Result<Runnable, HostError> {
    let toml = action.text.toml();
    let mut findings = Findings::new(action.text.label(), action.text.text(), &toml);
    let mut packages = Vec::with_capacity(action.requires().len());
    for (at, required) in action.requires().iter().enumerate() {
        packages.push(package(pipeline, required, at, &mut findings).await?);
    }
    let ceiling = pipeline.loader.ceilings.wall_time();
    let timeout = whole_time(&action, ceiling, &mut findings);
    let found: Vec<Option<(ReadyTarget, Vec<ReadyTarget>)>> = action
        .steps()
        .iter()
        .zip(0..)
        .map(|(step, at)| targets(step, at, &packages, &mut findings))
        .collect();
    let mut steps = Vec::with_capacity(found.len());
    for (at, (step, ready)) in action.steps().iter().zip(&found).enumerate() {
        let retry = retry(step, at, &pipeline.settings, &mut findings);
        if step.timeout().is_some_and(|timeout| timeout > ceiling) {
            let refused = above(ceiling, "ask for that or less");
            findings.refuse(&[Key::Name("execute"), Key::At(at), Key::Name("timeout")], &refused);
        }
        let Some((target, alternates)) = ready else { continue };
        let idempotent = repeatable(step, at, &packages, &mut findings);
        let results: Results<'_> = found.iter().take(at).map(operations).collect();
        inputs(&action, step, at, (target, alternates), &results, &mut findings);
        steps.push(ReadyStep {
            target: target.clone(),
            idempotent,
            retry: retry.flatten(),
            alternates: alternates.clone(),
        });
    }
    findings.finish().map_err(crate::document::DocumentError::into_host_error)?;
    Ok(Runnable { action, timeout, steps })
}

/// Whose value a step's may be.
fn operations(found: &Option<(ReadyTarget, Vec<ReadyTarget>)>) -> Option<Vec<&Operation>> {
    let (target, alternates) = found.as_ref()?;
    Some(std::iter::once(target).chain(alternates).map(ReadyTarget::operation).collect())
}

/// The connector as it is installed, verified; none where it was told why it cannot be used.
async fn package(
    pipeline: &Pipeline,
    required: &Requirement,
    at: usize,
    findings: &mut Findings<'_>,
) -> Result<Option<Package>, HostError> {
    let here = [Key::Name("requires"), Key::Name("connectors"), Key::At(at)];
    let under = |key| [here.as_slice(), &[Key::Name(key)]].concat();
    let connector = ConnectorRef::new(required.connector().clone(), required.version().clone());
    let context = Context::new(AuditId::mint()).with_connector(Arc::clone(connector.text()), None);
    let loaded = match pipeline.loader.load(&context, &connector, connector.text(), false).await {
        Ok(loaded) => loaded,
        Err(Error::Host(error)) if error.kind() == HostErrorKind::ConnectorNotFound => {
            let hint = error.hint_text().unwrap_or("Install it.");
            let fix = format!("install it with `cofferdam install`, or name another; {}", lower(hint));
            findings.refuse(&under("name"), &Refused::new(format!("{connector} is not installed"), fix));
            return Ok(None);
        }
        Err(Error::Host(error)) => return Err(error),
        Err(Error::Failure(failure)) => {
            let message = format!("{connector} may not run here: {}", failure.message());
            let fix = format!("`cofferdam verify {connector}` says the same, and what to do");
            findings.refuse(&under("name"), &Refused::new(message, fix));
            return Ok(None);
        }
    };
    let package = &loaded.checked.package;
    if package.digest() != required.hash() {
        let message = format!("the installed package of {connector} is another: sha256:{}", package.digest());
        let fix = format!(
            "look at it with `cofferdam inspect {connector}` and write its hash, or install the one that was meant"
        );
        findings.refuse(&under("hash"), &Refused::new(message, fix));
        return Ok(None);
    }
    let found = Package {
        connector: connector.pinned(*package.digest()),
        manifest: package.manifest().clone(),
        operations: package.operations().to_vec(),
        reaches: !required.scope().hosts().is_empty(),
    };
    scope(required, &found, &here, findings);
    Ok(Some(found))
}

/// What the action declares of a connector is the connector's to give.
fn scope(required: &Requirement, found: &Package, here: &[Key<'_>], findings: &mut Findings<'_>) {
    let (connector, scope) = (&found.connector, required.scope());
    let known = || found.operations.iter().map(|operation| operation.name().json());
    let capabilities = |key, at| [here, &[Key::Name("capabilities"), Key::Name(key), Key::At(at)]].concat();
    let mut fine = true;
    for (at, operation) in scope.operations().iter().enumerate() {
        if !known().any(|name| name == operation) {
            let fix = match spelling::nearest(operation, known()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("it has: {}", known().collect::<Vec<_>>().join(", ")),
            };
            let message = format!("{connector} has no operation `{operation}`");
            findings.refuse(&capabilities("operations", at), &Refused::new(message, fix));
            fine = false;
        }
    }
    for (at, host) in scope.hosts().iter().enumerate() {
        if !found.manifest.hosts().contains(host) {
            let granted: Vec<_> = found.manifest.hosts().iter().map(HostGrant::to_string).collect();
            let message =
                format!("the manifest of {connector} does not grant {host}: an action can only narrow");
            let fix = match granted.is_empty() {
                true => "remove it: the connector is granted no hosts".to_owned(),
                false => format!("remove it, or write one of {}", granted.join(", ")),
            };
            findings.refuse(&capabilities("hosts", at), &Refused::new(message, fix));
            fine = false;
        }
    }
    if fine && let Err(denial) = scope.fits(known(), found.manifest.hosts()) {
        let path = [here, &[Key::Name("capabilities")]].concat();
        findings.refuse(&path, &Refused::new(denial.message(), "narrow what the action declares"));
    }
    for (service, identity) in scope.identities() {
        let path = [here, &[Key::Name("identity"), Key::Name(service)]].concat();
        let Some(grant) = found.manifest.credentials().iter().find(|grant| grant.service() == service) else {
            let services: Vec<_> = found.manifest.credentials().iter().map(|grant| grant.service()).collect();
            let message = format!("{connector} asks for no credential of this service");
            let fix = match services.is_empty() {
                true => "remove it: the connector asks for no credentials".to_owned(),
                false => format!("it asks for: {}", services.join(", ")),
            };
            findings.refuse(&path, &Refused::new(message, fix));
            continue;
        };
        if let Err(error) = BindingName::parse(&format!("{}/{service}/{identity}", grant.kind().name())) {
            let fix = "write the last part of a binding's name, as `cofferdam binding list` shows it";
            findings.refuse(&path, &Refused::new(error.to_string(), fix));
        }
    }
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
    step: &Step,
    at: usize,
    packages: &[Option<Package>],
    findings: &mut Findings<'_>,
) -> Option<(ReadyTarget, Vec<ReadyTarget>)> {
    let here = [Key::Name("execute"), Key::At(at)];
    let first = target(step.target(), packages, &here, findings);
    let alternates: Vec<_> = step
        .fallback()
        .iter()
        .zip(0..)
        .map(|(other, n)| {
            let here = [here.as_slice(), &[Key::Name("fallback"), Key::At(n)]].concat();
            target(other, packages, &here, findings)
        })
        .collect();
    Some((first?, alternates.into_iter().collect::<Option<_>>()?))
}

fn target(
    target: &Target,
    packages: &[Option<Package>],
    here: &[Key<'_>],
    findings: &mut Findings<'_>,
) -> Option<ReadyTarget> {
    let package = packages.get(target.requirement())?.as_ref()?;
    let found = package.operations.iter().find(|operation| operation.name().json() == target.op());
    if found.is_none() && findings.is_empty() {
        // That it is none of the connector's was told of the capabilities, which it is among.
        let message = format!("{} has no operation `{}`", package.connector, target.op());
        findings.refuse(&[here, &[Key::Name("op")]].concat(), &Refused::new(message, "name one that it has"));
    }
    // What reaches no host can only compute.
    let unsaid = (!package.reaches).then_some(Effect::ReadOnly);
    let effect = package.manifest.effect(target.op()).or(unsaid);
    Some(ReadyTarget { connector: package.connector.clone(), operation: found?.clone(), effect })
}

/// Whether the step may be repeated. What its manifest forbids no file allows.
fn repeatable(step: &Step, at: usize, packages: &[Option<Package>], findings: &mut Findings<'_>) -> bool {
    let says = |target: &Target| {
        let package = packages.get(target.requirement()).and_then(Option::as_ref);
        package.is_some_and(|package| package.manifest.idempotent(target.op()))
    };
    let here = [Key::Name("execute"), Key::At(at)];
    let own = says(step.target());
    if step.repeatable && !own {
        let message = format!("`{}` must not be repeated, says its connector's manifest", step.target().op());
        let fix = "remove it: a file can only make it stricter";
        findings.refuse(&[here.as_slice(), &[Key::Name("idempotent")]].concat(), &Refused::new(message, fix));
    }
    let once = step.once || !own;
    for (n, other) in step.fallback().iter().enumerate() {
        if once || !says(other) {
            let which = if once { step.target().op() } else { other.op() };
            let message = format!("`{which}` must not be repeated, and who is asked instead might repeat it");
            let path = [here.as_slice(), &[Key::Name("fallback"), Key::At(n)]].concat();
            findings.refuse(&path, &Refused::new(message, "remove the fallback"));
        }
    }
    !once
}

/// The step's profile; none at all where it was told that it cannot be.
fn retry(
    step: &Step,
    at: usize,
    settings: &Settings,
    findings: &mut Findings<'_>,
) -> Option<Option<Arc<Profile>>> {
    let path = [Key::Name("execute"), Key::At(at), Key::Name("retry")];
    match step.retry() {
        None => Some(None),
        Some(Retry::Profile(name)) => match settings.profile(name) {
            Some(profile) => Some(Some(profile)),
            None => {
                findings.refuse(&path, &settings.unknown(name));
                None
            }
        },
        Some(Retry::Own { max, initial, max_delay, jitter }) => {
            let jitter = if *jitter == 0.0 { Jitter::None } else { Jitter::Plus(*jitter) };
            let standard = Settings::default().profile("standard");
            let causes: Vec<_> = Cause::ALL
                .into_iter()
                .filter(|cause| standard.as_ref().is_some_and(|it| it.schedule(*cause).is_some()))
                .collect();
            let attempts = max.saturating_add(1);
            let profile = Schedule::new(attempts, Backoff::Exponential, *initial, *max_delay, jitter)
                .and_then(|schedule| Profile::new(OWN, schedule, &causes));
            match profile {
                Ok(profile) => Some(Some(Arc::new(profile))),
                Err(error) => {
                    findings.refuse(&path, &Refused::new(error.to_string(), "correct the four fields"));
                    None
                }
            }
        }
    }
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

fn lower(sentence: &str) -> String {
    let mut chars = sentence.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
