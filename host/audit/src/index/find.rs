//! Which calls a filter lets through, the newest first: a few scans of indexes, merged, and never of a whole table.
//!
//! Routes and verdicts are few. Those that fit are looked up first, and each (or each pair of them) is a range of one
//! index, in the order of ids, which is that of time. So what is rare is found as fast as what is common.

use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::path::Path;

use rusqlite::{Connection, Row, params};

use super::owners;
use crate::command::CallStatus;
use crate::log::Filter;

/// Most pairs of a verdict and a route that are scanned each on its own; of more, verdicts alone are.
const PAIRS: usize = 4096;

/// The rows that the first reads of all scans share, and the most rows of one read of a single scan.
const ROWS: (usize, usize) = (512, 1024);

/// The maximum difference between the time in an id and the time at which its call was received, in
/// milliseconds.
const SLACK_MS: i64 = 2_000;

type Id = [u8; 16];

/// A range of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    All,
    Open,
    Route(i64),
    Verdict(i64),
    Pair { verdict: i64, route: i64 },
}

impl Scan {
    /// Returns its query. Each query names its index, since no statistics are maintained from which SQLite
    /// could choose.
    pub(super) const fn select(self) -> &'static str {
        match self {
            Self::All => {
                "SELECT id, at, route, verdict, owner FROM calls \
                 WHERE id < ?1 AND id >= ?2 AND ?4 = ?5 ORDER BY id DESC LIMIT ?3"
            }
            Self::Open => {
                "SELECT id, at, route, verdict, owner FROM calls INDEXED BY calls_open \
                 WHERE verdict = 0 AND id < ?1 AND id >= ?2 AND ?4 = ?5 ORDER BY id DESC LIMIT ?3"
            }
            Self::Route(_) => {
                "SELECT id, at, route, verdict, owner FROM calls INDEXED BY calls_of_route \
                 WHERE route = ?5 AND id < ?1 AND id >= ?2 AND ?4 = 0 ORDER BY id DESC LIMIT ?3"
            }
            Self::Verdict(_) => {
                "SELECT id, at, route, verdict, owner FROM calls INDEXED BY calls_of_verdict \
                 WHERE verdict = ?4 AND verdict > 1 AND id < ?1 AND id >= ?2 AND ?5 = 0 ORDER BY id DESC LIMIT ?3"
            }
            Self::Pair { .. } => {
                "SELECT id, at, route, verdict, owner FROM calls INDEXED BY calls_by_verdict \
                 WHERE verdict = ?4 AND verdict > 1 AND route = ?5 AND id < ?1 AND id >= ?2 ORDER BY id DESC LIMIT ?3"
            }
        }
    }

    /// The verdict and the route in it; 0 where there is none.
    const fn numbers(self) -> (i64, i64) {
        match self {
            Self::All | Self::Open => (0, 0),
            Self::Route(route) => (0, route),
            Self::Verdict(verdict) => (verdict, 0),
            Self::Pair { verdict, route } => (verdict, route),
        }
    }
}

/// The scans of a search, and the conditions on their rows.
pub(super) struct Plan {
    pub(super) scans: Vec<Scan>,
    routes: Option<HashSet<i64>>,
    verdicts: Option<HashSet<i64>>,
    ids: (Id, Id),
    at: (i64, i64),
    /// Those whose host lives, or those whose host does not; only asked of open ones.
    lives: Option<bool>,
}

impl Plan {
    pub(super) fn new(connection: &Connection, filter: &Filter) -> rusqlite::Result<Self> {
        let routes = routes(connection, filter)?;
        let verdicts = verdicts(connection, filter)?;
        let at = |time: Option<jiff::Timestamp>, none| time.map_or(none, jiff::Timestamp::as_microsecond);
        let at = (at(filter.since, i64::MIN), at(filter.until, i64::MAX));
        let since = filter.since.map_or([0; 16], |since| first_id(since.as_millisecond() - SLACK_MS));
        let until = filter.until.map_or([0xff; 16], |until| first_id(until.as_millisecond() + SLACK_MS));
        let before = filter.before.as_ref().map_or([0xff; 16], cofferdam_core::failure::AuditId::bytes);
        Ok(Self {
            scans: scans(routes.as_ref(), verdicts.as_ref()),
            routes,
            verdicts,
            ids: (since, until.min(before)),
            at,
            lives: (filter.incomplete || filter.status == Some(CallStatus::Running))
                .then_some(!filter.incomplete),
        })
    }

    fn lets_through(&self, hit: &Hit) -> bool {
        (self.at.0..self.at.1).contains(&hit.at)
            && self.routes.as_ref().is_none_or(|routes| routes.contains(&hit.route))
            && self.verdicts.as_ref().is_none_or(|verdicts| verdicts.contains(&hit.verdict))
    }

    /// The calls, at most `limit` of them.
    pub(super) fn calls(
        &self,
        connection: &Connection,
        lives: &Path,
        limit: usize,
    ) -> rusqlite::Result<Vec<Id>> {
        let mut found = Vec::new();
        let mut alive = HashMap::new();
        let mut merge = Merge::new(connection, self)?;
        while found.len() < limit
            && let Some(hit) = merge.next()?
        {
            let is_alive = |alive: &mut HashMap<i64, bool>| match alive.get(&hit.owner) {
                Some(known) => Ok::<_, rusqlite::Error>(*known),
                None => {
                    let is_alive = owner_lives(connection, lives, hit.owner)?;
                    alive.insert(hit.owner, is_alive);
                    Ok(is_alive)
                }
            };
            if self.lets_through(&hit)
                && match self.lives {
                    Some(wanted) => is_alive(&mut alive)? == wanted,
                    None => true,
                }
            {
                found.push(hit.id);
            }
        }
        Ok(found)
    }
}

/// The ranges in which all that fits is.
fn scans(routes: Option<&HashSet<i64>>, verdicts: Option<&HashSet<i64>>) -> Vec<Scan> {
    let by_route = || match routes {
        None => vec![Scan::All],
        Some(routes) => routes.iter().copied().map(Scan::Route).collect(),
    };
    let Some(verdicts) = verdicts else { return by_route() };
    // Nearly all calls have a value: those are in no index of verdicts.
    if verdicts.contains(&1) {
        return by_route();
    }
    let open = verdicts.contains(&0).then_some(Scan::Open);
    let ended = verdicts.iter().copied().filter(|verdict| *verdict > 1);
    let ended: Vec<_> = match routes {
        Some(routes) if routes.len().saturating_mul(verdicts.len()) <= PAIRS => ended
            .flat_map(|verdict| routes.iter().map(move |route| Scan::Pair { verdict, route: *route }))
            .collect(),
        _ => ended.map(Scan::Verdict).collect(),
    };
    open.into_iter().chain(ended).collect()
}

/// The routes that fit; none where all do.
pub(super) fn routes(connection: &Connection, filter: &Filter) -> rusqlite::Result<Option<HashSet<i64>>> {
    let Filter { connector, op, action, .. } = filter;
    if connector.is_none() && op.is_none() && action.is_none() {
        return Ok(None);
    }
    let mut select = connection.prepare_cached("SELECT id, connector, op, action FROM routes")?;
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

/// The verdicts that fit; none where all do.
pub(super) fn verdicts(connection: &Connection, filter: &Filter) -> rusqlite::Result<Option<HashSet<i64>>> {
    let Filter { failed, status, incomplete, class, code, .. } = filter;
    if !failed && !incomplete && status.is_none() && class.is_none() && code.is_none() {
        return Ok(None);
    }
    let mut select = connection.prepare_cached("SELECT id, status, class, code FROM verdicts")?;
    let mut rows = select.query([])?;
    let mut found = HashSet::new();
    while let Some(row) = rows.next()? {
        let word = |at: usize| row.get_ref(at).and_then(|value| Ok(value.as_str()?));
        let own = CallStatus::ALL.get(row.get::<_, usize>(1)?).copied();
        let failure = !matches!(own, Some(CallStatus::Value | CallStatus::Running) | None);
        let fits = |asked: &Option<String>, word: &str| asked.as_ref().is_none_or(|asked| asked == word);
        if (!failed || failure)
            && (!incomplete || own == Some(CallStatus::Running))
            && (status.is_none() || *status == own)
            && fits(class, word(2)?)
            && fits(code, word(3)?)
        {
            found.insert(row.get(0)?);
        }
    }
    Ok(Some(found))
}

/// The least id of that millisecond: ids begin with their time.
pub(super) fn first_id(millisecond: i64) -> Id {
    let mut id = [0; 16];
    let time = u64::try_from(millisecond).unwrap_or(0).min((1 << 48) - 1) << 16;
    for (byte, of) in id.iter_mut().zip(time.to_be_bytes()) {
        *byte = of;
    }
    id
}

/// Returns true if the host of this number is alive. If that cannot be determined, it counts as alive.
pub(super) fn owner_lives(connection: &Connection, lives: &Path, owner: i64) -> rusqlite::Result<bool> {
    use rusqlite::OptionalExtension as _;
    let mut select = connection.prepare_cached("SELECT name FROM owners WHERE id = ?1")?;
    let name: Option<String> = select.query_row([owner], |row| row.get(0)).optional()?;
    Ok(name.is_none_or(|name| owners::lives(lives, &name)))
}

/// One call, as scans have it.
#[derive(Debug, Clone, Copy)]
struct Hit {
    id: Id,
    at: i64,
    route: i64,
    verdict: i64,
    owner: i64,
}

fn hit(row: &Row<'_>) -> rusqlite::Result<Hit> {
    Ok(Hit { id: row.get(0)?, at: row.get(1)?, route: row.get(2)?, verdict: row.get(3)?, owner: row.get(4)? })
}

/// Several scans as one, the newest first.
struct Merge<'c> {
    connection: &'c Connection,
    from: Id,
    cursors: Vec<Cursor>,
    // The id next in each cursor that has one.
    heads: BinaryHeap<(Id, usize)>,
}

/// The position of a scan.
struct Cursor {
    scan: Scan,
    below: Id,
    rows: VecDeque<Hit>,
    most: usize,
    ended: bool,
}

impl<'c> Merge<'c> {
    fn new(connection: &'c Connection, plan: &Plan) -> rusqlite::Result<Self> {
        let most = (ROWS.0 / plan.scans.len().max(1)).clamp(2, 128);
        let cursor = |scan: &Scan| Cursor {
            scan: *scan,
            below: plan.ids.1,
            rows: VecDeque::new(),
            most,
            ended: false,
        };
        let cursors = plan.scans.iter().map(cursor).collect::<Vec<_>>();
        let mut merge = Self { connection, from: plan.ids.0, heads: BinaryHeap::new(), cursors };
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

    /// Has the next id of this cursor among the heads, if there is one.
    fn refill(&mut self, at: usize) -> rusqlite::Result<()> {
        let Some(cursor) = self.cursors.get_mut(at) else { return Ok(()) };
        if cursor.rows.is_empty() && !cursor.ended {
            let mut select = self.connection.prepare_cached(cursor.scan.select())?;
            let (verdict, route) = cursor.scan.numbers();
            let most = i64::try_from(cursor.most).unwrap_or(i64::MAX);
            let rows = select.query_map(params![cursor.below, self.from, most, verdict, route], hit)?;
            cursor.rows = rows.collect::<Result<_, _>>()?;
            cursor.ended = cursor.rows.len() < cursor.most;
            cursor.most = cursor.most.saturating_mul(2).min(ROWS.1);
            cursor.below = cursor.rows.back().map_or(cursor.below, |hit| hit.id);
        }
        self.heads.extend(cursor.rows.front().map(|hit| (hit.id, at)));
        Ok(())
    }
}
