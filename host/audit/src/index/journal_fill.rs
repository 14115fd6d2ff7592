//! The progress of each journal in the index, and the addition of what follows.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use super::batch::{CallBatch, ReadPlace};
use super::file_read::{line_length, next_line, read_at};
use super::interner::Interner;
use super::places::LinePlace;
use super::rollup::{CallCount, RollupChanges};
use super::usage::CallUsage;
use crate::error::AuditError;
use crate::journal::{LINE_BYTES, open_lines, segments};

/// The most lines, and the most time, of one transaction: other processes take turns. Many lines are added faster in one
/// transaction than in several, which write the same rows of statistics again.
const LINES: u64 = 20_000;
const TIME: Duration = Duration::from_secs(1);

/// The calls that one transaction removes.
const REMOVED: usize = 5_000;

/// The bytes that are read at once.
const CHUNK: usize = 1024 * 1024;

/// The segments of a journal.
pub(super) struct JournalFiles {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    /// The first entries of the segments, in order.
    pub(super) firsts: Vec<u64>,
}

impl JournalFiles {
    /// Lists the segments; none if there are none.
    pub(super) fn list(root: &Path, name: String) -> Result<Option<Self>, AuditError> {
        let dir = root.join(&name);
        let firsts = segments(&dir)?;
        Ok((!firsts.is_empty()).then_some(Self { name, dir, firsts }))
    }

    fn first(&self) -> u64 {
        self.firsts.first().copied().unwrap_or(0)
    }

    fn newest(&self) -> u64 {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Returns the length of the newest segment.
    pub(super) fn seen(&self) -> Result<u64, AuditError> {
        self.length(self.newest())
    }

    /// Returns true if a segment has a whole line.
    fn has_line(&self, segment: u64) -> Result<bool, AuditError> {
        let file = open_lines(&self.dir, segment)?;
        Ok(file.map(|file| next_line(&file, 0)).transpose()?.flatten().is_some())
    }

    fn length(&self, segment: u64) -> Result<u64, AuditError> {
        let file = open_lines(&self.dir, segment)?;
        Ok(file.map_or(Ok(0), |file| file.metadata().map(|file| file.len()))?)
    }
}

/// The work that one transaction does.
pub(super) struct FillBudget {
    pub(super) lines: u64,
    until: Instant,
    pub(super) is_spent: bool,
}

impl FillBudget {
    pub(super) fn new() -> Self {
        Self { lines: 0, until: Instant::now() + TIME, is_spent: false }
    }

    /// Takes one line. False if that was the last one.
    fn take(&mut self) -> bool {
        self.lines = self.lines.saturating_add(1);
        let is_late = || self.lines.is_multiple_of(256) && Instant::now() >= self.until;
        self.is_spent = self.lines >= LINES || is_late();
        !self.is_spent
    }
}

/// The result of adding to the index.
pub(super) enum FillResult {
    /// There is more.
    Partial,
    Complete,
    /// The index is not of these journals.
    Unfit(String),
}

/// The progress of a journal in the index: the columns of its row.
pub(super) struct IndexProgress {
    id: i64,
    base: u64,
    segment: u64,
    place: u64,
    seen: u64,
    last_start: u64,
    pub(super) n: u64,
    hash: [u8; 32],
    last_seq: i64,
}

impl IndexProgress {
    /// Reads the progress of all journals, by the names of their writers.
    pub(super) fn read_all(connection: &Connection) -> rusqlite::Result<HashMap<String, Self>> {
        let select =
            "SELECT name, id, base, segment, place, seen, last_start, n, hash, last_seq FROM writers";
        let mut select = connection.prepare_cached(select)?;
        let rows = select.query_map([], |row| {
            let own = Self {
                id: row.get(1)?,
                base: row.get(2)?,
                segment: row.get(3)?,
                place: row.get(4)?,
                seen: row.get(5)?,
                last_start: row.get(6)?,
                n: row.get(7)?,
                hash: row.get(8)?,
                last_seq: row.get(9)?,
            };
            Ok((row.get(0)?, own))
        })?;
        rows.collect()
    }

    /// Adds a journal of which nothing is in the index; none while it is empty.
    pub(super) fn begin(connection: &Connection, journal: &JournalFiles) -> Result<Option<Self>, AuditError> {
        if journal.seen()? == 0 && journal.firsts.len() < 2 {
            return Ok(None);
        }
        let insert = "INSERT INTO writers (name, base, segment, place, seen, last_start, n, hash, last_seq) \
                      VALUES (?1, ?2, ?2, 0, 0, 0, 0, zeroblob(32), 0)";
        connection.prepare_cached(insert)?.execute(params![journal.name, journal.first()])?;
        Ok(Self::read_all(connection)?.remove(&journal.name))
    }

    /// Returns true if the journal has more than the index, or less after it was pruned.
    pub(super) fn is_behind(&self, journal: &JournalFiles) -> Result<bool, AuditError> {
        if (self.base, self.segment, self.seen) != (journal.first(), journal.newest(), journal.seen()?) {
            return Ok(true);
        }
        // A last line without an end may have been replaced by whole ones of the same length.
        let begun = if self.place < self.seen { open_lines(&journal.dir, self.segment)? } else { None };
        Ok(begun.map(|file| next_line(&file, self.place)).transpose()?.flatten().is_some())
    }

    /// Returns true if the last line that was read is where it was.
    pub(super) fn is_of(&self, journal: &JournalFiles) -> Result<bool, AuditError> {
        // Nothing of this segment was read, or it was pruned.
        if self.place == 0 || self.segment < journal.first() {
            return Ok(true);
        }
        // One that was removed since the segments were listed is missing in the next list.
        let Some(file) = open_lines(&journal.dir, self.segment)? else { return Ok(true) };
        let length = self.place.saturating_sub(self.last_start);
        if length > LINE_BYTES {
            return Ok(false);
        }
        let mut line = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = file.read_exact_at(&mut line, self.last_start).is_ok();
        let line = line.strip_suffix(b"\n").filter(|_| read);
        Ok(line.is_some_and(|line| self.hash == <[u8; 32]>::from(Sha256::digest(line))))
    }

    /// Returns the bytes of a journal that were read, and all of them.
    pub(super) fn bytes(connection: &Connection, journal: &JournalFiles) -> Result<[u64; 2], AuditError> {
        let own = Self::read_all(connection)?.remove(&journal.name);
        let (mut read, mut all) = (0_u64, 0_u64);
        for segment in &journal.firsts {
            let length = journal.length(*segment)?;
            all = all.saturating_add(length);
            read = read.saturating_add(match &own {
                Some(own) if own.segment == *segment => own.place,
                Some(own) if own.segment > *segment => length,
                _ => 0,
            });
        }
        Ok([read, all])
    }

    /// Adds what follows in the journal, as far as the budget goes.
    pub(super) fn fill(
        &mut self,
        connection: &Connection,
        interner: &mut Interner,
        journal: &JournalFiles,
        budget: &mut FillBudget,
        buffer: &mut Vec<u8>,
    ) -> Result<FillResult, AuditError> {
        if !self.is_behind(journal)? {
            return Ok(FillResult::Complete);
        }
        if !self.is_of(journal)? {
            return Ok(FillResult::Unfit(format!("the journal {} is another one", journal.name)));
        }
        if self.base < journal.first() {
            if !self.forget(connection, journal.first())? {
                budget.is_spent = true;
                return Ok(FillResult::Partial);
            }
            self.base = journal.first();
            if self.segment < self.base {
                (self.segment, self.place, self.last_start) = (self.base, 0, 0);
            }
        }
        let mut firsts = journal.firsts.as_slice();
        // The next process removes a segment without a line, and may go on in the one before it.
        if journal.newest() != self.segment && !journal.has_line(journal.newest())? {
            firsts = firsts.split_last().map_or(firsts, |(_, before)| before);
        }
        let Some(position) = firsts.iter().position(|first| *first == self.segment) else {
            return Ok(FillResult::Unfit(format!("the journal {} has lost a segment", journal.name)));
        };
        let mut batch = CallBatch::new(connection, interner, (self.id, &journal.name), self.last_seq);
        let mut following = firsts.iter().copied().skip(position).peekable();
        let mut fits = true;
        while let Some(segment) = following.next() {
            let next_segment = following.peek().copied().unwrap_or(u64::MAX);
            let Some(file) = open_lines(&journal.dir, segment)? else {
                // It was pruned since the segments were listed: the next transaction goes on after it.
                budget.is_spent = true;
                break;
            };
            if segment != self.segment {
                // Entries that were undone, and whose numbers the next segment has, may have been read before it was there.
                fits = self.n < segment;
                (self.segment, self.place, self.last_start) = (segment, 0, 0);
            }
            let place = ReadPlace { dir: &journal.dir, segment, next_segment, offset: 0 };
            if !fits || !self.read_lines(&file, place, &mut batch, budget, buffer)? {
                break;
            }
        }
        if !fits {
            return Ok(FillResult::Unfit(format!("the journal {} has other segments", journal.name)));
        }
        batch.write()?;
        self.last_seq = batch.last_seq;
        self.store(connection)?;
        Ok(if budget.is_spent { FillResult::Partial } else { FillResult::Complete })
    }

    /// Reads a segment on. False if the budget is spent.
    fn read_lines(
        &mut self,
        file: &File,
        place: ReadPlace<'_>,
        batch: &mut CallBatch<'_>,
        budget: &mut FillBudget,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, AuditError> {
        let mut size = CHUNK;
        loop {
            let read = read_at(file, buffer, self.place, size)?;
            let (start, mut position, mut last) = (self.place, 0_usize, None);
            while let Some(length) = line_length(buffer, position) {
                let line = buffer.get(position..position.saturating_add(length)).unwrap_or_default();
                let offset = start.saturating_add(position as u64);
                if let Some(n) = batch.line(line, ReadPlace { offset, ..place })? {
                    self.n = n;
                }
                last = Some((offset, line));
                position = position.saturating_add(length).saturating_add(1);
                if !budget.take() {
                    break;
                }
            }
            if let Some((offset, line)) = last {
                (self.last_start, self.hash) = (offset, Sha256::digest(line).into());
                self.place = start.saturating_add(position as u64);
            }
            if budget.is_spent {
                self.seen = self.place;
                return Ok(false);
            }
            if read < size || size as u64 > LINE_BYTES {
                self.seen = start.saturating_add(read as u64);
                return Ok(true);
            }
            size = if last.is_some() { CHUNK } else { size.saturating_mul(4) };
        }
    }

    fn store(&self, connection: &Connection) -> rusqlite::Result<()> {
        let update = "UPDATE writers SET base = ?2, segment = ?3, place = ?4, seen = ?5, last_start = ?6, n = ?7, \
                      hash = ?8, last_seq = ?9 WHERE id = ?1";
        let Self { id, base, segment, place, seen, last_start, n, hash, last_seq } = self;
        let row = params![id, base, segment, place, seen, last_start, n, hash, last_seq];
        connection.prepare_cached(update)?.execute(row).map(drop)
    }

    /// Removes calls of this journal that began before this entry: some of them. Returns true if there are no more.
    fn forget(&self, connection: &Connection, before: u64) -> rusqlite::Result<bool> {
        // The calls of a journal are in the order of their first entries.
        let mut select = connection.prepare_cached(SELECT_OLDEST)?;
        let mut rows = select.query([self.id])?;
        let (mut removed, mut rollup, mut is_complete) = (Vec::new(), RollupChanges::default(), true);
        while let Some(row) = rows.next()? {
            let first = LinePlace::read_all(row.get_ref(1)?.as_blob()?).next();
            if first.is_some_and(|first| first.n >= before) {
                break;
            }
            if removed.len() >= REMOVED {
                is_complete = false;
                break;
            }
            let (outcome, actor) = (row.get(4)?, row.get(5)?);
            if outcome != 0 {
                let (at, target, duration) = (row.get(2)?, row.get(3)?, row.get(6)?);
                let usage = &CallUsage::from_bytes(row.get_ref(8)?.as_blob()?);
                rollup.add(&CallCount { at, target, outcome, actor, duration, usage });
            }
            removed.push((row.get::<_, i64>(0)?, actor, row.get::<_, i64>(7)?));
        }
        let mut delete = connection.prepare_cached("DELETE FROM calls WHERE seq = ?1")?;
        let mut unseal = connection.prepare_cached("UPDATE actors SET sealed = sealed - ?2 WHERE id = ?1")?;
        for (seq, actor, sealed) in removed {
            delete.execute([seq])?;
            if sealed > 0 {
                unseal.execute([actor, sealed])?;
            }
        }
        rollup.write_removed(connection)?;
        let delete = "DELETE FROM operator_events WHERE writer = ?1 AND n < ?2";
        connection.prepare_cached(delete)?.execute(params![self.id, before])?;
        Ok(is_complete)
    }
}

const SELECT_OLDEST: &str = "SELECT seq, places, at, target, outcome, actor, duration, sealed, usage FROM calls WHERE writer = ?1 ORDER BY seq";
