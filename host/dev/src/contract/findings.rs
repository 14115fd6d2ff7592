//! The rules of the contract, applied to runs.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_core::error::Error;
use cofferdam_core::failure::{FailureClass, RepeatRule};
use cofferdam_model::manifest::{DeclaredIdempotency, Manifest, OperationEffect};
use serde_json::Value;

use super::InjectedFault;
use super::evidence::{Evidence, is_same_request};
use super::fault::{CANARY, FaultVerdict, is_crash};
use super::manifest_lines::ManifestLines;
use super::report::{ContractRule, Finding};
use super::trial::{Change, Trial, words};
use crate::runner::{Execution, FinishedCall};
use crate::scenario::{ExpectedOutcome, Scenario, TestedConnector};
use crate::service::SeenRequest;

/// The methods that change nothing.
const SAFE: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

/// The methods that have one effect, however often the same request arrives.
const IDEMPOTENT: [&str; 2] = ["PUT", "DELETE"];

/// The interface that sends requests.
const OUTGOING: &str = "wasi:http/outgoing-handler";

/// The findings so far.
pub(super) struct Findings<'l> {
    lines: &'l ManifestLines,
    found: Vec<Finding>,
    notes: BTreeSet<String>,
}

/// A finding before it has its scenario and its faults.
struct Broken<'b> {
    rule: ContractRule,
    operation: &'b str,
    message: String,
    manifest: Option<String>,
    fix: String,
}

impl<'l> Findings<'l> {
    pub(super) fn new(lines: &'l ManifestLines) -> Self {
        Self { lines, found: Vec::new(), notes: BTreeSet::new() }
    }

    /// Returns the findings, by operation and rule, and the notes.
    pub(super) fn into_parts(self) -> (Vec<Finding>, Vec<String>) {
        let mut found = self.found;
        found.sort_by(|a, b| (&a.operation, a.rule, &a.message).cmp(&(&b.operation, b.rule, &b.message)));
        (found, self.notes.into_iter().collect())
    }

    /// Adds something that is not a finding.
    pub(super) fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// Adds a finding; the same one of another fault or scenario only adds the fault.
    fn add(&mut self, broken: Broken<'_>, scenario: &Scenario, fault: Option<InjectedFault>) {
        let Broken { rule, operation, message, manifest, fix } = broken;
        let operation = Some(operation.to_owned());
        let fault = fault.map(InjectedFault::words);
        let known = |it: &&mut Finding| it.rule == rule && it.operation == operation && it.message == message;
        if let Some(known) = self.found.iter_mut().find(known) {
            known.faults.extend(fault.filter(|fault| !known.faults.contains(fault)));
            return;
        }
        let scenario = Some(scenario.place.to_string());
        let faults = fault.into_iter().collect();
        self.found.push(Finding { rule, operation, message, faults, manifest, scenario, fix });
    }

    /// Judges a scenario as it is.
    pub(super) fn judge_baseline(
        &mut self,
        scenario: &Scenario,
        execution: &Execution,
        manifest: &Manifest,
        evidence: &Evidence,
    ) {
        for (at, (call, finished)) in scenario.calls.iter().zip(&execution.calls).enumerate() {
            let operation = call.operation.as_str();
            let requests: Vec<_> = requests_of(execution, at).collect();
            self.judge_failure_text(operation, scenario, finished, None);
            self.judge_read_only(operation, scenario, finished, &requests, manifest);
            self.judge_keys(operation, scenario, &requests, manifest, evidence);
        }
    }

    /// A `read_only` operation sends nothing that changes anything. The host prevents it, so that the evidence is a
    /// denial.
    fn judge_read_only(
        &mut self,
        operation: &str,
        scenario: &Scenario,
        finished: &FinishedCall,
        requests: &[&SeenRequest],
        manifest: &Manifest,
    ) {
        if manifest.effect(operation) != Some(OperationEffect::ReadOnly) {
            return;
        }
        let sent = requests.iter().filter_map(|seen| seen.request.as_ref());
        let sent = sent.map(|request| request.method.as_str()).find(|method| !SAFE.contains(method));
        let denied = match &finished.outcome {
            Err(Error::Failure(failure)) if failure.code() == "method_not_granted" => {
                failure.details().get("requested").and_then(Value::as_str)
            }
            _ => None,
        };
        let Some(what) = sent.or_else(|| denied.map(|text| text.trim_start_matches("method:"))) else {
            return;
        };
        let manifest = self.lines.effect(operation);
        let line = manifest.clone().unwrap_or_default();
        let message = format!("`{operation}` is declared read_only at {line}, and it sends {what}");
        let fix = format!(
            "declare what it does, like {operation} = \"additive\" under [connector.effects.operations], or send only GET, \
             HEAD and OPTIONS"
        );
        self.add(
            Broken { rule: ContractRule::ReadOnlyWrites, operation, message, manifest, fix },
            scenario,
            None,
        );
    }

    /// The requests of an operation that is declared idempotent carry the call's key, and no two of them the same.
    fn judge_keys(
        &mut self,
        operation: &str,
        scenario: &Scenario,
        requests: &[&SeenRequest],
        manifest: &Manifest,
        evidence: &Evidence,
    ) {
        if manifest.idempotency(operation) != DeclaredIdempotency::Declared {
            return;
        }
        let line = self.lines.idempotent(operation);
        let shown_line = line.clone().unwrap_or_default();
        let is_convergent = manifest.effect(operation) == Some(OperationEffect::Convergent);
        let is_proven = |seen: &SeenRequest| is_convergent || evidence.is_repeatable(operation, seen);
        let unkeyed = requests.iter().filter(|seen| needs_key(seen) && seen.key.is_none());
        for seen in unkeyed.filter(|seen| !is_proven(seen)) {
            let request = words(seen);
            let message = format!(
                "`{operation}` is declared idempotent at {shown_line}, and it sends {request} without the call's key"
            );
            let fix = format!(
                "send it with `Request::idempotency_key(label)` to a service that honours it, or declare {operation} = \
                 \"not_idempotent\"; if the same request sent twice is as good as once, show it: a scenario with two \
                 such calls, and the service's answer to each"
            );
            let rule = ContractRule::UnkeyedWrite;
            self.add(Broken { rule, operation, message, manifest: line.clone(), fix }, scenario, None);
        }
        let mut first: BTreeMap<(u32, &str), &SeenRequest> = BTreeMap::new();
        for seen in requests.iter().filter(|seen| needs_key(seen)) {
            let Some(key) = &seen.key else { continue };
            let before = first.entry((seen.attempt, key)).or_insert(seen);
            if !is_same(before, seen) {
                let (one, other) = (words(before), words(seen));
                let message = format!(
                    "`{operation}` is declared idempotent at {shown_line}, and it sends {one} and {other} under one key"
                );
                let fix = "give each request of a call a label of its own: the service takes the second for the first";
                let (rule, fix) = (ContractRule::SharedKey, fix.to_owned());
                self.add(Broken { rule, operation, message, manifest: line.clone(), fix }, scenario, None);
            }
        }
    }

    /// Every failure has a message, and repeats neither a secret nor what a service answered.
    fn judge_failure_text(
        &mut self,
        operation: &str,
        scenario: &Scenario,
        finished: &FinishedCall,
        fault: Option<InjectedFault>,
    ) {
        let Err(Error::Failure(failure)) = &finished.outcome else { return };
        let mut broken = |rule, message: String, fix: &str| {
            let fix = fix.to_owned();
            self.add(Broken { rule, operation, message, manifest: None, fix }, scenario, fault);
        };
        let shown = format!("{} ({})", failure.class().name(), failure.code());
        let own = failure.details().get("connector_message").and_then(Value::as_str);
        if failure.message().trim().is_empty() || own.is_some_and(|own| own.trim().is_empty()) {
            let fix = "say in one sentence what the caller can do: `Failure::failed(code, message)`";
            broken(
                ContractRule::EmptyMessage,
                format!("a failure of `{operation}`, {shown}, has no message"),
                fix,
            );
        }
        let mut envelope = serde_json::to_value(failure).unwrap_or_default();
        // The service's own word for an error is meant for callers.
        if let Some(details) = envelope.pointer_mut("/error/details").and_then(Value::as_object_mut) {
            details.remove("upstream_code");
        }
        let text = envelope.to_string();
        if text.contains(CANARY) {
            let fix = "keep what a service answers out of messages; `with_detail` is for the operator's log";
            let message = format!("a failure of `{operation}`, {shown}, repeats what the service answered");
            broken(ContractRule::PayloadInFailure, message, fix);
        }
        // The host prevents it, so that the evidence is a denial.
        if failure.code() == "secret_reflected"
            && failure.details().get("requested").and_then(Value::as_str) == Some("failure")
        {
            let message =
                format!("a failure of `{operation}` had a secret in it, and the host did not let it pass");
            let fix = "keep arguments and what a service answers out of messages";
            broken(ContractRule::SecretInFailure, message, fix);
        }
    }

    /// Judges a run of the matrix.
    pub(super) fn judge_trial(
        &mut self,
        trial: &Trial,
        execution: &Execution,
        manifest: &Manifest,
        evidence: &Evidence,
    ) {
        let Some(finished) = execution.calls.get(trial.call) else { return };
        let (operation, scenario) = (trial.operation(), &*trial.scenario);
        let fault = match &trial.change {
            Change::Fault { fault, .. } => Some(*fault),
            _ => None,
        };
        self.judge_failure_text(operation, scenario, finished, fault);
        if self.judge_unexpected(trial, execution, fault) {
            return;
        }
        self.judge_attempts(trial, execution, fault);
        match &trial.change {
            Change::Fault { fault, request, passes: true, .. } => {
                self.judge_recovery(trial, finished, *fault, request, manifest);
                self.judge_effects(trial, execution, *fault, request, (manifest, evidence));
            }
            Change::Fault { fault, request, passes: false, .. } => {
                self.judge_fault(trial, execution, finished, *fault, request);
            }
            change @ Change::DeniedHost(_) => {
                self.judge_class(trial, finished, &change.words(), FailureClass::CapabilityDenied);
            }
            change @ Change::MissingCredential(_) => {
                self.judge_class(trial, finished, &change.words(), FailureClass::BindingRequired);
            }
            // Less may do: what the host holds for a guest depends on the pieces in which a response comes.
            Change::Fuel(_) | Change::Memory(_) if finished.outcome.is_ok() => {}
            change @ (Change::Fuel(_) | Change::Memory(_)) => {
                self.judge_class(trial, finished, &change.words(), FailureClass::ResourceLimitExceeded);
            }
        }
    }

    /// Judges requests that the scenario does not have. Returns whether there are any: then nothing else can be told.
    fn judge_unexpected(
        &mut self,
        trial: &Trial,
        execution: &Execution,
        fault: Option<InjectedFault>,
    ) -> bool {
        let Some(unexpected) = execution.end.unexpected.first() else { return false };
        let operation = trial.operation();
        let attempt =
            execution.end.requests.iter().rfind(|seen| seen.step.is_none()).map_or(1, |it| it.attempt);
        let sent = format!("{} {}", unexpected.method, unexpected.url);
        if attempt == 1 {
            self.note(format!(
                "{}: it then sent {sent}, which the scenario has no answer for",
                trial.words()
            ));
            return true;
        }
        let differences = unexpected.nearest.as_ref().map(|(_, differences)| differences.as_slice());
        let first = differences.unwrap_or_default().first();
        let how = first.map(|it| format!(": {} is {} instead of {}", it.path, it.actual, it.expected));
        let message = format!(
            "`{operation}` sends {sent} in a repeated attempt, and not what it sent at first{}",
            how.unwrap_or_default()
        );
        self.add(changed_request(operation, message, self.lines), &trial.scenario, fault);
        true
    }

    /// The requests that change something are the same in every attempt.
    fn judge_attempts(&mut self, trial: &Trial, execution: &Execution, fault: Option<InjectedFault>) {
        let operation = trial.operation();
        let requests: Vec<_> = requests_of(execution, trial.call).filter(|seen| !is_safe(seen)).collect();
        for seen in requests.iter().filter(|seen| seen.attempt > 1) {
            let first =
                requests.iter().find(|it| it.attempt == 1 && (it.step, it.nth) == (seen.step, seen.nth));
            let Some(first) = first.filter(|first| first.request.is_some() && !is_same(first, seen)) else {
                continue;
            };
            let request = words(first);
            let message =
                format!("`{operation}` sends {request} with another body or key in a repeated attempt");
            self.add(changed_request(operation, message, self.lines), &trial.scenario, fault);
        }
    }

    fn judge_recovery(
        &mut self,
        trial: &Trial,
        finished: &FinishedCall,
        fault: InjectedFault,
        request: &str,
        manifest: &Manifest,
    ) {
        let operation = trial.operation();
        if manifest.repeat_rule(operation) != RepeatRule::Always {
            return;
        }
        let ended = match (
            &finished.outcome,
            trial.scenario.calls.get(trial.call).map(|call| &call.expect.outcome),
        ) {
            (Err(error), _) => format!("ended with {}", shown_error(error)),
            (Ok(value), Some(ExpectedOutcome::Value(pattern))) => {
                let mut differences = Vec::new();
                let key = finished.report.idempotency_key.as_deref().unwrap_or_default();
                pattern.compare(value, "value", key, &mut differences);
                match differences.first() {
                    None => return,
                    Some(it) => format!("returned another value: {} is {}", it.path, it.actual),
                }
            }
            (Ok(_), _) => return,
        };
        let message =
            format!("`{operation}` may be repeated, and after a fault at {request} that passed it {ended}");
        let fix = "have every attempt do the same, whatever the one before it did".to_owned();
        let manifest = self.lines.idempotent(operation).or_else(|| self.lines.effect(operation));
        let rule = ContractRule::NotRecovered;
        self.add(Broken { rule, operation, message, manifest, fix }, &trial.scenario, Some(fault));
    }

    fn judge_effects(
        &mut self,
        trial: &Trial,
        execution: &Execution,
        fault: InjectedFault,
        request: &str,
        (manifest, evidence): (&Manifest, &Evidence),
    ) {
        let operation = trial.operation();
        let is_convergent = manifest.effect(operation) == Some(OperationEffect::Convergent);
        let is_one = |seen: &SeenRequest| is_convergent || evidence.is_repeatable(operation, seen);
        let once = effects(trial.baseline.iter(), is_one);
        let now = effects(requests_of(execution, trial.call), is_one);
        if now <= once {
            return;
        }
        let message = format!(
            "`{operation}` had {now} effects instead of {once} at a service that honours keys, after a fault at {request}"
        );
        let fix = format!(
            "send each request that changes something with the call's key, or declare {operation} = \"not_idempotent\""
        );
        let manifest = self.lines.idempotent(operation);
        let rule = ContractRule::SecondEffect;
        self.add(Broken { rule, operation, message, manifest, fix }, &trial.scenario, Some(fault));
    }

    fn judge_fault(
        &mut self,
        trial: &Trial,
        execution: &Execution,
        finished: &FinishedCall,
        fault: InjectedFault,
        request: &str,
    ) {
        let operation = trial.operation();
        let (rule, message, fix) = match fault.judge(&finished.outcome) {
            FaultVerdict::Kept => return,
            FaultVerdict::Swallowed => {
                let said_so = execution.end.suppressing.contains(&trial.call);
                if said_so || finished.report.partial.is_some() {
                    return;
                }
                (
                    ContractRule::Swallowed,
                    format!("`{operation}` returned a value although {request} failed"),
                    "return the failure (`?`); if it does not matter, say so with `log::suppressed`, or list it in the \
                     result's `errors`",
                )
            }
            FaultVerdict::Crashed => {
                let place = panic_place(&finished.outcome).map(|place| format!(", at {place}"));
                (
                    ContractRule::Crash,
                    format!("`{operation}` crashed after a fault at {request}{}", place.unwrap_or_default()),
                    "return a failure instead of a panic: no `unwrap` on what a service answers",
                )
            }
            FaultVerdict::WrongClass => {
                let ended = finished.outcome.as_ref().err().map(shown_error).unwrap_or_default();
                let expected = fault.expected();
                (
                    ContractRule::WrongClass,
                    format!(
                        "a fault at {request} reached the caller of `{operation}` as {ended} instead of {expected}"
                    ),
                    "pass the error on with `?`, so that the host can tell what it was",
                )
            }
        };
        let fix = fix.to_owned();
        self.add(Broken { rule, operation, message, manifest: None, fix }, &trial.scenario, Some(fault));
    }

    fn judge_class(&mut self, trial: &Trial, finished: &FinishedCall, what: &str, expected: FailureClass) {
        let operation = trial.operation();
        let ended = match &finished.outcome {
            Err(Error::Failure(failure)) if failure.class() == expected => return,
            Err(error) => shown_error(error),
            Ok(_) => "a value".to_owned(),
        };
        let message =
            format!("{what} the call of `{operation}` ends with {ended} instead of {}", expected.name());
        let fix = "pass the error on with `?`, so that the host can tell what it was".to_owned();
        let rule = ContractRule::WrongClass;
        self.add(Broken { rule, operation, message, manifest: None, fix }, &trial.scenario, None);
    }

    /// Judges what the manifest grants and no scenario needed.
    pub(super) fn judge_grants(&mut self, tested: &TestedConnector, evidence: &Evidence) {
        let manifest = tested.manifest();
        let mut unused = Vec::new();
        for (at, host) in manifest.hosts().iter().enumerate() {
            if !evidence.hosts.contains(host) {
                unused.push((format!("the host \"{host}\""), self.lines.host(at)));
            }
        }
        for (at, grant) in manifest.credentials().iter().enumerate() {
            if !evidence.credentials.contains(&grant.label()) {
                unused.push((format!("the credential {}", grant.label()), self.lines.credential(at)));
            }
        }
        for import in manifest.imports() {
            if tested.unused_imports().contains(import) {
                unused.push((format!("the import \"{import}\""), self.lines.import(import)));
            } else if import.starts_with(OUTGOING) && !evidence.sends_requests {
                // Without it the component does not load: Python and JavaScript always import it.
                self.note(format!("no scenario sends a request, and the component imports \"{import}\""));
            }
        }
        for (what, place) in unused {
            let line = place.as_deref().unwrap_or_default();
            self.found.push(Finding {
                rule: ContractRule::UnusedGrant,
                operation: None,
                message: format!("{what} is granted at {line}, and no scenario needs it"),
                faults: Vec::new(),
                manifest: place,
                scenario: None,
                fix: "remove it, or add a scenario that needs it".to_owned(),
            });
        }
    }
}

fn changed_request<'b>(operation: &'b str, message: String, lines: &ManifestLines) -> Broken<'b> {
    Broken {
        rule: ContractRule::ChangedRequest,
        operation,
        message,
        manifest: lines.idempotent(operation).or_else(|| lines.effect(operation)),
        fix: "make the request from the arguments alone: no random values, times or numbers of attempts"
            .to_owned(),
    }
}

/// Returns the requests of the call at `index`.
fn requests_of(execution: &Execution, index: usize) -> impl Iterator<Item = &SeenRequest> {
    execution.end.requests.iter().filter(move |seen| seen.call == index)
}

fn is_safe(seen: &SeenRequest) -> bool {
    seen.request.as_ref().is_none_or(|request| SAFE.contains(&request.method.as_str()))
}

/// Returns whether only a key makes the request have one effect.
fn needs_key(seen: &SeenRequest) -> bool {
    let Some(request) = &seen.request else { return false };
    !SAFE.contains(&request.method.as_str()) && !IDEMPOTENT.contains(&request.method.as_str())
}

/// Returns whether a service would take two requests for one.
fn is_same(one: &SeenRequest, other: &SeenRequest) -> bool {
    one.request.is_none() || other.request.is_none() || (is_same_request(one, other) && one.key == other.key)
}

/// Counts the effects at a service that honours keys and the methods that HTTP calls idempotent; `is_one` are requests
/// that are as good twice as once.
fn effects<'r>(
    requests: impl Iterator<Item = &'r SeenRequest>,
    is_one: impl Fn(&SeenRequest) -> bool,
) -> usize {
    let mut named = BTreeSet::new();
    let mut unnamed = 0;
    for seen in requests.filter(|seen| seen.is_executed && !is_safe(seen)) {
        let Some(request) = &seen.request else { continue };
        match &seen.key {
            Some(key) => drop(named.insert((format!("{} {key}", seen.host), Vec::new()))),
            None if IDEMPOTENT.contains(&request.method.as_str()) || is_one(seen) => {
                let target = format!("{} {}{}", request.method, seen.host, request.target);
                named.insert((target, request.body.clone()));
            }
            None => unnamed += 1,
        }
    }
    named.len() + unnamed
}

/// Returns the place of the panic that a connector ended with, as its output names it.
fn panic_place(outcome: &Result<Value, Error>) -> Option<&str> {
    let Err(Error::Failure(failure)) = outcome else { return None };
    let (_, place) = failure.operator_notes().iter().find_map(|note| note.split_once("panicked at "))?;
    place.split_whitespace().next().map(|place| place.trim_end_matches(':'))
}

fn shown_error(error: &Error) -> String {
    match error {
        Error::Failure(failure) if is_crash(failure.class(), failure.code()) => {
            format!("a crash ({})", failure.code())
        }
        Error::Failure(failure) => format!("{} ({})", failure.class().name(), failure.code()),
        Error::Host(error) => format!("the error {}", error.kind().code()),
    }
}
