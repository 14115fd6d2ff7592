//! Statistics of many calls: counted into rows of an hour and of a day, in the transaction that adds the calls, so that
//! no query counts a million calls again.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::find;
use super::usage::{CallUsage, UsageCount, UsageSum};
use crate::command::CallStatus;
use crate::histogram::{Histogram, HistogramSum};
use crate::log::Filter;
use crate::stats::{Stats, StatsGroup, StatsGrouping, StatsQuery};

/// The two lengths of rows, in seconds.
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

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
    usage: UsageCount,
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
            usage: UsageCount::from_bytes(row.get_ref(2)?.as_blob()?),
        })
    }
}

const SELECT_COUNT: &str = "SELECT calls, durations, usage FROM rollup WHERE is_of_host = ?1 AND span = ?2 \
                            AND start = ?3 AND target = ?4 AND outcome = ?5 AND actor = ?6 AND host = ?7";
const SELECT_SPAN: &str = "SELECT target, outcome, actor, host, calls, durations, usage FROM rollup \
                           WHERE is_of_host = ?1 AND span = ?2 AND start >= ?3 AND start < ?4";
const SELECT_OPEN: &str = "SELECT at, target, writer FROM calls INDEXED BY calls_open WHERE outcome = 0";

/// The queries of calls and counts here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 3] = [SELECT_COUNT, SELECT_SPAN, SELECT_OPEN];

/// The row that counts a call: 1 if of a host, its span, the beginning of that, the target, the outcome, the actor, and the
/// host or 0.
type RowKey = (i64, i64, i64, i64, i64, i64, i64);

/// The calls that a transaction adds, or removes.
#[derive(Debug, Default)]
pub(super) struct RollupChanges(HashMap<RowKey, Count>);

impl RollupChanges {
    /// Counts a call.
    pub(super) fn add(&mut self, call: &CallCount<'_>) {
        let CallCount { at, target, outcome, actor, usage, .. } = *call;
        for host in [0].iter().chain(&usage.hosts) {
            for span in [HOUR, DAY] {
                let key = (i64::from(*host != 0), span, begin(at, span), target, outcome, actor, *host);
                self.0.entry(key).or_default().record(call);
            }
        }
    }

    /// Adds the calls to the stored counts.
    pub(super) fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        for (key, mut count) in self.0 {
            if let Some(before) = select.query_row(key, Count::stored).optional()? {
                count.merge(&before);
            }
            put(connection, key, &count)?;
        }
        Ok(())
    }

    /// Takes the calls off the stored counts.
    pub(super) fn write_removed(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        for (key, count) in self.0 {
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
        Ok(())
    }

    /// Returns true if the stored counts are those of these calls.
    #[cfg(test)]
    pub(super) fn are_stored(mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let select = "SELECT calls, durations, usage, is_of_host, span, start, target, outcome, actor, host FROM rollup";
        let mut select = connection.prepare(select)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let key =
                (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?);
            let (count, stored) = (self.0.remove(&key).unwrap_or_default(), Count::stored(row)?);
            let is_same = count.calls == stored.calls
                && stored.durations.is_rest_like(&count.durations)
                && stored.usage.is_rest_like(&count.usage);
            if !is_same {
                return Ok(false);
            }
        }
        Ok(self.0.is_empty())
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

/// The beginning of the span, in seconds, in which this microsecond is.
fn begin(micros: i64, span: i64) -> i64 {
    micros.div_euclid(1_000_000).div_euclid(span).saturating_mul(span)
}

/// The spans of both lengths, from a beginning to an end in seconds, that make up these hours.
fn spans(since: i64, until: i64) -> Vec<(i64, i64, i64)> {
    // The whole days in it, and the hours before and after them.
    let first = since.checked_add(DAY - 1).map_or(since, |end| end.div_euclid(DAY) * DAY);
    let last = if until == i64::MAX { until } else { until.div_euclid(DAY) * DAY };
    match first < last {
        true => vec![(HOUR, since, first), (DAY, first, last), (HOUR, last, until)],
        false => vec![(HOUR, since, until)],
    }
}

/// A sum of counts.
#[derive(Default)]
struct CountSum {
    calls: u64,
    durations: HistogramSum,
    usage: UsageSum,
}

/// Returns the statistics of the calls that match `filter`, in whole hours. `held` are the writers that processes hold.
pub(super) fn stats(
    connection: &Connection,
    filter: &Filter,
    query: StatsQuery,
    held: &HashSet<i64>,
) -> rusqlite::Result<Stats> {
    let targets = find::targets(connection, filter)?;
    let outcomes = find::outcomes(connection, filter)?;
    let lets_through = |target: i64, outcome: i64| {
        targets.as_ref().is_none_or(|targets| targets.contains(&target))
            && outcomes.as_ref().is_none_or(|outcomes| outcomes.contains(&outcome))
    };
    let since = filter.since.map(|since| begin(since.as_microsecond(), HOUR));
    let until = filter.until.map(|until| begin(until.as_microsecond() - 1, HOUR) + HOUR);
    let (from, to) = (since.unwrap_or(i64::MIN), until.unwrap_or(i64::MAX));
    let is_of_host = query.by == StatsGrouping::Host;
    let mut sums = HashMap::<_, CountSum>::new();
    let mut select = connection.prepare_cached(SELECT_SPAN)?;
    for (span, from, to) in spans(from, to) {
        let mut rows = select.query(params![is_of_host, span, from, to])?;
        while let Some(row) = rows.next()? {
            let (target, outcome) = (row.get(0)?, row.get(1)?);
            if !lets_through(target, outcome) {
                continue;
            }
            let by = match query.by {
                StatsGrouping::Connector | StatsGrouping::Operation => target,
                StatsGrouping::Host => row.get(3)?,
                StatsGrouping::Code => 0,
                StatsGrouping::Actor => row.get(2)?,
            };
            let sum = sums.entry((by, outcome)).or_default();
            sum.calls = sum.calls.saturating_add(row.get(4)?);
            sum.durations.add_bytes(row.get_ref(5)?.as_blob()?);
            if query.usage {
                sum.usage.add_bytes(row.get_ref(6)?.as_blob()?);
            }
        }
    }
    let in_time = |at: i64| (from..to).contains(&at.div_euclid(1_000_000));
    let time = |second: Option<i64>| second.and_then(|second| Timestamp::from_second(second).ok());
    let mut stats = Stats { since: time(since), until: time(until), ..Stats::default() };
    let mut select = connection.prepare_cached(SELECT_OPEN)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if in_time(row.get(0)?) && lets_through(row.get(1)?, 0) {
            *if held.contains(&row.get(2)?) { &mut stats.running } else { &mut stats.incomplete } += 1;
        }
    }
    stats.groups = groups(connection, query, sums)?;
    Ok(stats)
}

/// Adds the counts up by name, status and class.
fn groups(
    connection: &Connection,
    query: StatsQuery,
    sums: HashMap<(i64, i64), CountSum>,
) -> rusqlite::Result<Vec<StatsGroup>> {
    let mut name = connection.prepare_cached(match query.by {
        StatsGrouping::Connector => "SELECT connector FROM targets WHERE id = ?1",
        StatsGrouping::Operation => "SELECT connector || ' ' || op FROM targets WHERE id = ?1",
        StatsGrouping::Host => "SELECT name FROM hosts WHERE id = ?1",
        StatsGrouping::Code => "SELECT code FROM outcomes WHERE id = ?1",
        StatsGrouping::Actor => "SELECT name FROM actors WHERE id = ?1",
    })?;
    let mut outcome = connection.prepare_cached("SELECT status, class FROM outcomes WHERE id = ?1")?;
    let mut groups = HashMap::<(String, usize, String), StatsGroup>::new();
    for ((by, of), sum) in sums {
        let by = if query.by == StatsGrouping::Code { of } else { by };
        let name: String = name.query_row([by], |row| row.get(0)).optional()?.unwrap_or_default();
        let ending = outcome.query_row([of], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (status, class): (usize, String) = ending.unwrap_or_default();
        let group = StatsGroup {
            name: name.clone(),
            status: CallStatus::ALL.get(status).copied().unwrap_or(CallStatus::Running),
            class: Some(class.clone()).filter(|class| !class.is_empty()),
            calls: sum.calls,
            durations: sum.durations.into_histogram(),
            usage: query.usage.then(|| sum.usage.into_stats()),
        };
        match groups.entry((name, status, class)) {
            Entry::Vacant(vacant) => drop(vacant.insert(group)),
            Entry::Occupied(same) => same.into_mut().add(&group),
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        let key = |group: &StatsGroup| (group.name.clone(), group.status.number(), group.class.clone());
        b.calls.cmp(&a.calls).then_with(|| key(a).cmp(&key(b)))
    });
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::{DAY, HOUR, spans};

    #[test]
    fn spans_are_split_into_days_and_hours() {
        let (h, d) = (HOUR, DAY);
        assert_eq!(spans(i64::MIN, i64::MAX).iter().map(|(span, ..)| *span).collect::<Vec<_>>(), [h, d, h]);
        assert_eq!(spans(d + h, 4 * d + h), [(h, d + h, 2 * d), (d, 2 * d, 4 * d), (h, 4 * d, 4 * d + h)]);
        assert_eq!(spans(d, 2 * d), [(h, d, d), (d, d, 2 * d), (h, 2 * d, 2 * d)]);
        assert_eq!(spans(d + h, d + 3 * h), [(h, d + h, d + 3 * h)]);
        assert_eq!(spans(d + h, 2 * d + 3 * h), [(h, d + h, 2 * d + 3 * h)]);
    }
}
