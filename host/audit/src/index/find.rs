//! Which calls a filter lets through, the newest first: a few scans of indexes, merged, and never of a whole table.
//!
//! Targets and outcomes are few. Those that fit are looked up first, and each (or each pair of them) is a range of one
//! index, in the order of the log. So what is rare is found as fast as what is common. The calls under an idempotency
//! key are a range of their own.

use std::collections::{BinaryHeap, HashSet, VecDeque};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::command::CallStatus;
use crate::log::Filter;

/// Most pairs of a outcome and a target that are scanned each on its own; of more, outcomes alone are.
const PAIRS: usize = 4096;

/// The rows that the first reads of all scans share, and the most rows of one read of a single scan.
const ROWS: (usize, usize) = (512, 1024);

/// A range of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    All,
    Open,
    Target(i64),
    Outcome(i64),
    Pair {
        outcome: i64,
        target: i64,
    },
    /// The calls under the idempotency key with this SHA-256.
    Key([u8; 32]),
}

impl Scan {
    /// Returns its query. Each query names its index, since no statistics are maintained from which SQLite
    /// could choose.
    pub(super) fn select(self) -> String {
        let (index, range) = match self {
            Self::All => ("", "?4 = ?5"),
            Self::Open => ("INDEXED BY calls_open", "outcome = 0 AND ?4 = ?5"),
            Self::Target(_) => ("INDEXED BY calls_of_target", "target = ?5 AND ?4 = 0"),
            Self::Outcome(_) => ("INDEXED BY calls_of_outcome", "outcome = ?4 AND outcome > 1 AND ?5 = 0"),
            Self::Pair { .. } => {
                ("INDEXED BY calls_by_outcome", "outcome = ?4 AND outcome > 1 AND target = ?5")
            }
            Self::Key(_) => ("INDEXED BY calls_of_key", "key = ?5 AND ?4 = 0"),
        };
        format!(
            "SELECT seq, at, target, outcome, writer, actor FROM calls {index} \
             WHERE {range} AND seq < ?1 AND seq >= ?2 ORDER BY seq DESC LIMIT ?3"
        )
    }

    /// Returns the outcome in it, and the target or the key; 0 where there is none.
    fn operands(self) -> (i64, Value) {
        match self {
            Self::All | Self::Open => (0, Value::Integer(0)),
            Self::Target(target) => (0, Value::Integer(target)),
            Self::Outcome(outcome) => (outcome, Value::Integer(0)),
            Self::Pair { outcome, target } => (outcome, Value::Integer(target)),
            Self::Key(key) => (0, Value::Blob(key.to_vec())),
        }
    }
}

/// The calls that a filter selects, whenever they were received.
pub(super) struct CallSelection {
    targets: Option<HashSet<i64>>,
    outcomes: Option<HashSet<i64>>,
    actor: Option<i64>,
}

impl CallSelection {
    pub(super) fn new(connection: &Connection, filter: &Filter) -> rusqlite::Result<Self> {
        Ok(Self {
            targets: targets(connection, filter)?,
            outcomes: outcomes(connection, filter)?,
            actor: actor(connection, filter)?,
        })
    }

    pub(super) fn has(&self, target: i64, outcome: i64, actor: i64) -> bool {
        self.targets.as_ref().is_none_or(|targets| targets.contains(&target))
            && self.outcomes.as_ref().is_none_or(|outcomes| outcomes.contains(&outcome))
            && self.actor.is_none_or(|asked| asked == actor)
    }
}

/// The scans of a search, and the conditions on their rows.
pub(super) struct Plan {
    pub(super) scans: Vec<Scan>,
    selection: CallSelection,
    /// From this place in the log's order, and below that one.
    seqs: (i64, i64),
    at: (i64, i64),
    /// Of calls without an end: true if only those are asked for whose writer no process holds, false if only others.
    is_free: Option<bool>,
}

impl Plan {
    pub(super) fn new(connection: &Connection, filter: &Filter) -> rusqlite::Result<Self> {
        let selection = CallSelection::new(connection, filter)?;
        let at = |time: Option<jiff::Timestamp>, none| time.map_or(none, jiff::Timestamp::as_microsecond);
        let at = (at(filter.since, i64::MIN), at(filter.until, i64::MAX));
        let skew = "SELECT least, most FROM skew";
        let (least, most): (i64, i64) =
            connection.prepare_cached(skew)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let before = match &filter.before {
            Some(before) => seq_of(connection, before.bytes())?,
            None => i64::MAX,
        };
        Ok(Self {
            scans: match filter.key {
                _ if selection.actor == Some(NO_ACTOR) => Vec::new(),
                // Few calls have the same key.
                Some(key) => vec![Scan::Key(key)],
                None => scans(selection.targets.as_ref(), selection.outcomes.as_ref()),
            },
            selection,
            seqs: (at.0.saturating_add(least), at.1.saturating_add(most).min(before)),
            at,
            is_free: match filter.status {
                Some(CallStatus::Incomplete) => Some(true),
                Some(CallStatus::Running) => Some(false),
                _ => None,
            },
        })
    }

    /// Returns the places in the log's order of the calls, at most `limit` of them. `free` are the writers that no process
    /// holds.
    pub(super) fn calls(
        &self,
        connection: &Connection,
        free: &HashSet<i64>,
        limit: usize,
    ) -> rusqlite::Result<Vec<i64>> {
        let mut found = Vec::new();
        let mut merge = Merge::new(connection, self)?;
        while found.len() < limit
            && let Some(hit) = merge.next()?
        {
            let fits = self.is_free.is_none_or(|is_free| free.contains(&hit.writer) == is_free);
            let in_time = (self.at.0..self.at.1).contains(&hit.at);
            if in_time && fits && self.selection.has(hit.target, hit.outcome, hit.actor) {
                found.push(hit.seq);
            }
        }
        Ok(found)
    }
}

/// The ranges in which all that fits is.
fn scans(targets: Option<&HashSet<i64>>, outcomes: Option<&HashSet<i64>>) -> Vec<Scan> {
    let by_target = || match targets {
        None => vec![Scan::All],
        Some(targets) => targets.iter().copied().map(Scan::Target).collect(),
    };
    let Some(outcomes) = outcomes else { return by_target() };
    // Nearly all calls have a value: those are in no index of outcomes.
    if outcomes.contains(&1) {
        return by_target();
    }
    let open = outcomes.contains(&0).then_some(Scan::Open);
    let ended = outcomes.iter().copied().filter(|outcome| *outcome > 1);
    let ended: Vec<_> = match targets {
        Some(targets) if targets.len().saturating_mul(outcomes.len()) <= PAIRS => ended
            .flat_map(|outcome| targets.iter().map(move |target| Scan::Pair { outcome, target: *target }))
            .collect(),
        _ => ended.map(Scan::Outcome).collect(),
    };
    open.into_iter().chain(ended).collect()
}

/// The targets that fit; none where all do.
pub(super) fn targets(connection: &Connection, filter: &Filter) -> rusqlite::Result<Option<HashSet<i64>>> {
    let Filter { connector, op, action, .. } = filter;
    if connector.is_none() && op.is_none() && action.is_none() {
        return Ok(None);
    }
    let mut select = connection.prepare_cached("SELECT id, connector, op, action FROM targets")?;
    let mut rows = select.query([])?;
    let mut found = HashSet::new();
    while let Some(row) = rows.next()? {
        let word = |at: usize| row.get_ref(at).and_then(|value| Ok(value.as_str()?));
        let (name, of) = (word(1)?, word(3)?);
        let fits = |asked: &Option<String>, word: &str| asked.as_ref().is_none_or(|asked| asked == word);
        if (fits(connector, name) || fits(connector, unversioned(name)))
            && fits(op, word(2)?)
            && (fits(action, of) || fits(action, unversioned(of)))
        {
            found.insert(row.get(0)?);
        }
    }
    Ok(Some(found))
}

/// A name without its version.
fn unversioned(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(name, _)| name)
}

/// The outcomes that fit; none where all do.
fn outcomes(connection: &Connection, filter: &Filter) -> rusqlite::Result<Option<HashSet<i64>>> {
    let (Filter { failed, class, code, .. }, status) = (filter, filter.stored_status());
    if !failed && status.is_none() && class.is_none() && code.is_none() {
        return Ok(None);
    }
    let mut select = connection.prepare_cached("SELECT id, status, class, code FROM outcomes")?;
    let mut rows = select.query([])?;
    let mut found = HashSet::new();
    while let Some(row) = rows.next()? {
        let word = |at: usize| row.get_ref(at).and_then(|value| Ok(value.as_str()?));
        let own = CallStatus::from_number(row.get::<_, usize>(1)?);
        let failure = own.has_end() && own != CallStatus::Value;
        let fits = |asked: &Option<String>, word: &str| asked.as_ref().is_none_or(|asked| asked == word);
        if (!failed || failure)
            && status.is_none_or(|status| status == own)
            && fits(class, word(2)?)
            && fits(code, word(3)?)
        {
            found.insert(row.get(0)?);
        }
    }
    Ok(Some(found))
}

/// The number of an actor without calls.
const NO_ACTOR: i64 = -1;

/// The actor that fits; none where all do.
fn actor(connection: &Connection, filter: &Filter) -> rusqlite::Result<Option<i64>> {
    let Some(name) = &filter.actor else { return Ok(None) };
    let mut select = connection.prepare_cached("SELECT id FROM actors WHERE name = ?1")?;
    Ok(Some(select.query_row([name], |row| row.get(0)).optional()?.unwrap_or(NO_ACTOR)))
}

const SELECT_SEQ: &str = "SELECT seq FROM calls WHERE id = ?1";

/// The queries of calls here that are no scans.
#[cfg(test)]
pub(super) const QUERIES: [&str; 1] = [SELECT_SEQ];

/// Returns the place of a call in the log's order. For a call that is not in the index, it is the time in the id.
fn seq_of(connection: &Connection, id: [u8; 16]) -> rusqlite::Result<i64> {
    let stored = connection.prepare_cached(SELECT_SEQ)?.query_row([id], |row| row.get(0)).optional()?;
    Ok(stored.unwrap_or_else(|| {
        let millis = i64::try_from(u128::from_be_bytes(id) >> 80).unwrap_or(i64::MAX);
        millis.saturating_mul(1_000)
    }))
}

/// One call, as scans have it.
#[derive(Debug, Clone, Copy)]
struct Hit {
    seq: i64,
    at: i64,
    target: i64,
    outcome: i64,
    writer: i64,
    actor: i64,
}

fn hit(row: &Row<'_>) -> rusqlite::Result<Hit> {
    Ok(Hit {
        seq: row.get(0)?,
        at: row.get(1)?,
        target: row.get(2)?,
        outcome: row.get(3)?,
        writer: row.get(4)?,
        actor: row.get(5)?,
    })
}

/// Several scans as one, the newest first.
struct Merge<'c> {
    connection: &'c Connection,
    from: i64,
    cursors: Vec<Cursor>,
    /// The next call in each cursor that has one.
    heads: BinaryHeap<(i64, usize)>,
}

/// The position of a scan.
struct Cursor {
    scan: Scan,
    below: i64,
    rows: VecDeque<Hit>,
    most: usize,
    ended: bool,
}

impl<'c> Merge<'c> {
    fn new(connection: &'c Connection, plan: &Plan) -> rusqlite::Result<Self> {
        let most = (ROWS.0 / plan.scans.len().max(1)).clamp(2, 128);
        let cursor = |scan: &Scan| Cursor {
            scan: *scan,
            below: plan.seqs.1,
            rows: VecDeque::new(),
            most,
            ended: false,
        };
        let cursors = plan.scans.iter().map(cursor).collect::<Vec<_>>();
        let mut merge = Self { connection, from: plan.seqs.0, heads: BinaryHeap::new(), cursors };
        for at in 0..merge.cursors.len() {
            merge.refill(at)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> rusqlite::Result<Option<Hit>> {
        let Some((_, at)) = self.heads.pop() else { return Ok(None) };
        let hit = self.cursors.get_mut(at).and_then(|cursor| cursor.rows.pop_front());
        self.refill(at)?;
        Ok(hit)
    }

    /// Has the next call of this cursor among the heads, if there is one.
    fn refill(&mut self, at: usize) -> rusqlite::Result<()> {
        let Some(cursor) = self.cursors.get_mut(at) else { return Ok(()) };
        if cursor.rows.is_empty() && !cursor.ended {
            let mut select = self.connection.prepare_cached(&cursor.scan.select())?;
            let (outcome, operand) = cursor.scan.operands();
            let most = i64::try_from(cursor.most).unwrap_or(i64::MAX);
            let rows = select.query_map(params![cursor.below, self.from, most, outcome, operand], hit)?;
            cursor.rows = rows.collect::<Result<_, _>>()?;
            cursor.ended = cursor.rows.len() < cursor.most;
            cursor.most = cursor.most.saturating_mul(2).min(ROWS.1);
            cursor.below = cursor.rows.back().map_or(cursor.below, |hit| hit.seq);
        }
        self.heads.extend(cursor.rows.front().map(|hit| (hit.seq, at)));
        Ok(())
    }
}
