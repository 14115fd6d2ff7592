//! Statistics of many calls: counted once into rows of an hour and of a day, so that no query counts a million
//! calls again.
//!
//! The counted calls are all calls with ids below one (`rolled.upto`) that have an end. The writer advances
//! that id by thousands of calls at a time while no caller waits; a call from before it that ends later is
//! counted as it ends. Calls after it are counted by each query. All of this can be rebuilt from `calls`.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

use super::find;
use crate::command::CallStatus;
use crate::histogram::Histogram;
use crate::log::Filter;
use crate::stats::{Stats, StatsGroup};

/// The two lengths of rows, in seconds.
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// Calls that ended since the last time, after which the writer counts; most that it counts at once.
pub(super) const CALLS: usize = 4096;

/// The age at which a call is counted ahead of its end, in milliseconds: most calls have ended by then.
const AGE_MS: i64 = 5_000;

type Id = [u8; 16];

/// A call that has an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) id: Id,
    /// When it was received, in microseconds.
    pub(super) at: i64,
    pub(super) route: i64,
    pub(super) verdict: i64,
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
        self.calls += 1;
        if let Some(duration) = duration.and_then(|duration| u64::try_from(duration).ok()) {
            self.durations.record(duration);
        }
    }

    fn merge(&mut self, calls: u64, durations: &Histogram) {
        self.calls = self.calls.saturating_add(calls);
        self.durations.merge(durations);
    }
}

const SELECT_COUNT: &str =
    "SELECT calls, durations FROM rollup WHERE span = ?1 AND start = ?2 AND route = ?3 AND verdict = ?4";
const SELECT_SPAN: &str =
    "SELECT route, verdict, calls, durations FROM rollup WHERE span = ?1 AND start >= ?2 AND start < ?3";
const SELECT_NEXT: &str =
    "SELECT id, at, route, verdict, duration FROM calls WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
const SELECT_REST: &str = "SELECT id, at, route, verdict, duration FROM calls WHERE id >= ?1";
const SELECT_OPEN: &str = "SELECT at, route, owner FROM calls INDEXED BY calls_open WHERE verdict = 0";

/// Every query of calls and counts here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 5] = [SELECT_COUNT, SELECT_SPAN, SELECT_NEXT, SELECT_REST, SELECT_OPEN];

/// The id below which all is counted that has an end.
fn upto(connection: &Connection) -> rusqlite::Result<Id> {
    let mut select = connection.prepare_cached("SELECT upto FROM rolled WHERE one = 0")?;
    select.query_row([], |row| row.get(0))
}

/// A call ended, within this transaction, whose `seen` is kept for its other calls.
pub(super) fn ended(connection: &Connection, seen: &mut Option<Id>, call: Ended) -> rusqlite::Result<()> {
    let upto = match *seen {
        Some(upto) => upto,
        None => *seen.insert(upto(connection)?),
    };
    if call.id >= upto { Ok(()) } else { add(connection, [call]) }
}

/// Counts further calls, at most so many: a transaction of its own.
pub(super) fn advance(connection: &Connection, now: Timestamp, most: usize) -> rusqlite::Result<()> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let until = find::first_id(now.as_millisecond() - AGE_MS);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let calls = {
        let mut select = transaction.prepare_cached(SELECT_NEXT)?;
        let rows = select.query_map(params![upto(&transaction)?, until, most], call)?;
        rows.collect::<rusqlite::Result<Vec<_>>>()?
    };
    let Some(last) = calls.last() else { return Ok(()) };
    let next = u128::from_be_bytes(last.id).saturating_add(1).to_be_bytes();
    transaction.execute("UPDATE rolled SET upto = ?1 WHERE one = 0", [next])?;
    add(&transaction, calls)?;
    transaction.commit()
}

/// Returns true if so many calls are not counted yet.
pub(super) fn is_behind(connection: &Connection, by: usize) -> rusqlite::Result<bool> {
    let select = "SELECT 1 FROM calls WHERE id >= ?1 ORDER BY id LIMIT 1 OFFSET ?2";
    let by = i64::try_from(by).unwrap_or(i64::MAX);
    Ok(connection.query_row(select, params![upto(connection)?, by], |_| Ok(())).optional()?.is_some())
}

pub(super) fn call(row: &Row<'_>) -> rusqlite::Result<Ended> {
    Ok(Ended {
        id: row.get(0)?,
        at: row.get(1)?,
        route: row.get(2)?,
        verdict: row.get(3)?,
        duration: row.get(4)?,
    })
}

/// Returns the keys of the rows that count a call: the row of its hour, and the row of its day.
fn rows_of(call: Ended) -> [(i64, i64, i64, i64); 2] {
    [HOUR, DAY].map(|span| (span, begin(call.at, span), call.route, call.verdict))
}

fn add(connection: &Connection, calls: impl IntoIterator<Item = Ended>) -> rusqlite::Result<()> {
    let mut counts = HashMap::<_, Count>::new();
    for call in calls.into_iter().filter(|call| call.verdict != 0) {
        for row in rows_of(call) {
            counts.entry(row).or_default().record(call.duration);
        }
    }
    let insert = "INSERT OR REPLACE INTO rollup (span, start, route, verdict, calls, durations) \
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (mut select, mut insert) =
        (connection.prepare_cached(SELECT_COUNT)?, connection.prepare_cached(insert)?);
    for ((span, start, route, verdict), mut count) in counts {
        let row = params![span, start, route, verdict];
        let before = select.query_row(row, |row| Ok((row.get(0)?, histogram(row, 1)?))).optional()?;
        if let Some((calls, durations)) = before {
            count.merge(calls, &durations);
        }
        insert.execute(params![span, start, route, verdict, count.calls, count.durations.to_bytes()])?;
    }
    Ok(())
}

/// These calls are removed within this transaction, by what prunes the audit log: they are counted no more.
pub(super) fn removed(
    connection: &Connection,
    calls: impl IntoIterator<Item = Ended>,
) -> rusqlite::Result<()> {
    let upto = upto(connection)?;
    let mut counts = HashMap::<_, Count>::new();
    for call in calls.into_iter().filter(|call| call.verdict != 0 && call.id < upto) {
        for row in rows_of(call) {
            counts.entry(row).or_default().record(call.duration);
        }
    }
    let delete = "DELETE FROM rollup WHERE span = ?1 AND start = ?2 AND route = ?3 AND verdict = ?4";
    let update = "UPDATE rollup SET calls = ?5, durations = ?6 WHERE span = ?1 AND start = ?2 AND route = ?3 AND verdict = ?4";
    for ((span, start, route, verdict), count) in counts {
        let row = params![span, start, route, verdict];
        let mut select = connection.prepare_cached(SELECT_COUNT)?;
        let before =
            select.query_row(row, |row| Ok((row.get::<_, u64>(0)?, histogram(row, 1)?))).optional()?;
        let Some((calls, mut durations)) = before else { continue };
        durations.remove(&count.durations);
        match calls.saturating_sub(count.calls) {
            0 => connection.prepare_cached(delete)?.execute(row)?,
            calls => connection.prepare_cached(update)?.execute(params![
                span,
                start,
                route,
                verdict,
                calls,
                durations.to_bytes()
            ])?,
        };
    }
    Ok(())
}

/// Returns true if the stored counts equal a new count over all calls.
pub(super) fn recount(connection: &Connection) -> rusqlite::Result<bool> {
    let mut counts = HashMap::<_, Count>::new();
    let mut select =
        connection.prepare("SELECT id, at, route, verdict, duration FROM calls WHERE id < ?1")?;
    let mut rows = select.query([upto(connection)?])?;
    while let Some(row) = rows.next()? {
        let call = call(row)?;
        if call.verdict != 0 {
            for row in rows_of(call) {
                counts.entry(row).or_default().record(call.duration);
            }
        }
    }
    let mut select =
        connection.prepare("SELECT span, start, route, verdict, calls, durations FROM rollup")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let key = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let count = counts.remove(&key).unwrap_or_default();
        if count.calls != row.get::<_, u64>(4)? || !histogram(row, 5)?.is_rest_like(&count.durations) {
            return Ok(false);
        }
    }
    Ok(counts.is_empty())
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
    lives: impl Fn(i64) -> rusqlite::Result<bool>,
) -> rusqlite::Result<Stats> {
    let routes = find::routes(connection, filter)?;
    let verdicts = find::verdicts(connection, filter)?;
    let lets_through = |route: i64, verdict: i64| {
        routes.as_ref().is_none_or(|routes| routes.contains(&route))
            && verdicts.as_ref().is_none_or(|verdicts| verdicts.contains(&verdict))
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
    let mut select = connection.prepare_cached(SELECT_REST)?;
    let mut rows = select.query([upto(connection)?])?;
    while let Some(row) = rows.next()? {
        let call = call(row)?;
        if call.verdict != 0 && in_time(call.at) && lets_through(call.route, call.verdict) {
            counts.entry((call.route, call.verdict)).or_default().record(call.duration);
        }
    }
    let time = |second: Option<i64>| second.and_then(|second| Timestamp::from_second(second).ok());
    let mut stats = Stats { since: time(since), until: time(until), ..Stats::default() };
    let mut alive = HashMap::new();
    let mut select = connection.prepare_cached(SELECT_OPEN)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if !in_time(row.get(0)?) || !lets_through(row.get(1)?, 0) {
            continue;
        }
        let owner = row.get(2)?;
        let is_alive = match alive.get(&owner) {
            Some(known) => *known,
            None => *alive.entry(owner).or_insert(lives(owner)?),
        };
        *if is_alive { &mut stats.running } else { &mut stats.incomplete } += 1;
    }
    stats.groups = groups(connection, counts)?;
    Ok(stats)
}

/// The counts by what people know: connector, status, class.
fn groups(connection: &Connection, counts: HashMap<(i64, i64), Count>) -> rusqlite::Result<Vec<StatsGroup>> {
    let mut connector = connection.prepare_cached("SELECT connector FROM routes WHERE id = ?1")?;
    let mut verdict = connection.prepare_cached("SELECT status, class FROM verdicts WHERE id = ?1")?;
    let mut groups = HashMap::<_, Count>::new();
    for ((route, of), count) in counts {
        let connector: Option<String> = connector.query_row([route], |row| row.get(0)).optional()?;
        let ending = verdict.query_row([of], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
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
