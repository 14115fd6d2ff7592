//! The proof of a connector's declarations: its passing scenarios are run again under a matrix of faults.
//!
//! Nothing is needed from the author but scenarios. Each call that returned a value is made again once for each fault
//! at each of its requests, without each host and credential that it used, and within less fuel and memory than it
//! used. Where the operation may be repeated, it is also made with faults that pass, and the service, which honours
//! keys, counts the effects.

mod evidence;
mod fault;
mod findings;
mod manifest_lines;
mod report;
mod trial;

use std::sync::Arc;

use crate::runner::{Execution, ScenarioReport, TestRunner, in_order};
use crate::scenario::Scenario;

pub(crate) use fault::InjectedFault;
pub use report::{ContractReport, ContractRule, Finding, Headroom, OperationReport, SuggestedLimits};

use evidence::Evidence;
use findings::Findings;
use manifest_lines::ManifestLines;
use trial::{Trial, trials_of};

/// The result of a contract run.
#[derive(Debug)]
pub struct ContractOutcome {
    /// The scenarios as they are.
    pub scenarios: Vec<ScenarioReport>,
    /// The report.
    pub contract: ContractReport,
}

/// A scenario as it is, with its run.
struct Baseline {
    scenario: Arc<Scenario>,
    report: ScenarioReport,
    execution: Option<Execution>,
}

/// Runs `scenarios`, and those that pass under the matrix, so many runs at once. `progress` is told how many of how
/// many runs are done.
pub async fn prove(
    runner: &Arc<TestRunner>,
    scenarios: &[Arc<Scenario>],
    jobs: usize,
    mut progress: impl FnMut(usize, usize),
) -> ContractOutcome {
    let work = scenarios.iter().map(|scenario| {
        let (runner, scenario) = (Arc::clone(runner), Arc::clone(scenario));
        async move {
            let (report, execution) = runner.run_with_execution(&scenario).await;
            Baseline { scenario, report, execution }
        }
    });
    let mut baselines = Vec::new();
    in_order(work, jobs, |baseline| {
        baselines.push(baseline);
        progress(baselines.len(), scenarios.len());
    })
    .await;

    let tested = runner.tested();
    let lines = ManifestLines::new(tested.manifest());
    let mut findings = Findings::new(&lines);
    let mut evidence = Evidence::new(tested);
    let executed = || baselines.iter().filter_map(|baseline| Some((baseline, baseline.execution.as_ref()?)));
    for (baseline, execution) in executed() {
        evidence.add_baseline(&baseline.scenario, execution, baseline.report.passed);
    }
    for (baseline, execution) in executed() {
        findings.judge_baseline(&baseline.scenario, execution, tested.manifest(), &evidence);
    }
    let passing = baselines.iter().filter(|baseline| baseline.report.passed);
    let trials: Vec<_> = passing
        .filter_map(|baseline| Some(trials_of(&baseline.scenario, baseline.execution.as_ref()?, tested)))
        .flatten()
        .map(Arc::new)
        .collect();
    let (total, mut done) = (trials.len(), 0);
    let work = trials.iter().map(|trial| {
        let (runner, trial) = (Arc::clone(runner), Arc::clone(trial));
        async move {
            let execution = runner.execute(&trial.scenario, trial.variation()).await;
            (trial, execution)
        }
    });
    in_order(work, jobs, |(trial, execution)| {
        done += 1;
        progress(done, total);
        match execution {
            Ok(execution) => {
                evidence.add_trial(&trial, &execution);
                findings.judge_trial(&trial, &execution, tested.manifest(), &evidence);
            }
            Err(error) => findings.note(format!("{}: {}", trial.words(), error.message())),
        }
    })
    .await;
    findings.judge_grants(tested, &evidence);
    let contract = conclude(runner, &baselines, &trials, evidence, findings);
    ContractOutcome { scenarios: baselines.into_iter().map(|baseline| baseline.report).collect(), contract }
}

/// Puts the report together.
fn conclude(
    runner: &TestRunner,
    baselines: &[Baseline],
    trials: &[Arc<Trial>],
    evidence: Evidence,
    findings: Findings<'_>,
) -> ContractReport {
    let tested = runner.tested();
    let (findings, mut notes) = findings.into_parts();
    let mut operations = Vec::new();
    for name in tested.operations() {
        let of_it = |operation: Option<&String>| operation == Some(name);
        let called = baselines.iter().filter(|baseline| baseline.report.passed);
        let called = called.filter(|it| it.scenario.calls.iter().any(|call| call.operation == *name)).count();
        let manifest = tested.manifest();
        let report = OperationReport {
            name: name.clone(),
            idempotency: manifest.idempotency(name).name(),
            effect: manifest.effect(name).map(cofferdam_model::manifest::OperationEffect::name),
            scenarios: called,
            runs: trials.iter().filter(|trial| trial.operation() == name).count(),
            findings: findings.iter().filter(|finding| of_it(finding.operation.as_ref())).count(),
            headroom: evidence.headroom(name).cloned(),
        };
        operations.push(report);
    }
    notes.extend(unproven(&operations));
    let proven = operations.iter().filter(|operation| operation.runs > 0).count();
    let kept = findings.is_empty();
    ContractReport {
        connector: runner.connector().to_string(),
        kept,
        runs: trials.len() + baselines.len(),
        suggested_limits: SuggestedLimits::of(&operations),
        badge: report::badge(kept, proven, operations.len()),
        operations,
        findings,
        notes,
    }
}

/// Names the operations that were not run under the matrix, and says why.
fn unproven(operations: &[OperationReport]) -> Vec<String> {
    let names = |why: &str, which: &dyn Fn(&OperationReport) -> bool| {
        let names: Vec<_> = operations.iter().filter(|it| which(it)).map(|it| it.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{why}: {}", names.join(", ")))
    };
    let untested = names("no passing scenario", &|it| it.scenarios == 0);
    let only_failing = "no passing scenario with a value in one attempt, so that no faults were tried";
    let undisturbed = names(only_failing, &|it| it.scenarios > 0 && it.runs == 0);
    untested.into_iter().chain(undisturbed).collect()
}
