//! Statistics as programs read them: with percentiles instead of histograms.

use std::collections::BTreeMap;

use cofferdam_core::limits::{REQUESTS, RESPONSE_BODY_BYTES};
use serde::Serialize;

use crate::command::CallStatus;
use crate::histogram::Histogram;
use crate::stats::{SealedUsage, Stats, StatsGroup, StatsGrouping, UsageStats};

/// The statistics of the calls that a filter let through.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct StatsReport {
    /// Received at or after: the beginning of an hour; none where all are counted.
    pub since: Option<String>,
    /// Received before: the beginning of an hour.
    pub until: Option<String>,
    /// The number of calls that ended.
    pub calls: u64,
    /// Those of them without a value.
    pub failed: u64,
    /// Those that have no end, and whose host lives.
    pub running: u64,
    /// Those that have no end, and whose host is gone.
    pub incomplete: u64,
    /// Their durations.
    #[serde(flatten)]
    pub durations: DurationPercentiles,
    /// The property by which they are grouped.
    #[cfg_attr(feature = "schemars", schemars(extend("enum" = StatsGrouping::ALL.map(StatsGrouping::name))))]
    pub by: &'static str,
    /// The groups by name, the most calls first, under `by_connector` or another key that names the property.
    #[serde(flatten)]
    #[cfg_attr(feature = "schemars", schemars(skip))]
    pub by_name: BTreeMap<String, Vec<NamedCalls>>,
    /// The calls by status and class.
    pub by_class: Vec<CallsByClass>,
    /// The calls by name, status and class.
    pub groups: Vec<OutcomeGroup>,
    /// The durations in ranges.
    pub histogram: Vec<HistogramStep>,
    /// The bytes of sealed requests and outcomes of all calls in the log.
    pub sealed: SealedBytes,
}

/// The durations of calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct DurationPercentiles {
    /// The median, in microseconds; none without calls.
    pub p50_us: Option<u64>,
    /// Nine of ten took at most this.
    pub p90_us: Option<u64>,
    /// 99 of a hundred took at most this.
    pub p99_us: Option<u64>,
    /// The longest.
    pub max_us: Option<u64>,
}

/// The amounts of one resource that attempts used.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ResourceUsage {
    /// The median.
    pub p50: Option<u64>,
    /// Nine of ten used at most this.
    pub p90: Option<u64>,
    /// 99 of a hundred used at most this.
    pub p99: Option<u64>,
    /// The most.
    pub max: Option<u64>,
    /// The largest limit; none for what has no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The amounts in ranges, from the first to the last that has attempts.
    pub ranges: Vec<UsageRange>,
}

/// The attempts that used from so much up to the next range of the 1-2-5 series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct UsageRange {
    /// The least amount.
    pub from: u64,
    /// The number of attempts.
    pub attempts: u64,
}

/// The usage of attempts.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct UsageReport {
    /// The number of attempts.
    pub attempts: u64,
    /// Burnt fuel.
    pub fuel: ResourceUsage,
    /// The most bytes of memory in use at once.
    pub memory_bytes: ResourceUsage,
    /// The wall time in microseconds.
    pub wall_us: ResourceUsage,
    /// Requests.
    pub requests: ResourceUsage,
    /// Bytes of requests and responses.
    pub bytes: ResourceUsage,
    /// The bytes of the largest response of an attempt; 0 for an attempt that got none.
    pub response_bytes: ResourceUsage,
}

/// The calls of one name.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct NamedCalls {
    /// The connector, or the other property that calls are grouped by.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// Those of them without a value.
    pub failed: u64,
    /// Their durations.
    #[serde(flatten)]
    pub durations: DurationPercentiles,
    /// The used resources, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageReport>,
}

/// The calls with one status and class.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CallsByClass {
    /// The status.
    pub status: &'static str,
    /// The class of their failures.
    pub class: Option<String>,
    /// The number of calls.
    pub calls: u64,
    /// Their durations.
    #[serde(flatten)]
    pub durations: DurationPercentiles,
}

/// The calls of one name with one status and class.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct OutcomeGroup {
    /// The name.
    pub name: String,
    /// The calls.
    #[serde(flatten)]
    pub ending: CallsByClass,
}

/// The calls that took from so long up to the next step.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct HistogramStep {
    /// The least duration.
    pub from_us: u64,
    /// The number of calls.
    pub calls: u64,
}

/// The bytes of sealed requests and outcomes, whenever they were written.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct SealedBytes {
    /// Their sum.
    pub bytes: u64,
    /// Those of each client.
    pub by_client: Vec<SealedUsage>,
}

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

impl DurationPercentiles {
    /// Returns the percentiles that there are, by name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [("p50", self.p50_us), ("p90", self.p90_us), ("p99", self.p99_us), ("most", self.max_us)];
        all.into_iter().filter_map(|(name, micros)| Some((name, micros?)))
    }

    /// Returns the percentiles of recorded durations.
    #[must_use]
    pub fn from_histogram(durations: &Histogram) -> Self {
        Self {
            p50_us: durations.percentile(50),
            p90_us: durations.percentile(90),
            p99_us: durations.percentile(99),
            max_us: durations.max(),
        }
    }
}

impl CallsByClass {
    fn new(status: &'static str, class: Option<&str>, calls: u64, durations: &Histogram) -> Self {
        let durations = DurationPercentiles::from_histogram(durations);
        Self { status, class: class.map(str::to_owned), calls, durations }
    }
}

impl ResourceUsage {
    fn new(used: &Histogram, limit: Option<u64>) -> Self {
        let ranges = histogram_ranges(used).into_iter();
        Self {
            p50: used.percentile(50),
            p90: used.percentile(90),
            p99: used.percentile(99),
            max: used.max(),
            limit,
            ranges: ranges.map(|(from, attempts)| UsageRange { from, attempts }).collect(),
        }
    }
}

impl From<&UsageStats> for UsageReport {
    fn from(usage: &UsageStats) -> Self {
        let [fuel, memory_bytes, wall_us, requests, bytes, response_bytes] = &usage.used;
        let [fuel_limit, memory_limit, wall_limit_ms] = usage.limits;
        Self {
            attempts: fuel.count(),
            fuel: ResourceUsage::new(fuel, Some(fuel_limit)),
            memory_bytes: ResourceUsage::new(memory_bytes, Some(memory_limit)),
            wall_us: ResourceUsage::new(wall_us, Some(wall_limit_ms.saturating_mul(1_000))),
            requests: ResourceUsage::new(requests, Some(REQUESTS)),
            bytes: ResourceUsage::new(bytes, None),
            response_bytes: ResourceUsage::new(response_bytes, Some(RESPONSE_BODY_BYTES)),
        }
    }
}

impl StatsReport {
    /// Combines the statistics of all calls with those that are grouped `by` a property, and with the sealed bytes. By
    /// host, a call is in no group or in several, so the sums are those of `stats`.
    #[must_use]
    pub fn new(stats: &Stats, grouped: &Stats, by: StatsGrouping, sealed: Vec<SealedUsage>) -> Self {
        let (mut all, mut names, mut classes) = (CallTotals::default(), BTreeMap::new(), BTreeMap::new());
        for group in &grouped.groups {
            names.entry(group.name.as_str()).or_insert_with(CallTotals::default).add(group);
        }
        for group in &stats.groups {
            all.add(group);
            let ending = (group.status.number(), group.status.name(), group.class.as_deref());
            classes.entry(ending).or_insert_with(CallTotals::default).add(group);
        }
        let by_name =
            names.into_iter().map(|(name, CallTotals { calls, failed, durations, usage })| NamedCalls {
                name: name.to_owned(),
                calls,
                failed,
                durations: DurationPercentiles::from_histogram(&durations),
                usage: usage.as_ref().map(UsageReport::from),
            });
        let by_class =
            classes.into_iter().map(|((_, status, class), CallTotals { calls, durations, .. })| {
                CallsByClass::new(status, class, calls, &durations)
            });
        let groups =
            grouped.groups.iter().map(|StatsGroup { name, status, class, calls, durations, .. }| {
                let ending = CallsByClass::new(status.name(), class.as_deref(), *calls, durations);
                OutcomeGroup { name: name.clone(), ending }
            });
        let mut by_name: Vec<_> = by_name.collect();
        // Stable: by name where as many.
        by_name.sort_by_key(|line| std::cmp::Reverse(line.calls));
        let steps = histogram_ranges(&all.durations).into_iter();
        let steps = steps.map(|(from_us, calls)| HistogramStep { from_us, calls });
        Self {
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

    /// Returns the groups, the most calls first.
    pub fn names(&self) -> impl Iterator<Item = &NamedCalls> {
        self.by_name.values().flatten()
    }
}

/// Returns the ranges of a 1-2-5 series from the least value to the greatest: the beginning of each, and the number of
/// values in it. A value that is up to 3 % above a beginning may be counted in the range before it.
#[must_use]
pub fn histogram_ranges(histogram: &Histogram) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut starts = range_starts().peekable();
    let mut from = 0;
    for (value, count) in histogram.steps() {
        while let Some(next) = starts.next_if(|next| *next <= value) {
            // No empty ranges before the first.
            if !ranges.is_empty() {
                ranges.push((next, 0));
            }
            from = next;
        }
        match ranges.last_mut() {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => ranges.push((from, count)),
        }
    }
    ranges
}

/// Returns the beginnings of all ranges of the 1-2-5 series: 0, 1, 2, 5, 10, 20, 50, ... as far as numbers go.
pub fn range_starts() -> impl Iterator<Item = u64> {
    let decades = std::iter::successors(Some(1u64), |decade| decade.checked_mul(10));
    let steps = |decade: u64| [1, 2, 5].into_iter().filter_map(move |step| decade.checked_mul(step));
    std::iter::once(0).chain(decades.flat_map(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram_ranges(&histogram), []);
        for value in [0, 3, 3, 12, 120] {
            histogram.record(value);
        }
        assert_eq!(
            histogram_ranges(&histogram),
            [(0, 1), (1, 0), (2, 2), (5, 0), (10, 1), (20, 0), (50, 0), (100, 1)]
        );
        let mut great = Histogram::default();
        great.record(u64::MAX);
        assert_eq!(histogram_ranges(&great), [(10_000_000_000_000_000_000, 1)]);
        assert_eq!(range_starts().last(), Some(10_000_000_000_000_000_000));
    }

    #[test]
    fn usage_has_its_ranges_and_limits() {
        let mut usage = UsageStats { limits: [7, 0, 3], ..UsageStats::default() };
        let [fuels, .., responses] = &mut usage.used;
        for (fuel, response) in [(3, 0), (9, 10_485_760), (4, 0)] {
            fuels.record(fuel);
            responses.record(response);
        }
        let report = UsageReport::from(&usage);
        assert_eq!((report.attempts, report.fuel.limit, report.wall_us.limit), (3, Some(7), Some(3_000)));
        let range = |from, attempts| UsageRange { from, attempts };
        assert_eq!(report.fuel.ranges, [range(2, 2), range(5, 1)]);
        assert_eq!((report.requests.limit, report.bytes.limit), (Some(64), None));
        assert_eq!(report.bytes.ranges.len(), 0);
        let response = report.response_bytes;
        assert_eq!((response.limit, response.max), (Some(10 * 1024 * 1024), Some(10_485_760)));
        assert_eq!(response.ranges.first(), Some(&range(0, 2)));
        assert_eq!(response.ranges.last(), Some(&range(10_000_000, 1)));
    }
}
