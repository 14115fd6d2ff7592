//! The matrix: which calls are made again, and what is changed in each.

use std::sync::Arc;

use cofferdam_core::failure::RepeatRule;
use cofferdam_core::limits::{LimitRequest, Usage};
use cofferdam_model::manifest::HostGrant;

use super::InjectedFault;
use super::evidence::used_credentials;
use crate::runner::{Execution, FinishedCall, Variation};
use crate::scenario::{Scenario, TestedConnector};
use crate::service::{Injection, SeenRequest, url_of};

/// The least fuel and memory of a limit that is tried: below it, nothing starts.
const LEAST_FUEL: u64 = 1_000;

/// One run of a scenario in which one thing is changed.
pub(super) struct Trial {
    pub(super) scenario: Arc<Scenario>,
    /// The index of the call that is changed.
    pub(super) call: usize,
    pub(super) change: Change,
    /// The requests of the call as it is.
    pub(super) baseline: Arc<[SeenRequest]>,
}

/// The change of a trial.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A fault at one request.
    Fault {
        fault: InjectedFault,
        step: usize,
        nth: u32,
        /// The request, in a few words.
        request: String,
        /// True if it passes: the same request of the next attempt is answered.
        passes: bool,
    },
    /// A host is denied.
    DeniedHost(HostGrant),
    /// A credential is not bound.
    MissingCredential(String),
    /// Less fuel than the call used.
    Fuel(u64),
    /// Less memory than the call used, in KiB.
    Memory(u64),
}

impl Trial {
    /// Returns the operation that is called.
    pub(super) fn operation(&self) -> &str {
        self.scenario.calls.get(self.call).map_or("", |call| &call.operation)
    }

    /// Returns the run as a variation of its scenario.
    pub(super) fn variation(&self) -> Variation {
        let own = Variation { call: Some(self.call), replays_attempts: true, ..Variation::default() };
        match &self.change {
            Change::Fault { fault, step, nth, passes, .. } => {
                let injection = Injection { step: *step, nth: *nth, fault: *fault, once: *passes };
                Variation { injection: Some(injection), ..own }
            }
            Change::DeniedHost(host) => Variation { without_host: Some(host.clone()), ..own },
            Change::MissingCredential(label) => Variation { without_credential: Some(label.clone()), ..own },
            Change::Fuel(limit) => Variation { limits: limits(Some(*limit), None), ..own },
            Change::Memory(kibibytes) => Variation { limits: limits(None, Some(*kibibytes)), ..own },
        }
    }

    /// Returns what is changed, in a few words.
    pub(super) fn words(&self) -> String {
        format!("`{}`, {}", self.operation(), self.change.words())
    }
}

impl Change {
    /// Returns the change in a few words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Fault { fault, request, .. } => format!("{} at {request}", fault.words()),
            Self::DeniedHost(host) => format!("without the host {host}"),
            Self::MissingCredential(label) => format!("without the credential {label}"),
            Self::Fuel(limit) => format!("with {limit} fuel"),
            Self::Memory(kibibytes) => format!("with {kibibytes} KiB of memory"),
        }
    }
}

fn limits(fuel: Option<u64>, kibibytes: Option<u64>) -> LimitRequest {
    let memory = kibibytes.map(|kibibytes| format!("{kibibytes}KiB"));
    // Neither is zero.
    LimitRequest::parse(fuel, None, memory.as_deref()).unwrap_or_default()
}

/// Returns the trials of a scenario: of each call that returned a value in one attempt.
pub(super) fn trials_of(
    scenario: &Arc<Scenario>,
    execution: &Execution,
    tested: &TestedConnector,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (call, finished) in execution.calls.iter().enumerate() {
        let Some(usage) = value_in_one_attempt(finished) else { continue };
        let Some(operation) = scenario.calls.get(call).map(|call| &call.operation) else { continue };
        let requests = execution.end.requests.iter().filter(|request| request.call == call);
        let requests: Arc<[SeenRequest]> = requests.cloned().collect();
        let rule = tested.manifest().repeat_rule(operation);
        let changes = changes(scenario, &requests, &usage, tested, rule);
        trials.extend(changes.into_iter().map(|change| Trial {
            scenario: Arc::clone(scenario),
            call,
            change,
            baseline: Arc::clone(&requests),
        }));
    }
    trials
}

/// Returns the usage of a call that returned a value in its only attempt.
fn value_in_one_attempt(call: &FinishedCall) -> Option<Usage> {
    match (&call.outcome, call.report.attempts.as_slice()) {
        (Ok(_), [only]) => only.usage,
        _ => None,
    }
}

fn changes(
    scenario: &Scenario,
    requests: &[SeenRequest],
    usage: &Usage,
    tested: &TestedConnector,
    rule: RepeatRule,
) -> Vec<Change> {
    let (may_repeat, always_repeats) = (rule != RepeatRule::Never, rule == RepeatRule::Always);
    let mut changes = Vec::new();
    for seen in requests {
        let Some(step) = seen.step else { continue };
        let in_wait = always_repeats.then_some(InjectedFault::CancelledInWait);
        let lasting = InjectedFault::ALL.into_iter().chain(in_wait).map(|fault| (fault, false));
        let passing = InjectedFault::PASSING.into_iter().filter(|_| may_repeat).map(|fault| (fault, true));
        for (fault, passes) in lasting.chain(passing) {
            // A connection is refused before its request can be told from others.
            if fault == InjectedFault::Refused && scenario.unordered && scenario.service.len() > 1 {
                continue;
            }
            changes.push(Change::Fault { fault, step, nth: seen.nth, request: words(seen), passes });
        }
    }
    let mut hosts: Vec<_> = requests.iter().map(|seen| seen.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    changes.extend(hosts.into_iter().map(Change::DeniedHost));
    let grants = tested.manifest().credentials();
    let used = used_credentials(grants, &scenario.bindings, requests);
    let required = grants.iter().filter(|grant| !grant.optional() && used.contains(&grant.label()));
    changes.extend(required.map(|grant| Change::MissingCredential(grant.label())));
    // Half of it, and slightly less than all of it.
    let less = |used: u64| [used / 2, used.saturating_sub(1)];
    changes.extend(less(usage.fuel).into_iter().filter(|fuel| *fuel >= LEAST_FUEL).map(Change::Fuel));
    changes
        .extend(less(usage.memory >> 10).into_iter().filter(|kibibytes| *kibibytes > 0).map(Change::Memory));
    changes
}

/// Returns a request in a few words.
pub(super) fn words(seen: &SeenRequest) -> String {
    match &seen.request {
        Some(request) => format!("{} {}{}", request.method, url_of(&seen.host), request.path()),
        None => format!("a connection to {}", seen.host),
    }
}
