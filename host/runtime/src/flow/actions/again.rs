//! Determines the repeat rule and the retry profile of a step: its manifest and its file must agree about them.

use std::sync::Arc;

use cofferdam_core::document::{Diagnostics, InvalidValue, PathSegment};
use cofferdam_core::failure::{FailureCause, RepeatRule};
use cofferdam_egress::resilience::{Backoff, Jitter, ResilienceSettings, RetryProfile, RetrySchedule};
use cofferdam_model::action::{ActionStep, StepRetry, StepTarget};

use super::packages::StepPackage;
use super::runnable::NonIdempotentReason;

/// The name of the profile that consists of a step's own four fields.
const OWN: &str = "own";

/// Returns the source of the rule that the step must not be repeated, if there is one. A file cannot allow what its
/// manifest forbids. A retry of a step that must not be repeated would never happen, so it is reported to the
/// action's author. `retry` is the file's retry setting, as read by [`retry`].
pub(super) fn once(
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
        let message = format!("nothing would be tried again: `{op}` must not be repeated, {}", once.says());
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
