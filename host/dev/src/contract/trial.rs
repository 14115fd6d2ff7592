//! The matrix: which calls are made again, and what is changed in each.

use std::sync::Arc;

use cofferdam_core::limits::{LimitRequest, Usage};
use cofferdam_model::manifest::HostGrant;

use super::evidence::used_credentials;
use super::{InjectedFault, is_repeated};
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
    /// Less fuel than the call used; `slightly` less, or half.
    Fuel { limit: u64, slightly: bool },
    /// Less memory than the call used, in KiB.
    Memory { kibibytes: u64, slightly: bool },
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
            Change::Fuel { limit, .. } => Variation { limits: limits(Some(*limit), None), ..own },
            Change::Memory { kibibytes, .. } => Variation { limits: limits(None, Some(*kibibytes)), ..own },
        }
    }

    /// Returns what is changed, in a few words.
    pub(super) fn words(&self) -> String {
        let what = match &self.change {
            Change::Fault { fault, request, .. } => format!("{} at {request}", fault.words()),
            Change::DeniedHost(host) => format!("without the host {host}"),
            Change::MissingCredential(label) => format!("without the credential {label}"),
            Change::Fuel { limit, .. } => format!("with {limit} fuel"),
            Change::Memory { kibibytes, .. } => format!("with {kibibytes} KiB of memory"),
        };
        format!("`{}`, {what}", self.operation())
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
        let repeats = is_repeated(tested.manifest(), operation);
        let changes = changes(scenario, &requests, &usage, tested, repeats);
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
    repeats: bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for seen in requests {
        let Some(step) = seen.step else { continue };
        let passing = InjectedFault::PASSING.into_iter().filter(|_| repeats).map(|fault| (fault, true));
        for (fault, passes) in InjectedFault::ALL.map(|fault| (fault, false)).into_iter().chain(passing) {
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
    for (limit, slightly) in [(usage.fuel / 2, false), (usage.fuel.saturating_sub(1), true)] {
        if limit >= LEAST_FUEL {
            changes.push(Change::Fuel { limit, slightly });
        }
    }
    let kibibytes = usage.memory >> 10;
    for (kibibytes, slightly) in [(kibibytes / 2, false), (kibibytes.saturating_sub(1), true)] {
        if kibibytes > 0 {
            changes.push(Change::Memory { kibibytes, slightly });
        }
    }
    changes
}

/// Returns a request in a few words.
pub(super) fn words(seen: &SeenRequest) -> String {
    match &seen.request {
        Some(request) => format!("{} {}{}", request.method, url_of(&seen.host), request.path()),
        None => format!("a connection to {}", seen.host),
    }
}
