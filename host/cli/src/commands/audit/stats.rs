//! `audit stats`: how many calls ended how, and how long they took.

use std::collections::BTreeMap;

use cofferdam_audit::{CallStatus, Histogram, SealedUsage, Stats, StatsGroup, StatsQuery};
use serde::Serialize;

use super::filter::{CallFilterArgs, check_code};
use super::{chart, existing, map_read_error, time_format};
use crate::layout::{Page, bytes};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Times are taken as whole hours: `--since 2h` counts from the beginning of the hour that was two hours ago. \
Percentiles are within 3 %. Calls that have no end yet are counted, and took no time.

Sealed requests and outcomes are those of all calls in the log. `sealed_size` and `sealed_size_per_client` in \
config.toml say how many are kept; `--format json` lists every client.

Examples:
  cofferdam audit stats
  cofferdam audit stats --since 7d --connector github://acme/slack
  cofferdam audit stats --failed --format json";

/// Counts the calls in the audit log by connector and by outcome, with their durations.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: CallFilterArgs,
}

/// The most clients that are shown to people.
const CLIENTS: usize = 20;

/// Calls that have something in common.
#[derive(Debug, Default)]
struct CallTotals {
    calls: u64,
    failed: u64,
    durations: Histogram,
}

impl CallTotals {
    fn add(&mut self, group: &StatsGroup) {
        self.calls += group.calls;
        self.failed += if group.status == CallStatus::Value { 0 } else { group.calls };
        self.durations.merge(&group.durations);
    }
}

/// The durations of calls, for programs.
#[derive(Debug, Serialize)]
struct DurationPercentiles {
    p50_us: Option<u64>,
    p90_us: Option<u64>,
    p99_us: Option<u64>,
    max_us: Option<u64>,
}

impl DurationPercentiles {
    fn from_histogram(durations: &Histogram) -> Self {
        Self {
            p50_us: durations.percentile(50),
            p90_us: durations.percentile(90),
            p99_us: durations.percentile(99),
            max_us: durations.max(),
        }
    }

    fn cells(&self) -> [String; 4] {
        let all = [self.p50_us, self.p90_us, self.p99_us, self.max_us];
        all.map(|micros| micros.map(time_format::format_duration).unwrap_or_default())
    }
}

/// Everything, for programs.
#[derive(Debug, Serialize)]
struct StatsView<'s> {
    since: Option<String>,
    until: Option<String>,
    calls: u64,
    failed: u64,
    running: u64,
    incomplete: u64,
    #[serde(flatten)]
    durations: DurationPercentiles,
    by_connector: Vec<ByConnector<'s>>,
    by_class: Vec<ByClass<'s>>,
    groups: Vec<OutcomeGroup<'s>>,
    histogram: Vec<HistogramStep>,
    sealed: SealedBytes<'s>,
}

/// The bytes of sealed requests and outcomes, whenever they were written.
#[derive(Debug, Serialize)]
struct SealedBytes<'s> {
    bytes: u64,
    by_client: &'s [SealedUsage],
}

#[derive(Debug, Serialize)]
struct ByConnector<'s> {
    connector: &'s str,
    calls: u64,
    failed: u64,
    #[serde(flatten)]
    durations: DurationPercentiles,
}

#[derive(Debug, Serialize)]
struct ByClass<'s> {
    status: &'static str,
    class: Option<&'s str>,
    calls: u64,
    #[serde(flatten)]
    durations: DurationPercentiles,
}

#[derive(Debug, Serialize)]
struct OutcomeGroup<'s> {
    connector: &'s str,
    status: &'static str,
    class: Option<&'s str>,
    calls: u64,
    #[serde(flatten)]
    durations: DurationPercentiles,
}

/// The calls that took from so long up to the next step.
#[derive(Debug, Serialize)]
struct HistogramStep {
    from_us: u64,
    calls: u64,
}

/// Counts.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let filter = args.which.filter()?;
    let host = session.host()?;
    let (stats, sealed) = match existing(&host)? {
        Some(mut reader) => {
            check_code(&filter, Some(&mut *reader))?;
            (map_read_error(reader.stats(&filter, StatsQuery::default()))?, map_read_error(reader.sealed_usage())?)
        }
        None => {
            check_code(&filter, None)?;
            (Stats::default(), Vec::new())
        }
    };
    let counted = stats_view(&stats, &sealed);
    session.ui.result(&counted, |it| page(&counted, &stats.durations(), it))?;
    if counted.calls + stats.running + stats.incomplete == 0 {
        session.ui.note("No call in the audit log fits.");
    }
    Ok(())
}

fn stats_view<'s>(stats: &'s Stats, sealed: &'s [SealedUsage]) -> StatsView<'s> {
    let (mut all, mut connectors, mut classes) = (CallTotals::default(), BTreeMap::new(), BTreeMap::new());
    for group in &stats.groups {
        all.add(group);
        connectors.entry(group.name.as_str()).or_insert_with(CallTotals::default).add(group);
        let ending = (group.status.number(), group.status.name(), group.class.as_deref());
        classes.entry(ending).or_insert_with(CallTotals::default).add(group);
    }
    let by_connector = connectors.into_iter().map(|(connector, CallTotals { calls, failed, durations })| {
        ByConnector { connector, calls, failed, durations: DurationPercentiles::from_histogram(&durations) }
    });
    let by_class = classes.into_iter().map(|((_, status, class), CallTotals { calls, durations, .. })| {
        ByClass { status, class, calls, durations: DurationPercentiles::from_histogram(&durations) }
    });
    let groups = stats.groups.iter().map(|group| OutcomeGroup {
        connector: &group.name,
        status: group.status.name(),
        class: group.class.as_deref(),
        calls: group.calls,
        durations: DurationPercentiles::from_histogram(&group.durations),
    });
    let mut by_connector: Vec<_> = by_connector.collect();
    // Stable: by name where as many.
    by_connector.sort_by_key(|line| std::cmp::Reverse(line.calls));
    let steps =
        chart::ranges(&all.durations).into_iter().map(|(from_us, calls)| HistogramStep { from_us, calls });
    StatsView {
        since: stats.since.map(|since| since.to_string()),
        until: stats.until.map(|until| until.to_string()),
        calls: all.calls,
        failed: all.failed,
        running: stats.running,
        incomplete: stats.incomplete,
        durations: DurationPercentiles::from_histogram(&all.durations),
        by_connector,
        by_class: by_class.collect(),
        groups: groups.collect(),
        histogram: steps.collect(),
        sealed: SealedBytes { bytes: sealed.iter().map(|usage| usage.bytes).sum(), by_client: sealed },
    }
}

fn page(counted: &StatsView<'_>, durations: &Histogram, page: &mut Page) {
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
    let rows = counted.by_connector.iter().map(|line| {
        let [p50, p90, p99, max] = line.durations.cells();
        let failed = share(line.failed, line.calls);
        [line.connector.to_owned(), line.calls.to_string(), failed, p50, p90, p99, max]
    });
    page.heading("by connector");
    page.table(["CONNECTOR", "CALLS", "FAILED", "P50", "P90", "P99", "MAX"], rows.collect());
    let rows = counted.by_class.iter().map(|line| {
        let [p50, p90, p99, max] = line.durations.cells();
        let ending = line.class.unwrap_or(line.status).to_owned();
        [ending, line.calls.to_string(), share(line.calls, counted.calls), p50, p90, p99, max]
    });
    page.heading("by ending");
    page.table(["ENDING", "CALLS", "SHARE", "P50", "P90", "P99", "MAX"], rows.collect());
    chart::add(page, durations);
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
