//! `audit stats`: how many calls ended how, and how long they took.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use cofferdam_audit::{
    DurationPercentiles, NamedCalls, ResourceUsage, Stats, StatsGrouping, StatsQuery, StatsReport,
    UsageReport,
};

use super::chart;
use super::filter::{CallFilterArgs, check_code};
use crate::commands::time_format;
use crate::layout::{Page, bytes};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Times are taken as whole hours: `--since 2h` counts from the beginning of the hour that was two hours ago. \
Percentiles are within 3 %. Calls that have no end yet are counted, and took no time.

`--by host` counts a call for each host that it had requests to. `--usage` shows what the attempts used of their \
limits, of which the largest is shown. `response` is the largest response of each attempt.

Sealed requests and outcomes are those of all calls in the log. `sealed_size` and `sealed_size_per_client` in \
config.toml say how many are kept; `--format json` lists every client.

Examples:
  cofferdam audit stats
  cofferdam audit stats --since 7d --connector github://acme/slack
  cofferdam audit stats --by operation --usage
  cofferdam audit stats --failed --format json";

/// Counts the calls in the audit log by connector and by outcome, with their durations.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: CallFilterArgs,

    /// Groups the calls by this.
    #[arg(long, value_name = "WHAT", default_value = "connector", value_parser = grouping())]
    by: StatsGrouping,

    /// Shows the used fuel, memory, time and largest response against their limits, and requests and bytes.
    #[arg(long)]
    usage: bool,
}

/// Parses the property by which calls are grouped. The layer of their failures is a fact of histories.
fn grouping() -> impl TypedValueParser<Value = StatsGrouping> {
    let offered = || StatsGrouping::ALL.into_iter().filter(|by| *by != StatsGrouping::Boundary);
    PossibleValuesParser::new(offered().map(StatsGrouping::name))
        .map(move |name| offered().find(|by| by.name() == name).unwrap_or_default())
}

/// The most clients that are shown to people.
const CLIENTS: usize = 20;

/// Returns the percentiles of durations for people.
fn duration_cells(durations: &DurationPercentiles) -> [String; 4] {
    let all = [durations.p50_us, durations.p90_us, durations.p99_us, durations.max_us];
    all.map(|micros| micros.map(time_format::format_duration).unwrap_or_default())
}

/// Returns the rows of the resources that the attempts of `name` used.
fn usage_rows(name: &str, usage: &UsageReport) -> [[String; 7]; 6] {
    let row = |resource: &str, usage: &ResourceUsage, format: fn(u64) -> String| {
        let cell = |amount: Option<u64>| amount.map(format).unwrap_or_default();
        let ResourceUsage { p50, p90, p99, max, limit, .. } = *usage;
        [name.to_owned(), resource.to_owned(), cell(p50), cell(p90), cell(p99), cell(max), cell(limit)]
    };
    let number = |amount: u64| amount.to_string();
    [
        row("fuel", &usage.fuel, number),
        row("memory", &usage.memory_bytes, bytes),
        row("time", &usage.wall_us, time_format::format_duration),
        row("requests", &usage.requests, number),
        row("bytes", &usage.bytes, bytes),
        row("response", &usage.response_bytes, bytes),
    ]
}

/// Returns the name for people: calls with a value have no code.
fn shown_name(line: &NamedCalls) -> String {
    if line.name.is_empty() { "-".to_owned() } else { line.name.clone() }
}

/// Counts.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let filter = args.which.filter()?;
    let query = StatsQuery { by: args.by, usage: args.usage };
    let host = session.host()?;
    let (stats, grouped, sealed) = match host.audit().existing()? {
        Some(mut reader) => {
            check_code(&filter, Some(&mut *reader))?;
            // Of all calls: by host, a call is in no group or in several.
            let stats = reader.stats(&filter, StatsQuery::default())?;
            let grouped = reader.stats(&filter, query)?;
            (stats, grouped, reader.sealed_usage()?)
        }
        None => {
            check_code(&filter, None)?;
            (Stats::default(), Stats::default(), Vec::new())
        }
    };
    let counted = StatsReport::new(&stats, &grouped, args.by, sealed);
    session.ui.result(&counted, |it| page(&counted, it))?;
    if counted.calls + stats.running + stats.incomplete == 0 {
        session.ui.note("No call in the audit log fits.");
    }
    Ok(())
}

fn page(counted: &StatsReport, page: &mut Page) {
    let time = |name: &str, at: &Option<String>| at.as_ref().map(|at| format!(" {name} {at}"));
    let time = [time("since", &counted.since), time("until", &counted.until)].into_iter().flatten();
    let failed = share(counted.failed, counted.calls);
    page.field("calls", &format!("{}{}", counted.calls, time.collect::<String>()));
    page.field("failed", &format!("{} ({failed})", counted.failed));
    if counted.running > 0 {
        page.field("running", &counted.running.to_string());
    }
    if counted.incomplete > 0 {
        page.field("incomplete", &format!("{}: `cofferdam recover list`", counted.incomplete));
    }
    if counted.sealed.bytes > 0 {
        page.field("sealed", &bytes(counted.sealed.bytes));
    }
    if counted.calls == 0 {
        return;
    }
    let rows = counted.names().map(|line| {
        let [p50, p90, p99, max] = duration_cells(&line.durations);
        let failed = share(line.failed, line.calls);
        [shown_name(line), line.calls.to_string(), failed, p50, p90, p99, max]
    });
    let header = counted.by.to_uppercase();
    page.heading(&format!("by {}", counted.by));
    page.table([header.as_str(), "CALLS", "FAILED", "P50", "P90", "P99", "MAX"], rows.collect());
    let usage: Vec<_> = counted
        .names()
        .filter_map(|line| line.usage.as_ref().map(|usage| usage_rows(&shown_name(line), usage)))
        .flatten()
        .collect();
    if !usage.is_empty() {
        page.heading(&format!("usage by {}", counted.by));
        page.table([header.as_str(), "RESOURCE", "P50", "P90", "P99", "MAX", "LIMIT"], usage);
    }
    let rows = counted.by_class.iter().map(|line| {
        let [p50, p90, p99, max] = duration_cells(&line.durations);
        let ending = line.class.as_deref().unwrap_or(line.status).to_owned();
        [ending, line.calls.to_string(), share(line.calls, counted.calls), p50, p90, p99, max]
    });
    page.heading("by ending");
    page.table(["ENDING", "CALLS", "SHARE", "P50", "P90", "P99", "MAX"], rows.collect());
    chart::add(page, &counted.histogram);
    if !counted.sealed.by_client.is_empty() {
        let shown = counted.sealed.by_client.iter().take(CLIENTS);
        page.heading("sealed requests and outcomes, by client");
        page.table(
            ["CLIENT", "SIZE"],
            shown.map(|usage| [usage.client.clone(), bytes(usage.bytes)]).collect(),
        );
    }
}

/// Returns the share in percent; a small share is never shown as zero.
fn share(some: u64, all: u64) -> String {
    let permille = u128::from(some) * 1000 / u128::from(all.max(1));
    match permille {
        0 if some > 0 => "<0.1 %".to_owned(),
        permille => format!("{}.{} %", permille / 10, permille % 10),
    }
}
