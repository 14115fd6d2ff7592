//! The results for people.

use cofferdam_dev::{ContractReport, Finding, OperationReport, Problem, ScenarioReport};

use super::TestSummary;
use crate::layout::{self, Page, TextStyle};
use crate::report::CommandError;
use crate::ui::Ui;

/// Prints the line of a scenario, and what is wrong with it. With JSON, everything is printed at the end.
pub(super) fn print_scenario(ui: &Ui, report: &ScenarioReport) -> Result<(), CommandError> {
    if ui.json() {
        return Ok(());
    }
    ui.result(&(), |page| scenario(report, page))
}

fn scenario(report: &ScenarioReport, page: &mut Page) {
    let ScenarioReport { name, duration_ms, file, line, .. } = report;
    match report.passed {
        true => {
            page.styled_field("ok", TextStyle::Good, &format!("{name} ({duration_ms} ms)"));
        }
        false => {
            page.styled_field("FAILED", TextStyle::Bad, &format!("{name} ({file}:{line})"));
            report.problems.iter().for_each(|it| problem(it, page));
        }
    }
}

fn problem(problem: &Problem, page: &mut Page) {
    let Problem { file, line, message, .. } = problem;
    page.block(2, &format!("{file}:{line}: {message}"));
    for it in &problem.differences {
        page.block(6, &it.path);
        page.block(8, &format!("expected  {}", it.expected));
        page.block(8, &format!("actual    {}", it.actual));
    }
    for note in &problem.notes {
        page.block(6, note);
    }
}

/// The last lines: how many passed, and the contract.
pub(super) fn summary(summary: &TestSummary<'_>, page: &mut Page) {
    let TestSummary { passed, failed, connector, .. } = summary;
    let (style, counts) = match failed {
        0 => (TextStyle::Good, format!("{passed} passed")),
        _ => (TextStyle::Bad, format!("{failed} failed, {passed} passed")),
    };
    page.styled(style, &format!("{connector}: {counts}"));
    if let Some(contract) = summary.contract {
        self::contract(contract, page);
    }
}

fn contract(contract: &ContractReport, page: &mut Page) {
    page.heading("contract");
    let rows = contract.operations.iter().map(row).collect();
    let header = ["operation", "repeat", "effect", "runs", "findings", "fuel", "memory", "response", "wall"];
    page.table(header, rows);
    if let Some(limits) = &contract.suggested_limits {
        page.block(0, &format!("suggested [limits]: fuel = {}, memory = \"{}\"", limits.fuel, limits.memory));
    }
    for note in &contract.notes {
        page.styled_field("not proven", TextStyle::Doubtful, note);
    }
    contract.findings.iter().for_each(|it| finding(it, page));
    match contract.kept {
        true => page.styled(TextStyle::Good, &format!("kept, in {} runs", contract.runs)),
        false => {
            let findings = contract.findings.len();
            page.styled(TextStyle::Bad, &format!("broken: {findings} findings in {} runs", contract.runs))
        }
    };
    page.field("badge", &contract.badge);
}

fn row(operation: &OperationReport) -> [String; 9] {
    let part = |used: u64, limit: u64| match limit {
        0 => String::new(),
        limit => format!(" ({}%)", used.saturating_mul(100) / limit),
    };
    let headroom = operation.headroom.clone().unwrap_or_default();
    [
        operation.name.clone(),
        operation.idempotency.to_owned(),
        operation.effect.unwrap_or("-").to_owned(),
        operation.runs.to_string(),
        operation.findings.to_string(),
        format!("{}{}", headroom.fuel, part(headroom.fuel, headroom.fuel_limit)),
        format!("{}{}", layout::bytes(headroom.memory), part(headroom.memory, headroom.memory_limit)),
        layout::bytes(headroom.response_bytes),
        format!("{} ms", headroom.wall_ms),
    ]
}

fn finding(finding: &Finding, page: &mut Page) {
    page.styled_field(finding.rule.name(), TextStyle::Bad, &finding.message);
    if !finding.faults.is_empty() {
        page.block(4, &format!("at: {}", finding.faults.join(", ")));
    }
    if let Some(scenario) = &finding.scenario {
        page.block(4, &format!("scenario: {scenario}"));
    }
    page.block(4, &format!("fix: {}", finding.fix));
}
