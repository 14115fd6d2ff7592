//! Reads the audit log: calls are found in the index, and their entries are read from the journals.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};
use serde_json::Value;

use super::facts::LineFacts;
use super::file_read::{next_line, read_at};
use super::find::Plan;
use super::journal_fill::{IndexProgress, JournalFiles};
use super::places::LinePlace;
use super::{LogIndex, is_fault_of_file, rollup, sealed_quota};
use crate::command::CallStatus;
use crate::error::{AuditError, AuditErrorKind};
use crate::journal::{
    JournalLine, LINE_BYTES, SealedPlace, SegmentReader, UnendedCalls, WriterDir, disk_usage, indexed_line,
    open_lines, read_sealed, segments, writer_names,
};
use crate::log::{
    AuditReader, CallRow, Filter, LogPosition, OperatorChange, OperatorEventFilter, StoredEntry,
};
use crate::request_stats::RequestSum;
use crate::seal::Sealed;
use crate::stats::{HistoryPart, HistoryQuery, LogStorage, SealedUsage, Stats, StatsQuery};

/// The number of times that the calls without an end are compared before the index is made again.
const UNENDED_ATTEMPTS: u32 = 2;

/// The facts that the reading process knows, and the index does not.
pub(crate) trait ProcessCalls: Send + Sync {
    /// Returns the calls of which it is unknown what was done under their key: all of them, or only `of`.
    fn undecided(&self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError>;

    /// Returns true for an interrupted call in a journal that this process holds, since it resumes another call of it.
    fn is_interrupted(&self, audit_id: &AuditId) -> bool;

    /// Returns the calls without an end according to the newest segment of a journal.
    fn unended(&self, journal: &Path) -> Result<Arc<UnendedCalls>, AuditError>;
}

/// A reader of the audit log with an index of its own, or a connection to the one that all processes share.
pub(crate) struct IndexReader {
    pub(super) index: LogIndex,
    process: Arc<dyn ProcessCalls>,
    /// By writer, the place of the entry after the one with this number: its segment and its position.
    followed: HashMap<String, (u64, u64, u64)>,
    /// True once the index was made again since the journals have other calls without an end.
    is_made_again: bool,
}

/// The writers that no process holds. Everything that they wrote is in the index.
struct FreeWriters(Vec<String>);

impl FreeWriters {
    /// Reads them before the index is brought up to date.
    fn read(root: &Path) -> Result<Self, AuditError> {
        let mut own = Self(writer_names(root)?);
        own.retain(root);
        Ok(own)
    }

    /// Leaves those out that a process holds now.
    fn retain(&mut self, root: &Path) {
        self.0.retain(|name| !WriterDir::is_held(root, name));
    }

    /// Returns their numbers in the index.
    fn ids(&self, connection: &Connection) -> rusqlite::Result<HashSet<i64>> {
        let mut select = connection.prepare_cached("SELECT id FROM writers WHERE name = ?1")?;
        let ids = self
            .0
            .iter()
            .filter_map(|name| select.query_row([name], |row| row.get(0)).optional().transpose());
        ids.collect()
    }
}

/// A line of a call, as it was found in a journal.
pub(super) struct FoundLine {
    entry: StoredEntry,
    /// The first entry of its segment.
    pub(super) segment: u64,
    pub(super) sealed: Option<SealedPlace>,
    /// True if the call ends with it.
    pub(super) is_end: bool,
}

/// The reason why the lines of a call could not be read.
pub(super) enum LineFailure {
    /// The index has other places than the journal.
    Misplaced,
    /// An entry was changed.
    Changed(AuditError),
    Failed(AuditError),
}

impl<E: Into<AuditError>> From<E> for LineFailure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl IndexReader {
    /// Creates a reader of the journals below `root`.
    ///
    /// # Errors
    /// `Absent`: no journal has an entry; the journals or the index cannot be read.
    pub(crate) fn open(root: &Path, process: Arc<dyn ProcessCalls>) -> Result<Self, AuditError> {
        let absent = || AuditError::new(AuditErrorKind::Absent, "nothing was recorded yet");
        let mut has_segments = false;
        for name in writer_names(root)? {
            has_segments |= JournalFiles::list(root, name)?.is_some();
        }
        if !has_segments {
            return Err(absent());
        }
        let index = match LogIndex::open(root) {
            Err(error) if error.kind().is_unwritable() => LogIndex::in_memory(root)?,
            index => index?,
        };
        let mut own = Self { index, process, followed: HashMap::new(), is_made_again: false };
        own.update()?;
        match IndexProgress::read_all(own.connection())?.values().any(|progress| progress.n > 0) {
            true => Ok(own),
            false => Err(absent()),
        }
    }

    fn connection(&self) -> &Connection {
        &self.index.file.connection
    }

    /// Brings the index up to date, in memory where it cannot be written.
    fn update(&mut self) -> Result<FreeWriters, AuditError> {
        let free = FreeWriters::read(&self.index.root)?;
        match self.index.update() {
            Err(error) if error.kind().is_unwritable() => {
                self.index = LogIndex::in_memory(&self.index.root)?;
                self.index.update()?;
            }
            updated => updated?,
        }
        Ok(free)
    }

    /// Runs a query on the index as the journals are now. If the index turns out to be damaged, it is made again.
    fn query<T>(
        &mut self,
        query: impl Fn(&Connection, &FreeWriters) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        let free = self.update()?;
        match self.snapshot(free, &query) {
            Err(error) if is_fault_of_file(&error) => {
                self.index.replace(&error.to_string())?;
                let free = self.update()?;
                self.snapshot(free, &query)
            }
            result => result,
        }
    }

    fn snapshot<T>(
        &self,
        mut free: FreeWriters,
        query: impl Fn(&Connection, &FreeWriters) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        let transaction = self.connection().unchecked_transaction()?;
        // The snapshot begins with the first read: later calls of a journal that is taken now are not in it.
        transaction.prepare_cached("SELECT count(*) FROM skew")?.query_row([], |_| Ok(()))?;
        free.retain(&self.index.root);
        query(&transaction, &free)
    }

    /// Runs a query together with the calls that have no end and whose writer no process holds, according to the journals.
    /// If the index has others, it is made again once.
    fn query_unended<T>(
        &mut self,
        query: impl Fn(&Connection, &FreeWriters, &HashSet<[u8; 16]>) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        for attempt in 0.. {
            let (root, process) = (self.index.root.clone(), Arc::clone(&self.process));
            let is_made_again = self.is_made_again || attempt > UNENDED_ATTEMPTS;
            let result = self.query(|connection, free| {
                let mut all = HashSet::new();
                for name in &free.0 {
                    let unended = process.unended(&root.join(name))?;
                    if !is_made_again && !has_unended(connection, name, &unended)? {
                        return Ok(None);
                    }
                    all.extend(unended.ids());
                }
                query(connection, free, &all).map(Some)
            })?;
            match result {
                Some(result) => return Ok(result),
                // Another process may just have taken a journal.
                None if attempt < UNENDED_ATTEMPTS => {}
                None => {
                    self.is_made_again = true;
                    self.index.replace("the journals have other calls without an end")?;
                }
            }
        }
        Err(AuditError::new(AuditErrorKind::Other, "the calls without an end cannot be determined"))
    }

    /// Reads the lines of a call, and checks that each one is what the next line of the journal says.
    fn lines_of(&mut self, audit_id: &AuditId) -> Result<Vec<FoundLine>, AuditError> {
        let mut is_made_again = false;
        loop {
            let found = self.query(|connection, _| {
                let select = "SELECT writers.name, places FROM calls JOIN writers ON writers.id = writer \
                              WHERE calls.id = ?1";
                let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?));
                let mut select = connection.prepare_cached(select)?;
                Ok(select.query_row([audit_id.bytes()], row).optional()?)
            })?;
            let Some((writer, places)) = found else { return Ok(Vec::new()) };
            match read_lines(&self.index.root, &writer, &places, audit_id) {
                Ok(lines) => return Ok(lines),
                Err(LineFailure::Changed(error) | LineFailure::Failed(error)) => return Err(error),
                Err(LineFailure::Misplaced) if !is_made_again => {
                    is_made_again = true;
                    self.index.replace("it has other places than the journals")?;
                }
                Err(LineFailure::Misplaced) => {
                    let what = format_args!("the journal {writer} does not have the entries of {audit_id}");
                    return Err(AuditError::new(AuditErrorKind::Tampered, what));
                }
            }
        }
    }

    /// Adds the ids of calls that ended in a journal after the `from`-th entry, up to the `to`-th. Returns the last entry
    /// that was read.
    fn ends_after(
        &mut self,
        journal: &JournalFiles,
        from: u64,
        to: u64,
        (ended, most): (&mut Vec<AuditId>, usize),
    ) -> Result<u64, AuditError> {
        let firsts = || journal.firsts.iter().copied();
        let with_next = || firsts().rfind(|first| *first <= from.saturating_add(1)).unwrap_or(0);
        let followed = self.followed.get(&journal.name).filter(|(n, ..)| *n == from);
        let (begin, start) =
            followed.map_or_else(|| (with_next(), 0), |(_, segment, offset)| (*segment, *offset));
        let mut last = from;
        for segment in firsts().filter(|first| *first >= begin) {
            // The segment that was followed may have been pruned: the position is not one in another segment.
            let mut offset = if segment == begin { start } else { 0 };
            for_each_line(&journal.dir, segment, offset, |next, line| {
                if ended.len() >= most || last >= to {
                    return false;
                }
                if let Some(read) = JournalLine::read(line).ok().filter(|read| read.n > from) {
                    last = read.n.max(last);
                    let is_end =
                        read.events_text().and_then(LineFacts::read).is_some_and(|facts| facts.end.is_some());
                    ended.extend(read.audit_id.as_deref().and_then(AuditId::parse).filter(|_| is_end));
                }
                offset = next;
                true
            })?;
            self.followed.insert(journal.name.clone(), (last, segment, offset));
            if ended.len() >= most || last >= to {
                break;
            }
        }
        Ok(last)
    }
}

/// Returns true if the index has exactly these calls of a journal without an end.
fn has_unended(connection: &Connection, writer: &str, unended: &UnendedCalls) -> Result<bool, AuditError> {
    let mut select = connection.prepare_cached(SELECT_UNENDED)?;
    let ids = select.query_map([writer], |row| row.get(0))?;
    let ids = ids.collect::<Result<HashSet<[u8; 16]>, _>>()?;
    Ok(ids == unended.ids().collect())
}

const SELECT_UNENDED: &str = "SELECT calls.id FROM calls INDEXED BY calls_open JOIN writers ON writers.id = writer \
                              WHERE outcome = 0 AND writers.name = ?1";

const ROW: &str = "SELECT calls.id, calls.at, targets.connector, targets.op, targets.action, targets.step, actors.name, \
                   calls.idempotent, outcomes.status, outcomes.class, outcomes.code, calls.duration, calls.attempts, \
                   calls.writer FROM calls JOIN targets ON targets.id = calls.target \
                   JOIN outcomes ON outcomes.id = calls.outcome JOIN actors ON actors.id = calls.actor";

const SELECT_BETWEEN: &str = "SELECT id FROM calls WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT ?3";

const SELECT_OLDEST: &str = "SELECT at FROM calls WHERE seq = (SELECT min(seq) FROM calls)";

/// The queries of calls here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 3] = [SELECT_BETWEEN, SELECT_UNENDED, SELECT_OLDEST];

/// Returns the call with this value in a column of which each call has its own.
fn call_by(
    column: &str,
    value: impl ToSql,
    connection: &Connection,
    free: &HashSet<i64>,
) -> rusqlite::Result<Option<CallRow>> {
    let mut select = connection.prepare_cached(&format!("{ROW} WHERE calls.{column} = ?1"))?;
    select.query_row([value], |row| call_row(row, free)).optional()
}

fn call_row(row: &Row<'_>, free: &HashSet<i64>) -> rusqlite::Result<CallRow> {
    let text = |at: usize| row.get::<_, String>(at).map(|text| Some(text).filter(|text| !text.is_empty()));
    let status = CallStatus::from_number(row.get::<_, usize>(8)?);
    let is_incomplete = !status.has_end() && free.contains(&row.get(13)?);
    Ok(CallRow {
        audit_id: AuditId::from_bytes(row.get(0)?),
        at: jiff::Timestamp::from_microsecond(row.get(1)?).unwrap_or_default(),
        connector: row.get(2)?,
        op: row.get(3)?,
        action: text(4)?,
        step: text(5)?,
        actor: row.get(6)?,
        idempotent: row.get(7)?,
        status: if is_incomplete { CallStatus::Incomplete } else { status },
        class: text(9)?,
        code: text(10)?,
        duration_us: row.get(11)?,
        attempts: row.get(12)?,
    })
}

fn list(connection: &Connection, filter: &Filter, free: &HashSet<i64>) -> Result<Vec<CallRow>, AuditError> {
    let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
    let found = Plan::new(connection, filter)?.calls(connection, free, limit)?;
    let rows = found.into_iter().filter_map(|seq| call_by("seq", seq, connection, free).transpose());
    Ok(rows.collect::<Result<_, _>>()?)
}

impl AuditReader for IndexReader {
    fn list(&mut self, filter: &Filter) -> Result<Vec<CallRow>, AuditError> {
        if filter.status != Some(CallStatus::Incomplete) {
            return self.query(|connection, free| list(connection, filter, &free.ids(connection)?));
        }
        let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
        self.query_unended(|connection, free, unended| {
            let all = Filter { limit: 0, ..filter.clone() };
            let mut rows = list(connection, &all, &free.ids(connection)?)?;
            rows.retain(|row| unended.contains(&row.audit_id.bytes()));
            rows.truncate(limit);
            Ok(rows)
        })
    }

    fn call(&mut self, audit_id: &AuditId) -> Result<Option<CallRow>, AuditError> {
        let id = audit_id.bytes();
        let row =
            self.query(|connection, free| Ok(call_by("id", id, connection, &free.ids(connection)?)?))?;
        match row {
            Some(row) if row.status == CallStatus::Running && self.process.is_interrupted(audit_id) => {
                return Ok(Some(CallRow { status: CallStatus::Incomplete, ..row }));
            }
            Some(row) if row.status != CallStatus::Incomplete => return Ok(Some(row)),
            _ => {}
        }
        self.query_unended(|connection, free, unended| {
            let row = call_by("id", id, connection, &free.ids(connection)?)?;
            Ok(row.map(|row| match row.status {
                CallStatus::Incomplete if !unended.contains(&id) => {
                    CallRow { status: CallStatus::Running, ..row }
                }
                _ => row,
            }))
        })
    }

    fn between(&mut self, from: &AuditId, to: &AuditId, most: usize) -> Result<Vec<AuditId>, AuditError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.query(|connection, _| {
            let mut select = connection.prepare_cached(SELECT_BETWEEN)?;
            let rows = select.query_map(params![from.bytes(), to.bytes(), most], |row| row.get(0))?;
            Ok(rows.map(|id| id.map(AuditId::from_bytes)).collect::<Result<_, _>>()?)
        })
    }

    fn stats(&mut self, filter: &Filter, query: StatsQuery) -> Result<Stats, AuditError> {
        self.query(|connection, free| {
            let free = free.ids(connection)?;
            Ok(rollup::stats(connection, filter, query, &free)?)
        })
    }

    fn history(&mut self, filter: &Filter, query: HistoryQuery) -> Result<Vec<HistoryPart>, AuditError> {
        self.query(|connection, _| Ok(rollup::history(connection, filter, query)?))
    }

    fn requests(&mut self, filter: &Filter) -> Result<Vec<RequestSum>, AuditError> {
        self.query(|connection, _| Ok(rollup::requests(connection, filter)?))
    }

    fn storage(&mut self) -> Result<LogStorage, AuditError> {
        let oldest = self.query(|connection, _| {
            Ok(connection.prepare_cached(SELECT_OLDEST)?.query_row([], |row| row.get(0)).optional()?)
        })?;
        let oldest = oldest.and_then(|oldest| Timestamp::from_microsecond(oldest).ok());
        Ok(LogStorage { oldest, ..disk_usage(&self.index.root)? })
    }

    fn codes(&mut self) -> Result<Vec<String>, AuditError> {
        self.query(|connection, _| {
            let select = "SELECT DISTINCT code FROM outcomes WHERE code <> '' ORDER BY code";
            let mut select = connection.prepare_cached(select)?;
            Ok(select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn end(&mut self) -> Result<LogPosition, AuditError> {
        let stored = self.query(|connection, _| Ok(IndexProgress::read_all(connection)?))?;
        Ok(LogPosition(stored.into_iter().map(|(name, progress)| (name, progress.n)).collect()))
    }

    fn ended_after(&mut self, position: &mut LogPosition, most: usize) -> Result<Vec<CallRow>, AuditError> {
        let end: BTreeMap<_, _> = self.end()?.0;
        let (mut ended, root) = (Vec::new(), self.index.root.clone());
        for (writer, to) in end {
            let from = position.0.get(&writer).copied().unwrap_or(0);
            if from >= to || ended.len() >= most {
                continue;
            }
            let Some(journal) = JournalFiles::list(&root, writer.clone())? else { continue };
            let last = self.ends_after(&journal, from, to, (&mut ended, most))?;
            position.0.insert(writer, last);
        }
        self.query(|connection, free| {
            let free = free.ids(connection)?;
            let rows = ended.iter().filter_map(|id| call_by("id", id.bytes(), connection, &free).transpose());
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn entries_of(&mut self, audit_id: &AuditId) -> Result<Vec<StoredEntry>, AuditError> {
        Ok(self.lines_of(audit_id)?.into_iter().map(|line| line.entry).collect())
    }

    fn sealed_usage(&mut self) -> Result<Vec<SealedUsage>, AuditError> {
        self.query(|connection, _| {
            Ok(sealed_quota::usage(connection)?.into_iter().map(|client| client.usage).collect())
        })
    }

    fn operator_events(&mut self, filter: &OperatorEventFilter) -> Result<Vec<OperatorChange>, AuditError> {
        let since = filter.since.map_or(i64::MIN, Timestamp::as_microsecond);
        let [until, before] =
            [filter.until, filter.before].map(|time| time.map_or(i64::MAX, Timestamp::as_microsecond));
        let limit = if filter.limit == 0 { -1 } else { i64::try_from(filter.limit).unwrap_or(i64::MAX) };
        let (names, is_only) = filter.actions.names();
        let names = Value::from(names).to_string();
        self.query(|connection, _| {
            // In the order of each journal: the clock may have gone back between two changes.
            let select = "SELECT at, place, event FROM (SELECT at, event, n, max(at - nth) OVER journal + nth AS place \
                          FROM (SELECT *, row_number() OVER (PARTITION BY writer ORDER BY n) AS nth \
                          FROM operator_events) WINDOW journal AS (PARTITION BY writer ORDER BY n)) \
                          WHERE at >= ?1 AND at < ?2 AND place < ?6 AND (coalesce(json_extract(event, '$.action'), '') \
                          IN (SELECT value FROM json_each(?3))) = ?4 ORDER BY place DESC, n DESC LIMIT ?5";
            let mut select = connection.prepare_cached(select)?;
            let change = |row: &Row<'_>| {
                let (at, place, event) = (row.get(0)?, row.get(1)?, row.get::<_, String>(2)?);
                Ok(OperatorChange::read(at, place, &event))
            };
            let rows = select.query_map(params![since, until, names, is_only, limit, before], change)?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        })
    }

    fn undecided_keys(&mut self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        self.process.undecided(of)
    }

    fn sealed(&mut self, audit_id: &AuditId) -> Result<(Option<Sealed>, Option<Sealed>), AuditError> {
        let root = self.index.root.clone();
        let (mut request, mut outcome) = (None, None);
        for (position, line) in self.lines_of(audit_id)?.into_iter().enumerate() {
            let Some(SealedPlace { offset, bytes, .. }) = line.sealed else { continue };
            let sealed = read_sealed(&root.join(&line.entry.writer), line.segment, offset, bytes)?;
            let sealed = sealed.filter(|sealed| sealed.bytes().iter().any(|byte| *byte != 0));
            *if position == 0 { &mut request } else { &mut outcome } = sealed;
        }
        Ok((request, outcome))
    }
}

/// Reads the lines of a call at these places.
pub(super) fn read_lines(
    root: &Path,
    writer: &str,
    places: &[u8],
    audit_id: &AuditId,
) -> Result<Vec<FoundLine>, LineFailure> {
    let dir = root.join(writer);
    let firsts = segments(&dir)?;
    let mut lines = Vec::new();
    for place in LinePlace::read_all(places) {
        let position = firsts.iter().rposition(|first| *first <= place.n).ok_or(LineFailure::Misplaced)?;
        let segment = firsts.get(position).copied().unwrap_or(0);
        let file = open_lines(&dir, segment)?.ok_or(LineFailure::Misplaced)?;
        let text = line_at(&file, place)?.ok_or(LineFailure::Misplaced)?;
        let next = place.offset.saturating_add(place.length).saturating_add(1);
        let next = match (next_line(&file, next)?, firsts.get(position.saturating_add(1))) {
            (None, Some(first)) => match open_lines(&dir, *first)? {
                Some(file) => next_line(&file, 0)?,
                None => None,
            },
            (next, _) => next,
        };
        let line = indexed_line(&text, next.as_deref(), writer, place.n, audit_id);
        let line = line.map_err(LineFailure::Changed)?;
        let is_end = line.events_text().and_then(LineFacts::read).is_some_and(|facts| facts.end.is_some());
        let sealed = line.sealed;
        let text = String::from_utf8(text).map_err(|_| {
            let what = format_args!("entry {} of the journal {writer} is no text", place.n);
            LineFailure::Changed(AuditError::new(AuditErrorKind::Tampered, what))
        })?;
        let entry = StoredEntry { writer: writer.to_owned(), n: place.n, text };
        lines.push(FoundLine { entry, segment, sealed, is_end });
    }
    Ok(lines)
}

/// Reads the line at this place; none if no line is there.
fn line_at(file: &File, place: LinePlace) -> Result<Option<Vec<u8>>, AuditError> {
    if place.length > LINE_BYTES {
        return Ok(None);
    }
    // With the line breaks before and after it.
    let start = place.offset.saturating_sub(1);
    let length = place.length.saturating_add(place.offset.min(1)).saturating_add(1);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    if read_at(file, &mut bytes, start, length)? < length {
        return Ok(None);
    }
    let whole = if place.offset > 0 { bytes.strip_prefix(b"\n") } else { Some(bytes.as_slice()) };
    let line = whole.and_then(|whole| whole.strip_suffix(b"\n"));
    Ok(line.filter(|line| !line.contains(&b'\n')).map(<[u8]>::to_owned))
}

/// Reads the whole lines of a segment from this position on, until `each` returns false. It gets each line, and the
/// position after it.
fn for_each_line(
    dir: &Path,
    segment: u64,
    mut position: u64,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), AuditError> {
    let Some(mut reader) = SegmentReader::open_at(dir, segment, position)? else { return Ok(()) };
    while let Some(line) = reader.next()?.filter(|line| line.is_whole) {
        position = position.saturating_add(line.bytes.len() as u64).saturating_add(1);
        if !each(position, line.bytes) {
            break;
        }
    }
    Ok(())
}
