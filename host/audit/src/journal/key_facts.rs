//! The idempotency keys according to a journal, with which the key table is brought up to date.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use cofferdam_core::event::log_event::{KeptKey, KeyDecided};
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::action_runs::ActionRuns;
use super::key_claims::{KeyEnd, end_key, name_of};
use super::keys::{KeyChange, SealedOutcome, StoredKey, StoredKeyState};
use super::line::{ChainHead, EntryDraft, JournalLine, LogEvent};
use super::log_time;
use super::segment::{SegmentReader, last_entry, segments};
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

/// Applies the entries of this writer's journal to the key table that it does not know yet. Returns the number of the
/// last one. The operator's decisions about calls that have ended are added to `decided`, by call, with whether the key
/// may be used again. Runs of actions are added to `runs`.
///
/// A line that does not hold ends it, unless it is at most the entry that was signed for. Verification reports it,
/// and a key is rather taken than free.
pub(super) fn apply(
    keys: &mut KeyChange<'_>,
    writer: &str,
    returned: &mut ReturnedKeys<'_>,
    decided: &mut Vec<(AuditId, bool)>,
    runs: &mut ActionRuns,
) -> Result<u64, AuditError> {
    let from = keys.read_up_to(writer);
    let (dir, signed) = (returned.root.join(writer), returned.signed_up_to(writer));
    let firsts = segments(&dir)?;
    let Some(newest) = firsts.last() else { return Ok(from) };
    match last_entry(&dir, *newest)? {
        Some(last) if last == from => return Ok(from),
        // A power cut left more of the table than of the journal, which goes on from there.
        Some(last) if last < from => return Ok(last),
        _ => {}
    }
    let mut applied = from;
    for_each_line(&dir, from, signed, |segment, line| {
        applied = line.n;
        decided.extend(decision(line));
        put_kept(keys, writer, line)?;
        if let Some(time) = log_time::accepted_time(line) {
            keys.see(time);
        }
        apply_line(keys, returned, runs, writer, segment, line)
    })?;
    Ok(applied)
}

/// Calls `visit` with each line of a journal after this entry, and with the first entry of its segment. Skips the
/// lines that do not hold, up to the entry that was `signed` for.
fn for_each_line(
    dir: &Path,
    from: u64,
    signed: u64,
    mut visit: impl FnMut(u64, &JournalLine<'_>) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let firsts = segments(dir)?;
    let begin = firsts.iter().rposition(|first| *first <= from.saturating_add(1)).unwrap_or(0);
    for first in firsts.into_iter().skip(begin) {
        // It may have been pruned meanwhile.
        let Some(mut reader) = SegmentReader::open_regular(dir, first)? else { continue };
        let mut last = first.saturating_sub(1);
        while let Some(read) = reader.next()? {
            let Ok(line) = JournalLine::read(read.bytes) else {
                last = last.saturating_add(1);
                if last > signed {
                    break;
                }
                continue;
            };
            last = line.n;
            if line.n > from && read.is_whole {
                visit(first, &line)?;
            }
        }
    }
    Ok(())
}

/// The calls that have given their keys back, or left them to the calls that resume them, according to entries that the
/// key table does not know yet. A journal is read for them only if calls of two journals have claimed one key, which is
/// rare.
pub(super) struct ReturnedKeys<'j> {
    root: &'j Path,
    /// The signed ends of the journals.
    signed: &'j BTreeMap<String, ChainHead>,
    /// The calls of each journal that was read, by its writer.
    calls: HashMap<String, HashSet<[u8; 16]>>,
}

impl<'j> ReturnedKeys<'j> {
    pub(super) fn new(root: &'j Path, signed: &'j BTreeMap<String, ChainHead>) -> Self {
        Self { root, signed, calls: HashMap::new() }
    }

    /// Returns the last entry of a journal that was signed for.
    fn signed_up_to(&self, writer: &str) -> u64 {
        self.signed.get(writer).map_or(0, |head| head.n)
    }

    /// Returns true if the call of this claim is one of them.
    fn has(&mut self, keys: &KeyChange<'_>, claimed: &StoredKey) -> Result<bool, AuditError> {
        let calls = match self.calls.remove(&claimed.writer) {
            Some(calls) => calls,
            None => self.read(&claimed.writer, keys.read_up_to(&claimed.writer))?,
        };
        let has = calls.contains(&claimed.call);
        self.calls.insert(claimed.writer.clone(), calls);
        Ok(has)
    }

    fn read(&self, writer: &str, from: u64) -> Result<HashSet<[u8; 16]>, AuditError> {
        let (dir, mut calls) = (self.root.join(writer), HashSet::new());
        // Verification reports a journal that is missing.
        if !dir.is_dir() {
            return Ok(calls);
        }
        for_each_line(&dir, from, self.signed_up_to(writer), |_, line| {
            let events = line.events().unwrap_or_default();
            if events.iter().any(|event| gives_key_back(&event.event())) {
                calls.extend(line.audit_id.as_deref().and_then(AuditId::parse).map(|call| call.bytes()));
            }
            Ok(())
        })?;
        Ok(calls)
    }
}

/// Returns true if the call of this event holds no key from then on.
fn gives_key_back(event: &RecordedEvent<'_>) -> bool {
    match event {
        RecordedEvent::Final(end) => {
            end.key_end.as_ref().is_some_and(|key| KeyDisposition::read(key) == KeyDisposition::Release)
        }
        RecordedEvent::Skipped(decision) => decision.frees_key == Some(true),
        RecordedEvent::Resumed(_) => true,
        _ => false,
    }
}

/// Returns the decision in an entry about a key.
pub fn decision<E>(line: &JournalLine<'_, E>) -> Option<(AuditId, bool)> {
    let RecordedEvent::KeyDecided(decided) = line.log.as_ref()?.event() else { return None };
    Some((AuditId::parse(&decided.call)?, decided.frees_key))
}

/// Stores the keys of pruned calls that stay taken.
fn put_kept(keys: &mut KeyChange<'_>, writer: &str, line: &JournalLine<'_>) -> Result<(), AuditError> {
    let Some(RecordedEvent::KeysKept(kept)) = line.log.as_ref().map(LogEvent::event) else { return Ok(()) };
    for KeptKey { call, fingerprint, key_sha256 } in kept.keys {
        let (Some(call), Some(key), Some(fingerprint)) =
            (AuditId::parse(&call), unhex(&key_sha256), unhex(&fingerprint))
        else {
            continue;
        };
        let held = StoredKey::claimed(call.bytes(), fingerprint, writer, line.n);
        keys.put_new(&key, &StoredKey { state: StoredKeyState::Blocked, ..held })?;
    }
    Ok(())
}

fn apply_line(
    keys: &mut KeyChange<'_>,
    returned: &mut ReturnedKeys<'_>,
    runs: &mut ActionRuns,
    writer: &str,
    segment: u64,
    line: &JournalLine<'_>,
) -> Result<(), AuditError> {
    let (Some(call), Ok(events)) = (line.audit_id.as_deref().and_then(AuditId::parse), line.events()) else {
        return Ok(());
    };
    let (mut step_of, mut received_at) = (None, Timestamp::UNIX_EPOCH);
    let (mut is_run, mut parent) = (false, None);
    for event in &events {
        match event.event() {
            RecordedEvent::Received(received) => {
                is_run = received.action.is_some() && received.step.is_none();
                parent = received.parent.as_deref().and_then(AuditId::parse);
                let action = received.step.and(received.action);
                step_of = action.map(|action| name_of(&action).to_owned());
                received_at = event.at.parse().unwrap_or_default();
            }
            RecordedEvent::Admitted(admitted) => {
                let Some(of) = &admitted.claim else { continue };
                if let (Some(key), Some(fingerprint)) = (unhex(&of.key_sha256), unhex(&of.fingerprint)) {
                    let claimed = StoredKey {
                        at: received_at.as_microsecond(),
                        is_idempotent: admitted.is_idempotent(),
                        step_of: step_of.clone(),
                        ..StoredKey::claimed(call.bytes(), fingerprint, writer, line.n)
                    };
                    if is_run {
                        runs.begin(claimed.call, key, claimed.at);
                    } else if let Some(run) = &parent {
                        runs.begin_step(key, claimed.call, run.bytes());
                    }
                    claim(keys, returned, &key, &claimed)?;
                }
            }
            RecordedEvent::Skipped(decision) => {
                resolve(keys, &call, decision.frees_key.unwrap_or(false))?;
            }
            RecordedEvent::Final(end) => {
                let Some(key) = &end.key_end else { continue };
                let (key, has_value) = (KeyDisposition::read(key), end.status == "value");
                if has_value && matches!(key, KeyDisposition::Retain(_)) {
                    runs.end_with_value(call.bytes());
                }
                let outcome = line.sealed.as_ref().map(|sealed| SealedOutcome {
                    segment,
                    offset: sealed.offset,
                    bytes: sealed.bytes,
                });
                close(keys, &KeyEnd { call: call.bytes(), key, has_value }, outcome)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Stores the claim of a key. Of two calls in different journals, the later one holds the key; within one, the order of
/// the entries decides.
///
/// A call may be received before another one, and claim the key after it. So a call that gave its key back takes it
/// from no call in another journal, if that is read first, and keeps it from none if the table is of an earlier time.
fn claim(
    keys: &mut KeyChange<'_>,
    returned: &mut ReturnedKeys<'_>,
    key: &[u8; 32],
    claimed: &StoredKey,
) -> Result<(), AuditError> {
    let held = keys.get(key)?;
    let is_known = match &held {
        None => false,
        Some(stored) if stored.call == claimed.call => true,
        // A call that has claimed the key may have no entry yet.
        Some(stored) if stored.writer == claimed.writer => stored.since >= claimed.since,
        Some(stored) if stored.at > claimed.at => {
            stored.state != StoredKeyState::Claimed || !returned.has(keys, stored)?
        }
        Some(stored) => !stored.has_expired(claimed.at) && returned.has(keys, claimed)?,
    };
    if is_known {
        return Ok(());
    }
    // In the journal of an interrupted call, only a call that resumes it claims its key.
    let resumed = held.filter(|held| held.state == StoredKeyState::Claimed && held.writer == claimed.writer);
    keys.put(key, &StoredKey { at: claimed.since_resumed(resumed.as_ref()), ..claimed.clone() })
}

fn close(keys: &mut KeyChange<'_>, end: &KeyEnd, outcome: Option<SealedOutcome>) -> Result<(), AuditError> {
    for (key, stored) in keys.rows_of(&end.call)? {
        if stored.state == StoredKeyState::Claimed {
            end_key(keys, &key, end, outcome)?;
        }
    }
    Ok(())
}

/// Returns true if the operator may decide about a key in this state. This includes freeing a key that an earlier decision
/// blocked: a second review may know better.
pub(super) fn is_open_to(state: StoredKeyState, frees_key: bool) -> bool {
    !matches!((state, frees_key), (StoredKeyState::Retained, _) | (StoredKeyState::Blocked, false))
}

/// Applies the operator's decision about a call to the keys that it holds. Returns false if it holds none that is to be
/// decided about.
pub(super) fn resolve(keys: &mut KeyChange<'_>, call: &AuditId, frees_key: bool) -> Result<bool, AuditError> {
    let mut changed = false;
    for (key, stored) in keys.rows_of(&call.bytes())? {
        if !is_open_to(stored.state, frees_key) {
            continue;
        }
        match frees_key {
            true => keys.remove(&key)?,
            false => keys.put(&key, &StoredKey { state: StoredKeyState::Blocked, until: None, ..stored })?,
        }
        changed = true;
    }
    Ok(changed)
}
