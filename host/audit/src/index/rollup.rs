//! Statistics of many calls: counted into rows of an hour and of a day, in the transaction that adds the calls, so that
//! no query counts a million calls again.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::find;
use crate::command::CallStatus;
use crate::histogram::Histogram;
use crate::log::Filter;
use crate::stats::{Stats, StatsGroup};

/// The two lengths of rows, in seconds.
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// A call that has an end, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallCount {
    /// When it was received, in microseconds.
    pub(super) at: i64,
    pub(super) target: i64,
    pub(super) outcome: i64,
    pub(super) actor: i64,
    /// The duration in microseconds.
    pub(super) duration: Option<i64>,
}

/// The counts of some calls.
#[derive(Debug, Default)]
struct Count {
    calls: u64,
    durations: Histogram,
}

impl Count {
    fn record(&mut self, duration: Option<i64>) {
        self.calls = self.calls.saturating_add(1);
        if let Some(duration) = duration.and_then(|duration| u64::try_from(duration).ok()) {
            self.durations.record(duration);
        }
    }

    fn merge(&mut self, calls: u64, durations: &Histogram) {
        self.calls = self.calls.saturating_add(calls);
        self.durations.merge(durations);
    }
}

const SELECT_COUNT: &str = "SELECT calls, durations FROM rollup \
                            WHERE span = ?1 AND start = ?2 AND target = ?3 AND outcome = ?4 AND actor = ?5";
const SELECT_SPAN: &str =
    "SELECT target, outcome, calls, durations FROM rollup WHERE span = ?1 AND start >= ?2 AND start < ?3";
const SELECT_OPEN: &str = "SELECT at, target, writer FROM calls INDEXED BY calls_open WHERE outcome = 0";

/// The queries of calls and counts here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 3] = [SELECT_COUNT, SELECT_SPAN, SELECT_OPEN];

/// The row that counts a call: its span, the beginning of that, the target, the outcome and the actor.
type RowKey = (i64, i64, i64, i64, i64);

/// The calls that a transaction adds, or removes.
#[derive(Debug, Default)]
pub(super) struct RollupChanges(HashMap<RowKey, Count>);

impl RollupChanges {
    /// Counts a call.
    pub(super) fn add(&mut self, call: CallCount) {
        for span in [HOUR, DAY] {
            let key = (span, begin(call.at, span), call.target, call.outcome, call.actor);
            self.0.entry(key).or_default().record(call.duration);
        }
    }

    /// Adds the calls to the stored counts.
    pub(super) fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        for (key, mut count) in self.0 {
            if let Some((calls, durations)) = select.query_row(key, stored).optional()? {
                count.merge(calls, &durations);
            }
            put(connection, key, count.calls, &count.durations)?;
        }
        Ok(())
    }

    /// Takes the calls off the stored counts.
    pub(super) fn write_removed(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        for (key, count) in self.0 {
            let Some((calls, mut durations)) = select.query_row(key, stored).optional()? else { continue };
            durations.remove(&count.durations);
            match calls.saturating_sub(count.calls) {
                0 => {
                    let delete = "DELETE FROM rollup \
                                  WHERE span = ?1 AND start = ?2 AND target = ?3 AND outcome = ?4 AND actor = ?5";
                    connection.prepare_cached(delete)?.execute(key)?;
                }
                calls => put(connection, key, calls, &durations)?,
            }
        }
        Ok(())
    }

    /// Returns true if the stored counts are those of these calls.
    #[cfg(test)]
    pub(super) fn are_stored(mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let select = "SELECT calls, durations, span, start, target, outcome, actor FROM rollup";
        let mut select = connection.prepare(select)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let key = (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
            let (count, (calls, durations)) = (self.0.remove(&key).unwrap_or_default(), stored(row)?);
            if count.calls != calls || !durations.is_rest_like(&count.durations) {
                return Ok(false);
            }
        }
        Ok(self.0.is_empty())
    }
}

fn put(connection: &Connection, key: RowKey, calls: u64, durations: &Histogram) -> rusqlite::Result<()> {
    let (span, start, target, outcome, actor) = key;
    let insert = "INSERT OR REPLACE INTO rollup (span, start, target, outcome, actor, calls, durations) \
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let row = params![span, start, target, outcome, actor, calls, durations.to_bytes()];
    connection.prepare_cached(insert)?.execute(row).map(drop)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<(u64, Histogram)> {
    Ok((row.get(0)?, histogram(row, 1)?))
}

fn histogram(row: &Row<'_>, at: usize) -> rusqlite::Result<Histogram> {
    Ok(Histogram::from_bytes(row.get_ref(at)?.as_blob()?))
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

/// Returns the statistics of the calls that match `filter`, in whole hours.
pub(super) fn stats(
    connection: &Connection,
    filter: &Filter,
    is_held: impl Fn(i64) -> bool,
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
    let mut counts = HashMap::<_, Count>::new();
    let mut select = connection.prepare_cached(SELECT_SPAN)?;
    for (span, from, to) in spans(from, to) {
        let mut rows = select.query([span, from, to])?;
        while let Some(row) = rows.next()? {
            let key = (row.get(0)?, row.get(1)?);
            if lets_through(key.0, key.1) {
                counts.entry(key).or_default().merge(row.get(2)?, &histogram(row, 3)?);
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
            *if is_held(row.get(2)?) { &mut stats.running } else { &mut stats.incomplete } += 1;
        }
    }
    stats.groups = groups(connection, counts)?;
    Ok(stats)
}

/// Adds the counts up by connector, status and class.
fn groups(connection: &Connection, counts: HashMap<(i64, i64), Count>) -> rusqlite::Result<Vec<StatsGroup>> {
    let mut connector = connection.prepare_cached("SELECT connector FROM targets WHERE id = ?1")?;
    let mut outcome = connection.prepare_cached("SELECT status, class FROM outcomes WHERE id = ?1")?;
    let mut groups = HashMap::<_, Count>::new();
    for ((target, of), count) in counts {
        let connector: Option<String> = connector.query_row([target], |row| row.get(0)).optional()?;
        let ending = outcome.query_row([of], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (status, class): (usize, String) = ending.unwrap_or_default();
        groups
            .entry((connector.unwrap_or_default(), status, class))
            .or_default()
            .merge(count.calls, &count.durations);
    }
    let group = |((connector, status, class), count): ((String, usize, String), Count)| StatsGroup {
        connector,
        status: CallStatus::ALL.get(status).copied().unwrap_or(CallStatus::Running),
        class: Some(class).filter(|class| !class.is_empty()),
        calls: count.calls,
        durations: count.durations,
    };
    let mut groups: Vec<_> = groups.into_iter().map(group).collect();
    groups.sort_by(|a, b| {
        let key = |group: &StatsGroup| (group.connector.clone(), group.status.number(), group.class.clone());
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
