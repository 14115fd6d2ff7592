//! Whether a step may be tried again, and how: what its manifest and its file say of it must agree.

use std::sync::Arc;

use cofferdam_core::document::{Findings, Key, Refused};
use cofferdam_core::failure::{Cause, RepeatRule};
use cofferdam_egress::resilience::{Backoff, Jitter, Profile, Schedule, Settings};
use cofferdam_model::action::{Retry, Step, Target};

use super::packages::Package;
use super::runnable::Once;

/// The name of the profile that a step's own four fields are.
const OWN: &str = "own";

/// Who says that the step must not be repeated, if anybody does. What its manifest forbids no file allows; and a retry
/// of what must not be repeated would never come, so that whoever wrote it is told. `retry` is what the file says of
/// that, as [`retry`] reads it.
pub(super) fn once(
    step: &Step,
    at: usize,
    packages: &[Option<&Package>],
    retry: Option<&Option<Arc<Profile>>>,
    findings: &mut Findings<'_>,
) -> Option<Once> {
    // Of a package that is not there it is not known; that was told.
    let rule = |target: &Target| {
        let package = packages.get(target.requirement()).copied().flatten();
        package.map(|package| package.manifest.repeat_rule(target.op()))
    };
    let forbids = |target: &Target| rule(target) == Some(RepeatRule::Never);
    let here = [Key::Name("execute"), Key::At(at)];
    let under = |key| [here.as_slice(), &[Key::Name(key)]].concat();
    let (own, op) = (forbids(step.target()), step.target().op());
    if step.repeatable && own {
        let message = format!("`{op}` must not be repeated, says its connector's manifest");
        let fix = "remove it: a file can only make it stricter";
        findings.refuse(&under("idempotent"), &Refused::new(message, fix));
    } else if step.repeatable && rule(step.target()) == Some(RepeatRule::UnlessUnkeyed) {
        let message = format!("`{op}` is not declared idempotent by its connector's manifest");
        let fix = "remove it: a file can only make it stricter, and the host decides by what the step sends";
        findings.refuse(&under("idempotent"), &Refused::new(message, fix));
    }
    let once = match (own, step.once) {
        (true, _) => Some(Once::Manifest),
        (false, true) => Some(Once::File),
        (false, false) => None,
    };
    for (n, other) in step.fallback().iter().enumerate() {
        if once.is_some() || forbids(other) {
            let which = if once.is_some() { op } else { other.op() };
            let message = format!("`{which}` must not be repeated, and who is asked instead might repeat it");
            let path = [here.as_slice(), &[Key::Name("fallback"), Key::At(n)]].concat();
            findings.refuse(&path, &Refused::new(message, "remove the fallback"));
        }
    }
    let repeats = retry.and_then(Option::as_ref).is_some_and(|profile| profile.max_attempts() > 1);
    if let Some(once) = once.filter(|_| repeats) {
        let message = format!("nothing would be tried again: `{op}` must not be repeated, {}", once.says());
        let fix = match once {
            Once::Manifest => "remove it, or write \"none\"",
            Once::File => {
                "remove it, or write \"none\"; or remove `idempotent = false`, if it may be repeated"
            }
        };
        findings.refuse(&under("retry"), &Refused::new(message, fix));
    }
    once
}

/// The profile that a step names, or is; none at all where it was told that it cannot be.
pub(super) fn retry(
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
