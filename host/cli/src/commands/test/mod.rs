//! `test`: runs the scenarios of a connector, proves its declarations, and records scenarios from real services.

mod page;
mod project;
mod record;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_dev::{
    ContractReport, Scenario, ScenarioReport, TestRunner, Watcher, junit_xml, parse_scenarios, prove,
};
use serde::Serialize;

use self::project::TestedProject;
use super::packaging;
use crate::exit_codes::{CONTRACT_BROKEN, SCENARIO_FAILED};
use crate::progress::ProgressCounter;
use crate::report::{CommandError, exit_after};
use crate::session::Session;
use crate::{files, report, runtime};

/// The most scenarios that run at once.
const MAX_JOBS: usize = 256;

const EXAMPLES: &str = "\
The scenarios are in tests/*.toml or *.yaml (docs/reference/scenarios.md). Nothing reaches the network: each scenario has a \
service of its own on this machine, which answers for the hosts in connector.toml. Waits between attempts are skipped.

Examples:
  cofferdam test
  cofferdam test --filter 'created once' --watch
  cofferdam test connectors/slack --junit target/slack.xml
  cofferdam test slack-1.2.0.wasm --tests connectors/slack/tests
  cofferdam test --contract
  cofferdam test --record tests/issue.toml --call 'get_issue {\"number\": 7}' --bind bearer/tickets=@token";

/// Runs the scenarios of a connector against a local service.
///
/// The connector is built first, and runs as it ships: in the real sandbox, over TLS, with the host's own retries.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of the connector, or a package instead of building it.
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,

    /// A scenario file, or a directory with some; may be given several times [default: `tests` in the connector's
    /// directory].
    #[arg(long = "tests", value_name = "PATH")]
    tests: Vec<PathBuf>,

    /// Runs the scenarios whose name, or whose file's name, has this text in it.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// The number of scenarios that run at once [default: one for each processor].
    #[arg(short, long, value_name = "N", value_parser = jobs)]
    jobs: Option<usize>,

    /// Also writes the results as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Runs them again whenever a file of the connector changes, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["record", "junit"])]
    watch: bool,

    /// Also proves what the manifest declares: runs every passing scenario again under a matrix of faults
    /// (docs/guides/test-a-connector.md).
    #[arg(long, conflicts_with = "record")]
    contract: bool,

    #[command(flatten)]
    record: record::RecordArgs,
}

fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok().filter(|jobs| (1..=MAX_JOBS).contains(jobs));
    jobs.ok_or_else(|| format!("write a number from 1 to {MAX_JOBS}"))
}

/// The results of a run.
#[derive(Debug, Serialize)]
struct TestSummary<'r> {
    connector: String,
    passed: usize,
    failed: usize,
    scenarios: &'r [ScenarioReport],
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<&'r ContractReport>,
}

/// Builds, and runs what was asked for.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let project = TestedProject::find(&args.path, &args.tests)?;
    if args.record.file().is_some() {
        return runtime::block_on_threads(record::run(&args.record, &project, session));
    }
    runtime::block_on_threads(async {
        if !args.watch {
            return run_once(&args, &project, session).await;
        }
        let mut watcher = Watcher::new(project.watched());
        loop {
            match run_once(&args, &project, session).await {
                Ok(()) | Err(CommandError::Shown(_)) => {}
                // It is to be corrected, which is a change.
                Err(stop) => match stop.into_error() {
                    Ok(error) => report::show(session.ui, &error),
                    Err(stop) => return Err(stop),
                },
            }
            session.ui.note("waiting for changes; Ctrl-C ends");
            watcher.changed().await;
        }
    })
}

async fn run_once(args: &Args, project: &TestedProject, session: &Session<'_>) -> Result<(), CommandError> {
    if let Some(junit) = &args.junit {
        // Find out before the work is done, and not after.
        packaging::check_output(junit)?;
    }
    let runner = project.runner(session).await?;
    let scenarios = scenarios(args, project, &runner)?;
    let jobs = args
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_JOBS));
    let (reports, contract) = if args.contract {
        let mut counter = ProgressCounter::start(session.ui, "runs");
        let outcome =
            prove(&runner, &scenarios, jobs, |done, of| counter.update(done as u64, of as u64)).await;
        drop(counter);
        for report in &outcome.scenarios {
            page::print_scenario(session.ui, report)?;
        }
        (outcome.scenarios, Some(outcome.contract))
    } else {
        let mut printed = Ok(());
        let reports = runner
            .run_all(&scenarios, jobs, |report| {
                if printed.is_ok() {
                    printed = page::print_scenario(session.ui, report);
                }
            })
            .await;
        printed?;
        (reports, None)
    };
    if let Some(path) = &args.junit {
        files::write_whole(path, junit_xml(&runner.connector().to_string(), &reports).as_bytes())?;
    }
    let passed = reports.iter().filter(|report| report.passed).count();
    let summary = TestSummary {
        connector: runner.connector().to_string(),
        passed,
        failed: reports.len() - passed,
        scenarios: &reports,
        contract: contract.as_ref(),
    };
    let is_broken = contract.as_ref().is_some_and(|contract| !contract.kept);
    let failure = match summary.failed {
        0 => is_broken.then_some(CONTRACT_BROKEN),
        _ => Some(SCENARIO_FAILED),
    };
    exit_after(session.ui.result(&summary, |page| page::summary(&summary, page)), failure)
}

/// Reads the scenarios, all of them, and returns those that the filter leaves.
fn scenarios(
    args: &Args,
    project: &TestedProject,
    runner: &TestRunner,
) -> Result<Vec<Arc<Scenario>>, CommandError> {
    let mut scenarios = Vec::new();
    for path in project.scenario_files()? {
        let text = files::read_text("The scenario file", &path)?;
        let dir = files::parent(&path);
        let parsed = parse_scenarios(&files::shown(&path), &text, dir, runner.tested());
        scenarios.extend(parsed.map_err(files::document_error)?);
    }
    let found = scenarios.len();
    if let Some(text) = &args.filter {
        scenarios
            .retain(|scenario| scenario.name.contains(text) || scenario.place.file.contains(text.as_str()));
    }
    if scenarios.is_empty() {
        let (message, hint) = match found {
            0 => (
                "The scenario files have no scenario.".to_owned(),
                "Write one (docs/guides/test-a-connector.md).",
            ),
            found => (
                format!("No scenario has this text in its name or its file's ({found} were read)."),
                "Give another --filter, or none.",
            ),
        };
        return Err(HostError::new(HostErrorKind::InputUnreadable, message).with_hint(hint).into());
    }
    Ok(scenarios.into_iter().map(Arc::new).collect())
}
