//! Calls of one journal that are being added to the index, in memory until they are written all at once: nearly all begin
//! and end in one batch, and are written once.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;

use cofferdam_core::event::recorded::Received;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use uuid::Uuid;

use super::facts::{EndFacts, LineEvents, LineFacts};
use super::file_read::read_at;
use super::interner::Interner;
use super::places::LinePlace;
use super::rollup::{CallCount, RollupChanges};
use super::usage::CallUsage;
use crate::command::CallStatus;
use crate::error::AuditError;
use crate::hex::unhex;
use crate::journal::{JournalLine, SealedPlace, decision, open_sealed};

/// A clock that falls back by more than this had leapt ahead before.
const LEAP_US: i64 = 86_400_000_000;

/// The bytes of a sealed part that are all zero only if the part was dropped.
const SEALED_HEAD: usize = 32;

/// The bytes of sealed parts that are read at once: those of many calls.
const SEALED_PIECE: usize = 16 * 1024;

type Id = [u8; 16];

/// A call as it is in the index.
struct IndexedCall {
    seq: i64,
    at: i64,
    target: i64,
    outcome: i64,
    actor: i64,
    writer: i64,
    idempotent: bool,
    duration: Option<i64>,
    attempts: Option<u32>,
    key: Option<[u8; 32]>,
    sealed: i64,
    is_undetermined: bool,
    places: Vec<u8>,
    usage: CallUsage,
    /// False until it is written.
    is_stored: bool,
}

/// The columns of a call, in the order of [`call`] and [`CallBatch::write`].
const SELECT: &str = "SELECT seq, at, target, outcome, actor, writer, idempotent, duration, attempts, key, sealed, \
                      is_undetermined, places, usage FROM calls WHERE id = ?1";
const INSERT: &str = "INSERT INTO calls (seq, at, target, outcome, actor, writer, idempotent, duration, attempts, key, \
                      sealed, is_undetermined, places, usage, id) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
const UPDATE: &str = "UPDATE calls SET outcome = ?4, idempotent = ?7, duration = ?8, attempts = ?9, key = ?10, \
                      sealed = ?11, is_undetermined = ?12, places = ?13, usage = ?14 WHERE seq = ?1 AND id = ?15";
const SELECT_NEWEST: &str = "SELECT coalesce(max(seq), 0) FROM calls";
const IS_TAKEN: &str = "SELECT 1 FROM calls WHERE seq = ?1";
const SELECT_AHEAD: &str = "SELECT seq, at FROM calls WHERE seq > ?1 AND writer = ?2 ORDER BY seq";
const SELECT_BEHIND: &str = "SELECT seq FROM calls WHERE seq <= ?1 AND writer = ?2 ORDER BY seq DESC LIMIT 1";
const SELECT_OTHERS: &str = "SELECT 1 FROM calls WHERE seq BETWEEN ?1 AND ?2 AND writer <> ?3 LIMIT 1";

/// The queries of calls here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 6] =
    [SELECT, SELECT_NEWEST, IS_TAKEN, SELECT_AHEAD, SELECT_BEHIND, SELECT_OTHERS];

fn call(row: &Row<'_>) -> rusqlite::Result<IndexedCall> {
    Ok(IndexedCall {
        seq: row.get(0)?,
        at: row.get(1)?,
        target: row.get(2)?,
        outcome: row.get(3)?,
        actor: row.get(4)?,
        writer: row.get(5)?,
        idempotent: row.get(6)?,
        duration: row.get(7)?,
        attempts: row.get(8)?,
        key: row.get(9)?,
        sealed: row.get(10)?,
        is_undetermined: row.get(11)?,
        places: row.get(12)?,
        usage: CallUsage::from_bytes(row.get_ref(13)?.as_blob()?),
        is_stored: true,
    })
}

/// The place of a line that is read.
#[derive(Clone, Copy)]
pub(super) struct ReadPlace<'p> {
    pub(super) dir: &'p Path,
    /// The first entry of the segment, and that of the next segment.
    pub(super) segment: u64,
    pub(super) next_segment: u64,
    pub(super) offset: u64,
}

/// The result of having a call in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Own,
    OfAnother,
    Missing,
}

/// The calls of one journal that are being added.
pub(super) struct CallBatch<'c> {
    connection: &'c Connection,
    interner: &'c mut Interner,
    /// The number of the journal's writer, when it was created, and the last place of its calls in the log's order.
    writer: i64,
    created_at: i64,
    pub(super) last_seq: i64,
    calls: HashMap<Id, IndexedCall>,
    /// The places of the calls that are not written yet.
    taken: HashSet<i64>,
    /// No call of any journal has a place after this one; none if that was not looked up.
    newest: Option<i64>,
    rollup: RollupChanges,
    /// The sealed bytes that are added, by actor.
    sealed: HashMap<i64, i64>,
    skew: Option<(i64, i64)>,
    sealed_parts: Option<SealedParts>,
}

/// The sealed parts of a segment, of which a piece was read.
struct SealedParts {
    segment: u64,
    file: Option<File>,
    piece: Vec<u8>,
    /// The position of the piece in the file.
    start: u64,
}

impl SealedParts {
    fn open(place: ReadPlace<'_>) -> Result<Self, AuditError> {
        let file = open_sealed(place.dir, place.segment)?;
        Ok(Self { segment: place.segment, file, piece: Vec::new(), start: 0 })
    }

    /// Returns true if a sealed part was not dropped.
    fn is_kept(&mut self, part: &SealedPlace) -> bool {
        let wanted = usize::try_from(part.bytes).unwrap_or(SEALED_HEAD).min(SEALED_HEAD);
        if self.head(part.offset, wanted).is_none() {
            self.start = part.offset;
            let Some(file) = &self.file else { return false };
            if read_at(file, &mut self.piece, self.start, SEALED_PIECE).is_err() {
                self.piece.clear();
            }
        }
        self.head(part.offset, wanted).is_some_and(|head| head.iter().any(|byte| *byte != 0))
    }

    /// Returns bytes of the piece; none if it does not have them.
    fn head(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.piece.get(from..from.checked_add(length)?)
    }
}

impl<'c> CallBatch<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        interner: &'c mut Interner,
        (writer, name): (i64, &str),
        last_seq: i64,
    ) -> Self {
        Self {
            connection,
            interner,
            writer,
            created_at: created_at(name),
            last_seq,
            calls: HashMap::new(),
            taken: HashSet::new(),
            newest: None,
            rollup: RollupChanges::default(),
            sealed: HashMap::new(),
            skew: None,
            sealed_parts: None,
        }
    }

    /// Adds a line, which is given without its line break. One that cannot be understood is skipped: verification
    /// reports it. Returns its number.
    pub(super) fn line(&mut self, bytes: &[u8], place: ReadPlace<'_>) -> Result<Option<u64>, AuditError> {
        let Ok(mut line) = JournalLine::<LineEvents<'_>>::read_with_events(bytes) else { return Ok(None) };
        // A number that belongs to another segment was changed, or is of a write that failed and was repeated.
        if !(place.segment..place.next_segment).contains(&line.n) {
            return Ok(None);
        }
        if let Some((decided, _)) = decision(&line) {
            let insert = "INSERT OR IGNORE INTO decided (call) VALUES (?1)";
            self.connection.prepare_cached(insert)?.execute([decided.bytes()])?;
        }
        if let Some(log) = line.log.as_ref().filter(|log| log.is_operator_change()) {
            let insert =
                "INSERT OR REPLACE INTO operator_events (writer, n, at, event) VALUES (?1, ?2, ?3, ?4)";
            let at = log.at().map_or(0, Timestamp::as_microsecond);
            let row = params![self.writer, line.n, at, log.payload.get()];
            self.connection.prepare_cached(insert)?.execute(row)?;
        }
        let id = line.audit_id.as_deref().and_then(AuditId::parse);
        if let (Some(id), Some(events)) = (id, line.events.take()) {
            let length = bytes.len() as u64;
            let own = LinePlace { n: line.n, offset: place.offset, length };
            self.call_line(id.bytes(), &line, &LineFacts::of(events), own, place)?;
        }
        Ok(Some(line.n))
    }

    fn call_line(
        &mut self,
        id: Id,
        line: &JournalLine<'_, LineEvents<'_>>,
        facts: &LineFacts<'_>,
        own: LinePlace,
        place: ReadPlace<'_>,
    ) -> Result<(), AuditError> {
        for approval in &facts.used_approvals {
            let insert = "INSERT OR IGNORE INTO used_approvals (approval) VALUES (?1)";
            self.connection.prepare_cached(insert)?.execute([approval])?;
        }
        if let Some(resumed) = line.resumes.as_deref().and_then(AuditId::parse)
            && self.load(resumed.bytes())? == Loaded::Own
        {
            self.end(resumed.bytes(), &EndFacts::of_resolution(CallStatus::Resumed), 0)?;
        }
        match (self.load(id)?, &facts.received) {
            (Loaded::Own, _) => {}
            (Loaded::Missing, Some((received, at))) => self.begin(id, received, *at)?,
            // Its beginning was pruned, or is damaged; or it was copied from another journal.
            (Loaded::Missing | Loaded::OfAnother, _) => return Ok(()),
        }
        let sealed = match &line.sealed {
            Some(sealed) if self.is_kept(place, sealed)? => i64::try_from(sealed.bytes).unwrap_or(i64::MAX),
            _ => 0,
        };
        if let Some(call) = self.calls.get_mut(&id) {
            own.append_to(&mut call.places);
            call.idempotent = facts.idempotent.unwrap_or(call.idempotent);
            call.key = facts.key.as_deref().and_then(unhex).or(call.key);
            call.sealed = call.sealed.saturating_add(sealed);
            call.usage.attempts.extend_from_slice(&facts.attempts);
            for request in &facts.requests {
                let host = self.interner.host(self.connection, &request.host)?;
                let target = self.interner.fallback(self.connection, call.target, &request.connector)?;
                call.usage.add_request(target, host, request.kind.number());
            }
            if sealed > 0 {
                let sum = self.sealed.entry(call.actor).or_default();
                *sum = sum.saturating_add(sealed);
            }
        }
        match &facts.end {
            Some(end) => self.end(id, end, facts.last_at),
            None => Ok(()),
        }
    }

    /// Has the call in memory, if it is of this journal.
    fn load(&mut self, id: Id) -> Result<Loaded, AuditError> {
        if self.calls.contains_key(&id) {
            return Ok(Loaded::Own);
        }
        match self.connection.prepare_cached(SELECT)?.query_row([id], call).optional()? {
            None => Ok(Loaded::Missing),
            Some(stored) if stored.writer != self.writer => Ok(Loaded::OfAnother),
            Some(stored) => {
                self.calls.insert(id, stored);
                Ok(Loaded::Own)
            }
        }
    }

    fn begin(&mut self, id: Id, received: &Received<'_>, at: i64) -> Result<(), AuditError> {
        let fell_back = at.saturating_add(LEAP_US) < self.last_seq;
        if fell_back && self.had_leapt(at)? {
            self.write()?;
            self.pull_back(at)?;
        }
        let seq = self.free_seq(self.last_seq.saturating_add(1).max(at))?;
        self.last_seq = seq;
        self.taken.insert(seq);
        self.widen_skew(seq, at);
        let call = IndexedCall {
            seq,
            at,
            target: self.interner.target(self.connection, received.target())?,
            outcome: 0,
            actor: self.interner.actor(self.connection, &received.actor)?,
            writer: self.writer,
            idempotent: false,
            duration: None,
            attempts: None,
            key: None,
            sealed: 0,
            is_undetermined: false,
            places: Vec::with_capacity(24),
            usage: CallUsage::default(),
            is_stored: false,
        };
        self.calls.insert(id, call);
        Ok(())
    }

    /// Ends a call that is in memory.
    fn end(&mut self, id: Id, end: &EndFacts<'_>, ended_at: i64) -> Result<(), AuditError> {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.outcome == 0) else { return Ok(()) };
        call.outcome = self.interner.outcome(self.connection, end)?;
        (call.duration, call.attempts) = end.measures(call.at, ended_at);
        call.is_undetermined = end.is_undetermined;
        let IndexedCall { at, target, outcome, actor, duration, .. } = *call;
        self.rollup.add(&CallCount { at, target, outcome, actor, duration, usage: &call.usage });
        Ok(())
    }

    /// Returns the next place in the log's order, from this one on, that no call has.
    fn free_seq(&mut self, from: i64) -> Result<i64, AuditError> {
        let newest = match self.newest {
            Some(newest) => newest,
            None => self.connection.prepare_cached(SELECT_NEWEST)?.query_row([], |row| row.get(0))?,
        };
        self.newest = Some(newest.max(from));
        if from > newest {
            return Ok(from);
        }
        let mut is_taken = self.connection.prepare_cached(IS_TAKEN)?;
        let mut seq = from;
        while self.taken.contains(&seq) || is_taken.exists([seq])? {
            seq = seq.saturating_add(1);
        }
        self.newest = self.newest.max(Some(seq));
        Ok(seq)
    }

    /// Returns true if the clock had leapt ahead before it fell back to this time, and is not wrong now. The journal may
    /// itself have been begun in the leap: then other journals have calls of this time.
    fn had_leapt(&self, at: i64) -> Result<bool, AuditError> {
        let until = at.saturating_add(LEAP_US);
        let others = params![at.saturating_sub(LEAP_US), until, self.writer];
        Ok(until >= self.created_at || self.connection.prepare_cached(SELECT_OTHERS)?.exists(others)?)
    }

    /// Moves the calls of this journal that are ahead of this time, since the clock had leapt, behind those before them.
    fn pull_back(&mut self, at: i64) -> Result<(), AuditError> {
        let ahead: Vec<(i64, i64)> = {
            let mut select = self.connection.prepare_cached(SELECT_AHEAD)?;
            let rows = select.query_map([at, self.writer], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        let behind: Option<i64> = {
            let mut select = self.connection.prepare_cached(SELECT_BEHIND)?;
            select.query_row([at, self.writer], |row| row.get(0)).optional()?
        };
        let count = i64::try_from(ahead.len()).unwrap_or(i64::MAX);
        self.last_seq = behind.unwrap_or_else(|| at.saturating_sub(count).saturating_sub(1));
        for (before, received) in ahead {
            let seq = self.free_seq(self.last_seq.saturating_add(1))?;
            let update = "UPDATE calls SET seq = ?2 WHERE seq = ?1";
            self.connection.prepare_cached(update)?.execute([before, seq])?;
            self.widen_skew(seq, received);
            self.last_seq = seq;
        }
        Ok(())
    }

    fn widen_skew(&mut self, seq: i64, at: i64) {
        let skew = seq.saturating_sub(at);
        let (least, most) = self.skew.unwrap_or((skew, skew));
        self.skew = Some((least.min(skew), most.max(skew)));
    }

    /// Returns true if a sealed part was not dropped.
    fn is_kept(&mut self, place: ReadPlace<'_>, sealed: &SealedPlace) -> Result<bool, AuditError> {
        let parts = match &mut self.sealed_parts {
            Some(parts) if parts.segment == place.segment => parts,
            _ => self.sealed_parts.insert(SealedParts::open(place)?),
        };
        Ok(parts.is_kept(sealed))
    }

    /// Writes everything that was added.
    pub(super) fn write(&mut self) -> Result<(), AuditError> {
        let mut calls: Vec<_> = self.calls.drain().collect();
        calls.sort_unstable_by_key(|(_, call)| call.seq);
        self.taken.clear();
        let mut insert = self.connection.prepare_cached(INSERT)?;
        let mut update = self.connection.prepare_cached(UPDATE)?;
        for (id, call) in calls {
            let row = params![
                call.seq,
                call.at,
                call.target,
                call.outcome,
                call.actor,
                call.writer,
                call.idempotent,
                call.duration,
                call.attempts,
                call.key,
                call.sealed,
                call.is_undetermined,
                call.places,
                call.usage.to_bytes(),
                id,
            ];
            if call.is_stored {
                update.execute(row)?
            } else {
                insert.execute(row)?
            };
        }
        std::mem::take(&mut self.rollup).write(self.connection)?;
        for (actor, bytes) in self.sealed.drain() {
            let add = "UPDATE actors SET sealed = sealed + ?2 WHERE id = ?1";
            self.connection.prepare_cached(add)?.execute([actor, bytes])?;
        }
        if let Some((least, most)) = self.skew.take() {
            let widen =
                "UPDATE skew SET least = min(least, ?1), most = max(most, ?2) WHERE least > ?1 OR most < ?2";
            self.connection.prepare_cached(widen)?.execute([least, most])?;
        }
        Ok(())
    }
}

/// Returns when the writer of this name was created, in microseconds: names are UUIDs that begin with their time.
fn created_at(name: &str) -> i64 {
    let time = Uuid::try_parse(name).ok().map_or(0, |name| name.as_u128() >> 80);
    i64::try_from(time).unwrap_or(0).saturating_mul(1_000)
}
