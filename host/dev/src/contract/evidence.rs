//! The evidence that the runs give of a connector's grants and limits.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_core::secret::Scanner;
use cofferdam_egress::vault::{Binding, scanner_for};
use cofferdam_model::manifest::{CredentialGrant, CredentialPlacement, HostGrant};
use http::header::AUTHORIZATION;

use super::report::Headroom;
use super::trial::Trial;
use crate::runner::Execution;
use crate::scenario::{Scenario, TestedConnector};
use crate::service::{SeenRequest, WireRequest};

/// The evidence of all runs.
pub(super) struct Evidence {
    grants: Vec<CredentialGrant>,
    pub(super) hosts: BTreeSet<HostGrant>,
    pub(super) credentials: BTreeSet<String>,
    pub(super) sends_requests: bool,
    /// The requests that a scenario shows to be as good twice as once.
    repeatable: BTreeSet<RequestName>,
    headroom: BTreeMap<String, Headroom>,
}

impl Evidence {
    pub(super) fn new(tested: &TestedConnector) -> Self {
        Self {
            grants: tested.manifest().credentials().to_vec(),
            hosts: BTreeSet::new(),
            credentials: BTreeSet::new(),
            sends_requests: false,
            repeatable: BTreeSet::new(),
            headroom: BTreeMap::new(),
        }
    }

    /// Adds a scenario as it is.
    pub(super) fn add_baseline(&mut self, scenario: &Scenario, execution: &Execution, passed: bool) {
        let requests = &execution.end.requests;
        self.hosts.extend(requests.iter().map(|seen| seen.host.clone()));
        self.credentials.extend(used_credentials(&self.grants, &scenario.bindings, requests));
        self.sends_requests |= !requests.is_empty();
        if passed {
            self.repeatable.extend(repeated(scenario, execution));
        }
        for (call, finished) in scenario.calls.iter().zip(&execution.calls).filter(|_| passed) {
            for usage in finished.report.attempts.iter().filter_map(|attempt| attempt.usage.as_ref()) {
                self.headroom.entry(call.operation.clone()).or_default().add(usage, finished.outcome.is_ok());
            }
        }
    }

    /// Returns whether a scenario shows that this request of `operation` is as good twice as once.
    pub(super) fn is_repeatable(&self, operation: &str, seen: &SeenRequest) -> bool {
        RequestName::new(operation, seen).is_some_and(|name| self.repeatable.contains(&name))
    }

    /// Adds a run of the matrix.
    pub(super) fn add_trial(&mut self, trial: &Trial, execution: &Execution) {
        let Some(finished) = execution.calls.get(trial.call) else { return };
        for usage in finished.report.attempts.iter().filter_map(|attempt| attempt.usage.as_ref()) {
            self.headroom.entry(trial.operation().to_owned()).or_default().add(usage, false);
        }
    }

    /// Returns the most that `operation` used.
    pub(super) fn headroom(&self, operation: &str) -> Option<&Headroom> {
        self.headroom.get(operation)
    }
}

/// A request of an operation, whatever is in its query and body.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RequestName {
    operation: String,
    method: String,
    host: HostGrant,
    path: String,
}

impl RequestName {
    fn new(operation: &str, seen: &SeenRequest) -> Option<Self> {
        let request = seen.request.as_ref()?;
        let (method, path) = (request.method.clone(), request.path().to_owned());
        Some(Self { operation: operation.to_owned(), method, host: seen.host.clone(), path })
    }
}

/// Returns the requests that two calls of one operation sent alike, with the same value: the scenario says what the
/// service makes of the second.
fn repeated(scenario: &Scenario, execution: &Execution) -> Vec<RequestName> {
    let mut repeated = Vec::new();
    let requests = &execution.end.requests;
    let value = |call: usize| execution.calls.get(call).and_then(|call| call.outcome.as_ref().ok());
    let operation = |call: usize| scenario.calls.get(call).map(|call| call.operation.as_str());
    for (at, seen) in requests.iter().enumerate() {
        let is_again = |before: &SeenRequest| {
            before.call < seen.call
                && operation(before.call) == operation(seen.call)
                && is_same_request(before, seen)
                && value(before.call).is_some()
                && value(before.call) == value(seen.call)
        };
        if requests.iter().take(at).any(is_again) {
            repeated.extend(operation(seen.call).and_then(|operation| RequestName::new(operation, seen)));
        }
    }
    repeated
}

/// Returns whether two requests are the same, whatever keys they carry.
pub(super) fn is_same_request(one: &SeenRequest, other: &SeenRequest) -> bool {
    match (&one.request, &other.request) {
        (Some(a), Some(b)) => {
            one.host == other.host && a.method == b.method && a.target == b.target && a.body == b.body
        }
        _ => false,
    }
}

/// Returns the labels of the credentials that requests carried.
pub(super) fn used_credentials(
    grants: &[CredentialGrant],
    bindings: &[Binding],
    requests: &[SeenRequest],
) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for seen in requests {
        let Some(request) = &seen.request else { continue };
        for grant in grants.iter().filter(|grant| grant.hosts().contains(&seen.host)) {
            let is_carried = match grant.placement() {
                CredentialPlacement::Header { name, .. } => request.headers.contains_key(name),
                CredentialPlacement::Query { name } => {
                    url::form_urlencoded::parse(request.query().as_bytes()).any(|(own, _)| own == *name)
                }
                CredentialPlacement::Signature => {
                    let value = request.headers.get(AUTHORIZATION);
                    value.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"))
                }
                CredentialPlacement::Handle => {
                    let own = bindings
                        .iter()
                        .filter(|it| it.name.kind() == grant.kind() && it.name.service() == grant.service());
                    carries(request, &scanner_for(own))
                }
            };
            if is_carried {
                used.insert(grant.label());
            }
        }
    }
    used
}

/// Returns whether a secret is anywhere in the request.
fn carries(request: &WireRequest, scanner: &Scanner) -> bool {
    scanner.finds(request.target.as_bytes())
        || scanner.finds(&request.body)
        || request.headers.values().any(|value| scanner.find_in_value(value.as_bytes()).is_some())
}
