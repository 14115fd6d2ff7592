//! The idempotency keys according to a journal, with which the key table is brought up to date.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use cofferdam_core::event::log_event::{KeptKey, KeyDecided};
use cofferdam_core::event::recorded::{Ended, RecordedEvent};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::key_claims::set_end;
use super::keys::{KeyChange, KeysOf};
use super::line::{ChainHead, EntryDraft, JournalLine, LogEvent};
use super::log_time;
use super::segment::{SegmentReader, last_entry, segments};
use super::stored_key::{KeyEnd, SealedOutcome, StepOf, StoredKey, StoredKeyState};
use crate::command::{KeyDisposition, ResolveCall};
use crate::error::AuditError;
use crate::hex::unhex;

/// Returns the entry that decides about the key of a call that has ended.
pub fn decided(audit_id: &AuditId, decision: &ResolveCall) -> EntryDraft {
    let (actor, call) = (decision.actor.to_string(), audit_id.to_string());
    let (frees_key, reason) = (decision.frees_key, Some(decision.reason.clone()));
    let facts = KeyDecided { actor, call, frees_key, reason };
    EntryDraft::of_log(decision.at, &RecordedEvent::KeyDecided(facts))
}

/// The most facts that are read at once.
const FACTS_AT_ONCE: usize = if cfg!(test) { 100 } else { 65_536 };

/// A fact about keys in an entry of a journal.
#[derive(Debug)]
pub enum KeyFact {
    /// A call holds this key and was admitted at this time, in microseconds since 1970; or it has been pruned, and the
    /// key stays taken.
    Claimed([u8; 32], Box<StoredKey>, i64),
    /// A call has ended.
    Ended(KeyEnd, Option<SealedOutcome>),
    /// Another call resumes this one, and claims its key.
    Resumed([u8; 16]),
    /// The operator's decision about a call without an end, with whether its key may be used again.
    Resolved(AuditId, bool),
    /// The operator's decision about the key of a call that has ended, with whether the key may be used again.
    Decided(AuditId, bool),
    /// An action has a value.
    ActionEnded(ActionEnd),
}

impl KeyFact {
    /// Reads the facts in an entry of this writer's journal, in their order. `segment` has the entry.
    pub fn read_all(writer: &str, segment: u64, line: &JournalLine<'_>) -> Vec<Self> {
        let mut facts = Vec::new();
        facts.extend(decision(line).map(|(call, frees_key)| Self::Decided(call, frees_key)));
        if let Some(RecordedEvent::KeysKept(kept)) = line.log.as_ref().map(LogEvent::event) {
            facts.extend(kept.keys.into_iter().filter_map(|KeptKey { call, fingerprint, key_sha256 }| {
                let (call, fingerprint) = (AuditId::parse(&call)?, unhex(&fingerprint)?);
                let held = StoredKey::claimed(call.bytes(), fingerprint, writer, line.n);
                let held = StoredKey { state: StoredKeyState::Blocked, ..held };
                Some(Self::Claimed(unhex(&key_sha256)?, Box::new(held), i64::MAX))
            }));
        }
        let (Some(call), Ok(events)) = (line.audit_id.as_deref().and_then(AuditId::parse), line.events())
        else {
            return facts;
        };
        let (mut is_action, mut action, mut received_at) = (false, None, 0);
        for event in &events {
            match event.event() {
                RecordedEvent::Received(received) => {
                    is_action = received.action.is_some() && received.step.is_none();
                    action = received.step.and(received.action);
                    received_at = event.at.parse::<Timestamp>().unwrap_or_default().as_microsecond();
                }
                RecordedEvent::Admitted(admitted) => {
                    let Some(of) = &admitted.claim else { continue };
                    let hashes = unhex(&of.key_sha256).zip(unhex(&of.fingerprint));
                    let Some((key, fingerprint)) = hashes else { continue };
                    let action_key = of.action_key_sha256.as_deref().and_then(unhex);
                    let claimed = StoredKey {
                        at: received_at,
                        is_idempotent: admitted.is_idempotent(),
                        is_action,
                        step_of: StepOf::new(action.as_deref(), action_key),
                        ..StoredKey::claimed(call.bytes(), fingerprint, writer, line.n)
                    };
                    let at = event.at.parse().map_or(i64::MAX, |at: Timestamp| at.as_microsecond());
                    facts.push(Self::Claimed(key, Box::new(claimed), at));
                }
                RecordedEvent::Resumed(_) => facts.push(Self::Resumed(call.bytes())),
                RecordedEvent::Skipped(decision) => {
                    facts.push(Self::Resolved(call.clone(), decision.frees_key.unwrap_or(false)));
                }
                RecordedEvent::Final(end) => {
                    let Some(of) = &end.key_end else { continue };
                    let outcome = line.sealed.as_ref().map(|sealed| SealedOutcome {
                        segment,
                        offset: sealed.offset,
                        bytes: sealed.bytes,
                    });
                    let (key, has_value) = (KeyDisposition::read(of), end.status == "value");
                    facts.push(Self::Ended(KeyEnd { call: call.bytes(), key, has_value }, outcome));
                    facts.extend(ActionEnd::read(writer, line.n, &event.at, &end).map(Self::ActionEnded));
                }
                _ => {}
            }
        }
        facts
    }

    /// Returns true if the fact is about entries that may be in other journals.
    fn is_about_others(&self) -> bool {
        matches!(self, Self::Decided(..) | Self::ActionEnded(_))
    }

    /// Returns the call that holds no key from then on.
    fn returned(&self) -> Option<[u8; 16]> {
        match self {
            Self::Ended(end, _) if end.key == KeyDisposition::Release => Some(end.call),
            Self::Resolved(call, true) => Some(call.bytes()),
            Self::Resumed(call) => Some(*call),
            _ => None,
        }
    }

    /// Applies the fact to the key table.
    pub(super) fn apply(
        self,
        keys: &mut KeyChange<'_>,
        journals: &JournalKeys<'_>,
    ) -> Result<(), AuditError> {
        match self {
            Self::Claimed(key, claimed, _) => claim(keys, journals, &key, &claimed)?,
            Self::Ended(end, outcome) => {
                for (key, stored) in keys.rows(KeysOf::Call(end.call))? {
                    if stored.state == StoredKeyState::Claimed {
                        set_end(keys, &key, &end, outcome)?;
                    }
                }
            }
            Self::Resumed(_) => {}
            Self::Resolved(call, frees_key) | Self::Decided(call, frees_key) => {
                resolve(keys, &call, frees_key)?;
            }
            Self::ActionEnded(end) => keys.end_steps_of(end.key, end.until, |step| end.is_after(step))?,
        }
        Ok(())
    }
}

/// The end of an action with a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ActionEnd {
    /// The SHA-256 of its key.
    pub key: [u8; 32],
    /// The time until which its value stands, in microseconds since 1970.
    pub until: i64,
    /// The journal with the end, and its entry there.
    writer: String,
    n: u64,
    /// When it ended, in microseconds since 1970.
    at: i64,
}

impl ActionEnd {
    /// Reads the ends in an entry of this writer's journal.
    pub(super) fn read_all(writer: &str, line: &JournalLine<'_>) -> impl Iterator<Item = Self> {
        let facts = KeyFact::read_all(writer, 0, line).into_iter();
        facts.filter_map(|fact| if let KeyFact::ActionEnded(end) = fact { Some(end) } else { None })
    }

    /// Reads the last event of a call, which was recorded at `at`; none if it is another one.
    fn read(writer: &str, n: u64, at: &str, end: &Ended<'_>) -> Option<Self> {
        let of = end.key_end.as_ref().filter(|_| end.status == "value")?;
        let KeyDisposition::Retain(until) = KeyDisposition::read(of) else { return None };
        let key = of.key_sha256.as_deref().and_then(unhex)?;
        let at = at.parse::<Timestamp>().unwrap_or_default();
        let (at, until) = (at.as_microsecond(), until.as_microsecond());
        Some(Self { key, writer: writer.to_owned(), n, at, until })
    }

    /// Returns true if the outcome of this step, which is in another journal, expires since then.
    pub(super) fn ends_in_another_journal(&self, step: &StoredKey) -> bool {
        let is_over = step.step_of.as_ref().is_some_and(|of| of.has_value);
        is_over && step.state == StoredKeyState::Retained && step.writer != self.writer && self.is_after(step)
    }

    /// Returns true if this step began before it. Within a journal, the order of the entries decides.
    fn is_after(&self, step: &StoredKey) -> bool {
        match step.writer == self.writer {
            true => step.since < self.n,
            false => step.at < self.at,
        }
    }
}

/// Facts in the entries of a journal that follow one entry.
#[derive(Default)]
pub(super) struct JournalFacts {
    /// That entry.
    from: u64,
    /// The first segment when they were read.
    first: Option<u64>,
    /// The last entry that was read.
    last: u64,
    pub(super) facts: Vec<KeyFact>,
    /// Those about entries that may be in other journals, which are to be read first.
    pub(super) about_others: Vec<KeyFact>,
    /// The times that operators accepted, and false with those for which that failed.
    pub(super) accepted: Vec<(i64, bool)>,
}

impl JournalFacts {
    /// Adds the facts of an entry.
    fn add(&mut self, writer: &str, segment: u64, line: &JournalLine<'_>) {
        self.accepted.extend(log_time::accepted_time(line));
        let facts = KeyFact::read_all(writer, segment, line).into_iter();
        let (others, own): (Vec<_>, _) = facts.partition(KeyFact::is_about_others);
        self.facts.extend(own);
        self.about_others.extend(others);
    }
}

/// The journals of a home, of which keys are read.
pub(super) struct JournalKeys<'j> {
    root: &'j Path,
    /// The signed ends of the journals.
    signed: BTreeMap<String, ChainHead>,
    /// By writer, the calls that have given their keys back, or left them to the calls that resume them, according to
    /// entries that the key table does not know yet. A journal is read for them only if calls of two journals have
    /// claimed one key, which is rare.
    returned: RefCell<HashMap<String, HashSet<[u8; 16]>>>,
}

impl<'j> JournalKeys<'j> {
    pub(super) fn new(root: &'j Path, signed: BTreeMap<String, ChainHead>) -> Self {
        Self { root, signed, returned: RefCell::default() }
    }

    /// Calls `visit` with the facts of the entries of this writer's journal that follow `from`, and returns the last
    /// entry. It begins with those that are `known`, unless the journal was pruned since they were read.
    pub(super) fn for_each(
        &self,
        writer: &str,
        from: u64,
        known: Option<JournalFacts>,
        mut visit: impl FnMut(JournalFacts) -> Result<(), AuditError>,
    ) -> Result<u64, AuditError> {
        let (mut last, mut read) = (from, self.read(writer, from, known)?);
        while read.last != last {
            last = read.last;
            visit(read)?;
            read = self.read(writer, last, None)?;
        }
        Ok(last)
    }

    /// Reads facts of the entries of this writer's journal that follow `from`, at most about [`FACTS_AT_ONCE`].
    ///
    /// A line that does not hold ends its segment, unless it is at most the entry that was signed for. Verification
    /// reports it, and a key is rather taken than free.
    pub(super) fn read(
        &self,
        writer: &str,
        from: u64,
        known: Option<JournalFacts>,
    ) -> Result<JournalFacts, AuditError> {
        let dir = self.root.join(writer);
        // Verification reports a journal that is missing.
        let firsts = if dir.is_dir() { segments(&dir)? } else { Vec::new() };
        let first = firsts.first().copied();
        if let Some(known) = known.filter(|known| known.from == from && known.first == first) {
            return Ok(known);
        }
        let mut read = JournalFacts { from, first, last: from, ..JournalFacts::default() };
        let Some(newest) = firsts.last() else { return Ok(read) };
        if let Some(last) = last_entry(&dir, *newest)?.filter(|last| *last <= from) {
            // A power cut may leave more of the table than of the journal, which goes on from there.
            read.last = last;
            return Ok(read);
        }
        let signed = self.signed.get(writer).map_or(0, |head| head.n);
        let begin = firsts.iter().rposition(|first| *first <= from.saturating_add(1)).unwrap_or(0);
        for first in firsts.into_iter().skip(begin) {
            // It may have been pruned meanwhile.
            let Some(mut reader) = SegmentReader::open_regular(&dir, first)? else { continue };
            let mut n = first.saturating_sub(1);
            while let Some(text) = reader.next()? {
                let Ok(line) = JournalLine::read(text.bytes) else {
                    n = n.saturating_add(1);
                    if n > signed {
                        break;
                    }
                    continue;
                };
                n = line.n;
                if n > from && text.is_whole {
                    read.last = n;
                    read.add(writer, first, &line);
                    if read.facts.len() >= FACTS_AT_ONCE {
                        return Ok(read);
                    }
                }
            }
        }
        Ok(read)
    }

    /// Returns true if the call of this claim has given its key back.
    fn is_returned(&self, keys: &KeyChange<'_>, claimed: &StoredKey) -> Result<bool, AuditError> {
        let (writer, mut returned) = (&claimed.writer, self.returned.borrow_mut());
        if !returned.contains_key(writer) {
            let mut calls = HashSet::new();
            self.for_each(writer, keys.read_up_to(writer), None, |read| {
                calls.extend(read.facts.iter().filter_map(KeyFact::returned));
                Ok(())
            })?;
            returned.insert(writer.clone(), calls);
        }
        Ok(returned.get(writer).is_some_and(|calls| calls.contains(&claimed.call)))
    }
}

/// Returns the decision in an entry about a key.
pub fn decision<E>(line: &JournalLine<'_, E>) -> Option<(AuditId, bool)> {
    let RecordedEvent::KeyDecided(decided) = line.log.as_ref()?.event() else { return None };
    Some((AuditId::parse(&decided.call)?, decided.frees_key))
}

/// Stores the claim of a key. Of two calls in different journals, the later one holds the key; within one, the order of
/// the entries decides.
///
/// A call may be received before another one, and claim the key after it. So a call that gave its key back takes it
/// from no call in another journal, if that is read first, and keeps it from none if the table is of an earlier time.
fn claim(
    keys: &mut KeyChange<'_>,
    journals: &JournalKeys<'_>,
    key: &[u8; 32],
    claimed: &StoredKey,
) -> Result<(), AuditError> {
    let is_known = match &keys.get(key)? {
        None => false,
        Some(stored) if stored.outlasts(claimed) => true,
        // A call that has claimed the key may have no entry yet.
        Some(stored) if stored.writer == claimed.writer => stored.since >= claimed.since,
        Some(stored) if stored.at > claimed.at => {
            stored.state != StoredKeyState::Claimed || !journals.is_returned(keys, stored)?
        }
        Some(stored) => !stored.has_expired(claimed.at) && journals.is_returned(keys, claimed)?,
    };
    if is_known { Ok(()) } else { keys.put(key, claimed) }
}

/// Applies the operator's decision about a call to the keys that it holds. Returns false if it holds none that is to be
/// decided about.
pub(super) fn resolve(keys: &mut KeyChange<'_>, call: &AuditId, frees_key: bool) -> Result<bool, AuditError> {
    let mut changed = false;
    for (key, stored) in keys.rows(KeysOf::Call(call.bytes()))? {
        if !stored.is_open_to(frees_key) {
            continue;
        }
        match stored.resolved(frees_key) {
            None => keys.remove(&key)?,
            Some(blocked) => keys.put(&key, &blocked)?,
        }
        changed = true;
    }
    Ok(changed)
}
