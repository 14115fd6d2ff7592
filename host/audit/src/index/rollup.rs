//! Statistics of many calls: counted into rows of an hour, a day and 32 days, in the transaction that adds the calls, so that
//! no query counts a million calls again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, params};

use super::find::{self, CallSelection};
use super::usage::{CallUsage, RequestTally, UsageSum};
use crate::command::CallStatus;
use crate::histogram::{Histogram, HistogramSum};
use crate::log::Filter;
use crate::request_stats::{RequestKind, RequestSum};
use crate::stats::{HistoryPart, HistoryQuery, Stats, StatsGroup, StatsGrouping, StatsQuery, UsageStats};

/// The lengths of rows, in seconds.
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const MONTH: i64 = 32 * DAY;

/// A call that has an end, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallCount<'c> {
    /// When it was received, in microseconds.
    pub(super) at: i64,
    pub(super) target: i64,
    pub(super) outcome: i64,
    pub(super) actor: i64,
    /// The duration in microseconds.
    pub(super) duration: Option<i64>,
    pub(super) usage: &'c CallUsage,
}

/// The counts of some calls.
#[derive(Debug, Default)]
struct Count {
    calls: u64,
    durations: Histogram,
    usage: UsageStats,
}

impl Count {
    fn record(&mut self, call: &CallCount<'_>) {
        self.calls = self.calls.saturating_add(1);
        if let Some(duration) = call.duration.and_then(|duration| u64::try_from(duration).ok()) {
            self.durations.record(duration);
        }
        call.usage.attempts.iter().for_each(|attempt| self.usage.record(attempt));
    }

    fn merge(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.durations.merge(&other.durations);
        self.usage.merge(&other.usage);
    }

    fn remove(&mut self, other: &Self) {
        self.calls = self.calls.saturating_sub(other.calls);
        self.durations.remove(&other.durations);
        self.usage.remove(&other.usage);
    }

    /// Reads the first columns of a row.
    fn stored(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            calls: row.get(0)?,
            durations: Histogram::from_bytes(row.get_ref(1)?.as_blob()?),
            usage: UsageStats::from_bytes(row.get_ref(2)?.as_blob()?),
        })
    }
}

const SELECT_COUNT: &str = "SELECT calls, durations, usage FROM rollup WHERE is_of_host = ?1 AND span = ?2 \
                            AND start = ?3 AND target = ?4 AND outcome = ?5 AND actor = ?6 AND host = ?7";
const SELECT_SPAN: &str = "SELECT target, outcome, actor, host, calls, durations, usage, start FROM rollup \
                           WHERE is_of_host = ?1 AND span = ?2 AND start >= ?3 AND start < ?4";
const SELECT_OPEN: &str =
    "SELECT at, target, writer, actor FROM calls INDEXED BY calls_open WHERE outcome = 0";

const SELECT_REQUESTS: &str = "SELECT target, host, kind, requests FROM request_rollup \
                               WHERE span = ?1 AND start >= ?2 AND start < ?3";

/// The queries of calls and counts here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 4] = [SELECT_COUNT, SELECT_SPAN, SELECT_OPEN, SELECT_REQUESTS];

/// The row that counts a call: 1 if of a host, its span, the beginning of that, the target, the outcome, the actor, and the
/// host or 0.
type RowKey = (i64, i64, i64, i64, i64, i64, i64);

/// The row that counts requests: its span, the beginning of that, the target, the host and the kind.
type RequestRowKey = (i64, i64, i64, i64, i64);

/// The hour of calls, their target, outcome and actor, and the host or 0.
type HourKey = (i64, i64, i64, i64, i64);

/// The calls that a transaction adds, or removes, and their requests, by hour: longer spans are summed up from those.
#[derive(Debug, Default)]
pub(super) struct RollupChanges {
    calls: HashMap<HourKey, Count>,
    /// By hour, target, host and kind.
    requests: HashMap<(i64, i64, i64, i64), u64>,
}

impl RollupChanges {
    /// Counts a call.
    pub(super) fn add(&mut self, call: &CallCount<'_>) {
        let CallCount { at, target, outcome, actor, usage, .. } = *call;
        let hour = begin(at.div_euclid(1_000_000), HOUR);
        for host in [0].iter().chain(&usage.hosts()) {
            self.calls.entry((hour, target, outcome, actor, *host)).or_default().record(call);
        }
        for RequestTally { target: own, host, kind, count } in &usage.requests {
            let target = if *own == 0 { target } else { *own };
            let requests = self.requests.entry((hour, target, *host, *kind)).or_default();
            *requests = requests.saturating_add(*count);
        }
    }

    /// Returns the rows that count the calls, and those that count the requests.
    fn into_rows(self) -> (HashMap<RowKey, Count>, HashMap<RequestRowKey, u64>) {
        let (mut calls, mut requests) = (HashMap::<RowKey, Count>::new(), HashMap::new());
        for ((hour, target, outcome, actor, host), count) in self.calls {
            let key = |span| (i64::from(host != 0), span, begin(hour, span), target, outcome, actor, host);
            calls.entry(key(DAY)).or_default().merge(&count);
            if host == 0 {
                // Large histograms, which change with each call: only what is asked for most.
                let month = calls.entry(key(MONTH)).or_default();
                month.calls = month.calls.saturating_add(count.calls);
                month.durations.merge(&count.durations);
            }
            calls.insert(key(HOUR), count);
        }
        for ((hour, target, host, kind), count) in self.requests {
            for span in [HOUR, DAY] {
                let requests: &mut u64 =
                    requests.entry((span, begin(hour, span), target, host, kind)).or_default();
                *requests = requests.saturating_add(count);
            }
        }
        (calls, requests)
    }

    /// Adds the calls to the stored counts.
    pub(super) fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        let (calls, requests) = self.into_rows();
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        for (key, mut count) in calls {
            if let Some(before) = select.query_row(key, Count::stored).optional()? {
                count.merge(&before);
            }
            put(connection, key, &count)?;
        }
        let insert = "INSERT INTO request_rollup (span, start, target, host, kind, requests) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET requests = requests + ?6";
        let mut insert = connection.prepare_cached(insert)?;
        for ((span, start, target, host, kind), requests) in requests {
            insert.execute(params![span, start, target, host, kind, requests])?;
        }
        Ok(())
    }

    /// Takes the calls off the stored counts.
    pub(super) fn write_removed(self, connection: &Connection) -> rusqlite::Result<()> {
        let (calls, requests) = self.into_rows();
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        for (key, count) in calls {
            let Some(mut stored) = select.query_row(key, Count::stored).optional()? else { continue };
            stored.remove(&count);
            if stored.calls > 0 {
                put(connection, key, &stored)?;
                continue;
            }
            let delete = "DELETE FROM rollup WHERE is_of_host = ?1 AND span = ?2 AND start = ?3 AND target = ?4 \
                          AND outcome = ?5 AND actor = ?6 AND host = ?7";
            connection.prepare_cached(delete)?.execute(key)?;
        }
        let update = "UPDATE request_rollup SET requests = requests - ?6 WHERE span = ?1 AND start = ?2 \
                      AND target = ?3 AND host = ?4 AND kind = ?5";
        let delete = "DELETE FROM request_rollup WHERE span = ?1 AND start = ?2 AND target = ?3 AND host = ?4 \
                      AND kind = ?5 AND requests <= 0";
        for (key, requests) in requests {
            let (span, start, target, host, kind) = key;
            let row = params![span, start, target, host, kind, requests];
            connection.prepare_cached(update)?.execute(row)?;
            connection.prepare_cached(delete)?.execute(key)?;
        }
        Ok(())
    }

    /// Returns true if the stored counts are those of these calls.
    #[cfg(test)]
    pub(super) fn are_stored(self, connection: &Connection) -> rusqlite::Result<bool> {
        let (mut calls, mut requests) = self.into_rows();
        let select = "SELECT calls, durations, usage, is_of_host, span, start, target, outcome, actor, host FROM rollup";
        let mut select = connection.prepare(select)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let key =
                (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?);
            let (count, stored) = (calls.remove(&key).unwrap_or_default(), Count::stored(row)?);
            let is_same = count.calls == stored.calls
                && stored.durations.is_rest_like(&count.durations)
                && stored.usage.is_rest_like(&count.usage);
            if !is_same {
                return Ok(false);
            }
        }
        let select = "SELECT span, start, target, host, kind, requests FROM request_rollup";
        let mut select = connection.prepare(select)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let key = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
            if requests.remove(&key) != Some(row.get(5)?) {
                return Ok(false);
            }
        }
        Ok(calls.is_empty() && requests.is_empty())
    }
}

fn put(connection: &Connection, key: RowKey, count: &Count) -> rusqlite::Result<()> {
    let (is_of_host, span, start, target, outcome, actor, host) = key;
    let (calls, durations, usage) = (count.calls, count.durations.to_bytes(), count.usage.to_bytes());
    let insert = "INSERT OR REPLACE INTO rollup \
                  (is_of_host, span, start, target, outcome, actor, host, calls, durations, usage) \
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let row = params![is_of_host, span, start, target, outcome, actor, host, calls, durations, usage];
    connection.prepare_cached(insert)?.execute(row).map(drop)
}

/// Returns the beginning of the span in which this second is.
fn begin(second: i64, span: i64) -> i64 {
    second.div_euclid(span).saturating_mul(span)
}

/// Returns the spans, from a beginning to an end in seconds, that make up these hours: as long ones as possible.
fn spans(lengths: &[i64], since: i64, until: i64) -> Vec<(i64, i64, i64)> {
    let [span, shorter @ ..] = lengths else { return Vec::new() };
    // The whole spans in it, and shorter ones before and after them.
    let first = since.checked_add(span - 1).map_or(since, |end| end.div_euclid(*span) * span);
    let last = if until == i64::MAX { until } else { until.div_euclid(*span) * span };
    if first >= last {
        return spans(shorter, since, until);
    }
    let mut parts = spans(shorter, since, first);
    parts.push((*span, first, last));
    parts.extend(spans(shorter, last, until));
    parts
}

/// The name of a group, and the number of the status and the class of its calls.
type GroupKey = (Rc<str>, (usize, Rc<str>));

/// A sum of counts.
#[derive(Default)]
struct CountSum {
    calls: u64,
    durations: HistogramSum,
    usage: UsageSum,
}

impl CountSum {
    /// Adds the calls and the durations of a row.
    fn add(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        self.calls = self.calls.saturating_add(row.get(4)?);
        self.durations.add_bytes(row.get_ref(5)?.as_blob()?);
        Ok(())
    }
}

/// Returns the statistics of the calls that match `filter`, in whole hours. `free` are the writers that no process holds.
pub(super) fn stats(
    connection: &Connection,
    filter: &Filter,
    query: StatsQuery,
    free: &HashSet<i64>,
) -> rusqlite::Result<Stats> {
    let selection = CallSelection::new(connection, filter)?;
    let (from, to) = whole_hours(filter);
    let is_of_host = query.by == StatsGrouping::Host;
    let (mut groups, mut sums) =
        (GroupNames::new(connection, query.by)?, HashMap::<GroupKey, CountSum>::new());
    let mut select = connection.prepare_cached(SELECT_SPAN)?;
    // Rows of months have neither usage nor hosts.
    let lengths: &[i64] = if is_of_host || query.usage { &[DAY, HOUR] } else { &[MONTH, DAY, HOUR] };
    for (span, from, to) in spans(lengths, from, to) {
        let mut rows = select.query(params![is_of_host, span, from, to])?;
        while let Some(row) = rows.next()? {
            let (target, outcome) = (row.get(0)?, row.get(1)?);
            if !selection.has(target, outcome, row.get(2)?) {
                continue;
            }
            let by = match query.by {
                StatsGrouping::Connector | StatsGrouping::Operation => target,
                StatsGrouping::Host => row.get(3)?,
                StatsGrouping::Code | StatsGrouping::Boundary => outcome,
                StatsGrouping::Actor => row.get(2)?,
            };
            let sum = sums.entry((groups.name(by)?, groups.ending(outcome)?)).or_default();
            sum.add(row)?;
            if query.usage {
                sum.usage.add_bytes(row.get_ref(6)?.as_blob()?);
            }
        }
    }
    let in_time = |at: i64| (from..to).contains(&at.div_euclid(1_000_000));
    let (since, until) = filter.whole_hours();
    let mut stats = Stats { since, until, ..Stats::default() };
    let mut select = connection.prepare_cached(SELECT_OPEN)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if in_time(row.get(0)?) && selection.has(row.get(1)?, 0, row.get(3)?) {
            *if free.contains(&row.get(2)?) { &mut stats.incomplete } else { &mut stats.running } += 1;
        }
    }
    stats.groups = stats_groups(sums, query.usage);
    Ok(stats)
}

/// Returns the groups of these sums, the most calls first.
fn stats_groups(sums: HashMap<GroupKey, CountSum>, has_usage: bool) -> Vec<StatsGroup> {
    let group = |((name, (status, class)), sum): (GroupKey, CountSum)| StatsGroup {
        name: name.to_string(),
        status: CallStatus::from_number(status),
        class: Some(class.to_string()).filter(|class| !class.is_empty()),
        calls: sum.calls,
        durations: sum.durations.into_histogram(),
        usage: has_usage.then(|| sum.usage.into_stats()),
    };
    let mut groups: Vec<_> = sums.into_iter().map(group).collect();
    groups.sort_by(|a, b| {
        let key = |group: &StatsGroup| (group.name.clone(), group.status.number(), group.class.clone());
        b.calls.cmp(&a.calls).then_with(|| key(a).cmp(&key(b)))
    });
    groups
}

/// Returns the calls that match `filter` by the step in which they were received, whatever its times are.
pub(super) fn history(
    connection: &Connection,
    filter: &Filter,
    query: HistoryQuery,
) -> rusqlite::Result<Vec<HistoryPart>> {
    let selection = CallSelection::new(connection, filter)?;
    let mut groups = GroupNames::new(connection, StatsGrouping::Boundary)?;
    let mut parts = BTreeMap::<i64, HashMap<GroupKey, CountSum>>::new();
    let (from, to) = (query.step.begin(query.since).as_second(), query.until);
    // Rounded up: the last step may be one that has not ended.
    let to = to.as_second().saturating_add(i64::from(to.subsec_nanosecond() > 0));
    let mut select = connection.prepare_cached(SELECT_SPAN)?;
    let mut rows = select.query(params![false, query.step.seconds(), from, to])?;
    while let Some(row) = rows.next()? {
        let outcome = row.get(1)?;
        if selection.has(row.get(0)?, outcome, row.get(2)?) {
            let key = (groups.name(outcome)?, groups.ending(outcome)?);
            parts.entry(row.get(7)?).or_default().entry(key).or_default().add(row)?;
        }
    }
    let part = |(start, sums)| {
        let start = Timestamp::from_second(start).ok()?;
        Some(HistoryPart { start, groups: stats_groups(sums, false) })
    };
    Ok(parts.into_iter().filter_map(part).collect())
}

/// Returns the requests of the calls of the targets and the time that `filter` names, in whole hours.
pub(super) fn requests(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<RequestSum>> {
    let targets = find::targets(connection, filter)?;
    let (from, to) = whole_hours(filter);
    let mut sums = BTreeMap::<(i64, i64, i64), u64>::new();
    let mut select = connection.prepare_cached(SELECT_REQUESTS)?;
    for (span, from, to) in spans(&[DAY, HOUR], from, to) {
        let mut rows = select.query(params![span, from, to])?;
        while let Some(row) = rows.next()? {
            let (target, host, kind) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if targets.as_ref().is_none_or(|targets| targets.contains(&target)) {
                let sum = sums.entry((target, host, kind)).or_default();
                *sum = sum.saturating_add(row.get(3)?);
            }
        }
    }
    // Targets with the same operation differ in their actions.
    let mut named = BTreeMap::<(String, String, String, RequestKind), u64>::new();
    let mut target_name = connection.prepare_cached("SELECT connector, op FROM targets WHERE id = ?1")?;
    let mut host_name = connection.prepare_cached("SELECT name FROM hosts WHERE id = ?1")?;
    for ((target, host, kind), requests) in sums {
        let names = target_name.query_row([target], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let host = host_name.query_row([host], |row| row.get(0)).optional()?;
        if let (Some((connector, op)), Some(host), Some(kind)) = (names, host, RequestKind::from_number(kind))
        {
            let sum = named.entry((connector, op, host, kind)).or_default();
            *sum = sum.saturating_add(requests);
        }
    }
    let sum = |((connector, op, host, kind), requests)| RequestSum { connector, op, host, kind, requests };
    Ok(named.into_iter().map(sum).collect())
}

/// Returns the times of the filter in whole hours, in seconds.
fn whole_hours(filter: &Filter) -> (i64, i64) {
    let (since, until) = filter.whole_hours();
    (since.map_or(i64::MIN, Timestamp::as_second), until.map_or(i64::MAX, Timestamp::as_second))
}

/// The names of the groups, each looked up once.
struct GroupNames<'c> {
    select_name: CachedStatement<'c>,
    select_ending: CachedStatement<'c>,
    names: HashMap<i64, Rc<str>>,
    endings: HashMap<i64, (usize, Rc<str>)>,
}

impl<'c> GroupNames<'c> {
    fn new(connection: &'c Connection, by: StatsGrouping) -> rusqlite::Result<Self> {
        let select_name = connection.prepare_cached(match by {
            StatsGrouping::Connector => "SELECT connector FROM targets WHERE id = ?1",
            StatsGrouping::Operation => "SELECT connector || ' ' || op FROM targets WHERE id = ?1",
            StatsGrouping::Host => "SELECT name FROM hosts WHERE id = ?1",
            StatsGrouping::Code => "SELECT code FROM outcomes WHERE id = ?1",
            StatsGrouping::Actor => "SELECT name FROM actors WHERE id = ?1",
            StatsGrouping::Boundary => "SELECT boundary FROM outcomes WHERE id = ?1",
        })?;
        let select_ending = connection.prepare_cached("SELECT status, class FROM outcomes WHERE id = ?1")?;
        Ok(Self { select_name, select_ending, names: HashMap::new(), endings: HashMap::new() })
    }

    fn name(&mut self, by: i64) -> rusqlite::Result<Rc<str>> {
        if let Some(name) = self.names.get(&by) {
            return Ok(Rc::clone(name));
        }
        let name: Option<Rc<str>> = self.select_name.query_row([by], |row| row.get(0)).optional()?;
        Ok(Rc::clone(self.names.entry(by).or_insert(name.unwrap_or_default())))
    }

    /// Returns the number of the status, and the class.
    fn ending(&mut self, outcome: i64) -> rusqlite::Result<(usize, Rc<str>)> {
        if let Some(ending) = self.endings.get(&outcome) {
            return Ok(ending.clone());
        }
        let select = &mut self.select_ending;
        let ending = select.query_row([outcome], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(self.endings.entry(outcome).or_insert(ending.unwrap_or_default()).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{DAY, HOUR, MONTH};

    #[test]
    fn spans_are_split_into_months_days_and_hours() {
        let (h, d, m) = (HOUR, DAY, MONTH);
        // The parts that no call is in.
        let spans = |since, until| -> Vec<_> {
            super::spans(&[m, d, h], since, until)
                .into_iter()
                .filter(|(_, from, to)| from < to && *from > -m && *to > 0)
                .collect()
        };
        let all = super::spans(&[m, d, h], i64::MIN, i64::MAX);
        let longest = all.iter().find(|(span, ..)| *span == m).copied();
        assert!(longest.is_some_and(|(_, from, to)| from < i64::MIN + m && to == i64::MAX));
        assert_eq!(spans(d + h, 4 * d + h), [(h, d + h, 2 * d), (d, 2 * d, 4 * d), (h, 4 * d, 4 * d + h)]);
        assert_eq!(spans(d, 2 * d), [(d, d, 2 * d)]);
        assert_eq!(spans(d + h, d + 3 * h), [(h, d + h, d + 3 * h)]);
        assert_eq!(spans(d + h, 2 * d + 3 * h), [(h, d + h, 2 * d + 3 * h)]);
        assert_eq!(
            spans(31 * d + 23 * h, 2 * m + d),
            [(h, 31 * d + 23 * h, m), (m, m, 2 * m), (d, 2 * m, 2 * m + d)]
        );
    }
}
