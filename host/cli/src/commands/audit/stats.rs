//! `audit stats`: how many calls ended how, and how long they took.

use std::collections::BTreeMap;

use cofferdam_audit::{
    CallStatus, Histogram, SealedUsage, Stats, StatsGroup, StatsGrouping, StatsQuery, UsageStats,
};
use serde::Serialize;

use super::filter::{CallFilterArgs, check_code};
use super::{chart, existing, map_read_error, time_format};
use crate::layout::{Page, bytes};
use crate::report::CommandError;
use crate::session::Session;

const EXAMPLES: &str = "\
Times are taken as whole hours: `--since 2h` counts from the beginning of the hour that was two hours ago. \
Percentiles are within 3 %. Calls that have no end yet are counted, and took no time.

`--by host` counts a call for each host that it had requests to. `--usage` shows what the attempts used of their \
limits, of which the largest is shown.

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
    #[arg(long, value_enum, value_name = "WHAT", default_value = "connector")]
    by: Grouping,

    /// Shows the used fuel, memory and time against their limits, and requests and bytes.
    #[arg(long)]
    usage: bool,
}

/// The property by which calls are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Grouping {
    Connector,
    Operation,
    Host,
    Code,
    Actor,
}

impl Grouping {
    const fn name(self) -> &'static str {
        match self {
            Self::Connector => "connector",
            Self::Operation => "operation",
            Self::Host => "host",
            Self::Code => "code",
            Self::Actor => "actor",
        }
    }
}

impl From<Grouping> for StatsGrouping {
    fn from(by: Grouping) -> Self {
        match by {
            Grouping::Connector => Self::Connector,
            Grouping::Operation => Self::Operation,
            Grouping::Host => Self::Host,
            Grouping::Code => Self::Code,
            Grouping::Actor => Self::Actor,
        }
    }
}

/// The most clients that are shown to people.
const CLIENTS: usize = 20;

/// Calls that have something in common.
#[derive(Debug, Default)]
struct CallTotals {
    calls: u64,
    failed: u64,
    durations: Histogram,
    usage: Option<UsageStats>,
}

impl CallTotals {
    fn add(&mut self, group: &StatsGroup) {
        self.calls += group.calls;
        self.failed += if group.status == CallStatus::Value { 0 } else { group.calls };
        self.durations.merge(&group.durations);
        if let Some(usage) = &group.usage {
            self.usage.get_or_insert_default().merge(usage);
        }
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

/// The amounts of one resource that attempts used, for programs.
#[derive(Debug, Serialize)]
struct ResourceUsage {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
    /// The largest limit; none for what has no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

impl ResourceUsage {
    fn new(used: &Histogram, limit: Option<u64>) -> Self {
        Self {
            p50: used.percentile(50),
            p90: used.percentile(90),
            p99: used.percentile(99),
            max: used.max(),
            limit,
        }
    }

    fn row(&self, name: &str, resource: &str, format: fn(u64) -> String) -> [String; 7] {
        let cell = |amount: Option<u64>| amount.map(format).unwrap_or_default();
        let Self { p50, p90, p99, max, limit } = *self;
        [name.to_owned(), resource.to_owned(), cell(p50), cell(p90), cell(p99), cell(max), cell(limit)]
    }
}

/// The usage of attempts, for programs.
#[derive(Debug, Serialize)]
struct UsageView {
    fuel: ResourceUsage,
    memory_bytes: ResourceUsage,
    wall_us: ResourceUsage,
    requests: ResourceUsage,
    bytes: ResourceUsage,
}

impl From<&UsageStats> for UsageView {
    fn from(usage: &UsageStats) -> Self {
        let wall_limit = usage.wall_limit_ms.saturating_mul(1_000);
        Self {
            fuel: ResourceUsage::new(&usage.fuel, Some(usage.fuel_limit)),
            memory_bytes: ResourceUsage::new(&usage.memory_bytes, Some(usage.memory_limit_bytes)),
            wall_us: ResourceUsage::new(&usage.wall_us, Some(wall_limit)),
            requests: ResourceUsage::new(&usage.requests, None),
            bytes: ResourceUsage::new(&usage.bytes, None),
        }
    }
}

impl UsageView {
    fn rows(&self, name: &str) -> [[String; 7]; 5] {
        let number = |amount: u64| amount.to_string();
        [
            self.fuel.row(name, "fuel", number),
            self.memory_bytes.row(name, "memory", bytes),
            self.wall_us.row(name, "time", time_format::format_duration),
            self.requests.row(name, "requests", number),
            self.bytes.row(name, "bytes", bytes),
        ]
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
    by: &'static str,
    /// With the name `by_connector`, or another one that says what the calls are grouped by.
    #[serde(flatten)]
    by_name: BTreeMap<String, Vec<ByName<'s>>>,
    by_class: Vec<ByClass<'s>>,
    groups: Vec<OutcomeGroup<'s>>,
    histogram: Vec<HistogramStep>,
    sealed: SealedBytes<'s>,
}

impl ByName<'_> {
    /// Returns the name for people: calls with a value have no code.
    fn shown_name(&self) -> String {
        if self.name.is_empty() { "-".to_owned() } else { self.name.to_owned() }
    }
}

/// The bytes of sealed requests and outcomes, whenever they were written.
#[derive(Debug, Serialize)]
struct SealedBytes<'s> {
    bytes: u64,
    by_client: &'s [SealedUsage],
}

#[derive(Debug, Serialize)]
struct ByName<'s> {
    name: &'s str,
    calls: u64,
    failed: u64,
    #[serde(flatten)]
    durations: DurationPercentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageView>,
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
    name: &'s str,
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
    let query = StatsQuery { by: args.by.into(), usage: args.usage };
    let host = session.host()?;
    let (stats, grouped, sealed) = match existing(&host)? {
        Some(mut reader) => {
            check_code(&filter, Some(&mut *reader))?;
            // Of all calls: by host, a call is in no group or in several.
            let stats = map_read_error(reader.stats(&filter, StatsQuery::default()))?;
            let grouped = map_read_error(reader.stats(&filter, query))?;
            (stats, grouped, map_read_error(reader.sealed_usage())?)
        }
        None => {
            check_code(&filter, None)?;
            (Stats::default(), Stats::default(), Vec::new())
        }
    };
    let counted = stats_view(&stats, &grouped, args.by, &sealed);
    session.ui.result(&counted, |it| page(&counted, &stats.durations(), it))?;
    if counted.calls + stats.running + stats.incomplete == 0 {
        session.ui.note("No call in the audit log fits.");
    }
    Ok(())
}

fn stats_view<'s>(
    stats: &'s Stats,
    grouped: &'s Stats,
    by: Grouping,
    sealed: &'s [SealedUsage],
) -> StatsView<'s> {
    let (mut all, mut names, mut classes) = (CallTotals::default(), BTreeMap::new(), BTreeMap::new());
    for group in &grouped.groups {
        names.entry(group.name.as_str()).or_insert_with(CallTotals::default).add(group);
    }
    for group in &stats.groups {
        all.add(group);
        let ending = (group.status.number(), group.status.name(), group.class.as_deref());
        classes.entry(ending).or_insert_with(CallTotals::default).add(group);
    }
    let by_name = names.into_iter().map(|(name, CallTotals { calls, failed, durations, usage })| ByName {
        name,
        calls,
        failed,
        durations: DurationPercentiles::from_histogram(&durations),
        usage: usage.as_ref().map(UsageView::from),
    });
    let by_class = classes.into_iter().map(|((_, status, class), CallTotals { calls, durations, .. })| {
        ByClass { status, class, calls, durations: DurationPercentiles::from_histogram(&durations) }
    });
    let groups = grouped.groups.iter().map(|group| OutcomeGroup {
        name: &group.name,
        status: group.status.name(),
        class: group.class.as_deref(),
        calls: group.calls,
        durations: DurationPercentiles::from_histogram(&group.durations),
    });
    let mut by_name: Vec<_> = by_name.collect();
    // Stable: by name where as many.
    by_name.sort_by_key(|line| std::cmp::Reverse(line.calls));
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
        by: by.name(),
        by_name: BTreeMap::from([(format!("by_{}", by.name()), by_name)]),
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
    let by_name = || counted.by_name.values().flatten();
    let rows = by_name().map(|line| {
        let [p50, p90, p99, max] = line.durations.cells();
        let failed = share(line.failed, line.calls);
        [line.shown_name(), line.calls.to_string(), failed, p50, p90, p99, max]
    });
    let header = counted.by.to_uppercase();
    page.heading(&format!("by {}", counted.by));
    page.table([header.as_str(), "CALLS", "FAILED", "P50", "P90", "P99", "MAX"], rows.collect());
    let usage: Vec<_> = by_name()
        .filter_map(|line| line.usage.as_ref().map(|usage| usage.rows(&line.shown_name())))
        .flatten()
        .collect();
    if !usage.is_empty() {
        page.heading(&format!("usage by {}", counted.by));
        page.table([header.as_str(), "RESOURCE", "P50", "P90", "P99", "MAX", "LIMIT"], usage);
    }
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
