//! Claims of idempotency keys: of the calls of this process, and of processes that have ended.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;
use cofferdam_core::private_file::{FileLock, SharedLockUse};

use super::Journal;
use super::key_facts::JournalKeys;
use super::keys::{KeyChange, KeyTable, KeysOf};
use super::log::{HeldJournal, LogWriter};
use super::log_time::{add_accepted, advance, believed_time, check_clock, is_believed};
use super::segment::read_sealed;
use super::stored_key::{
    InterruptedCall, KeyEnd, SealedOutcome, StoredKey, StoredKeyState, key_digest, key_state,
};
use super::writer_dir::{self, WriterDir};
use crate::command::{KeyClaim, KeyScope, KeyState, OpenCall};
use crate::error::{AuditError, AuditErrorKind};
use crate::settings::BUSY_TIMEOUT;
use crate::sqlite_file;

/// The key table in the directory of the journals, and the lock that its users share.
const KEYS: &str = "keys.db";
pub(super) const KEYS_LOCK: &str = "keys.lock";

/// The pause before it is looked again whether another process has made the key table.
const PAUSE: Duration = Duration::from_millis(5);

impl LogWriter {
    /// Returns the state of an idempotency key.
    pub(super) fn key_state(&self, claim: &KeyClaim) -> Result<KeyState, AuditError> {
        let keys = self.keys()?;
        self.follow_clock(&keys.table, claim.at)?;
        self.settle_key(&keys, key_digest(&claim.key))?;
        keys.table.change(|keys| self.state_of(keys, claim))
    }

    /// Returns true if there is a key table.
    pub(super) fn has_key_table(&self) -> bool {
        self.root().join(KEYS).exists()
    }

    /// Returns the calls of which it is unknown what they did under their key, and that are not resolved; of one call, if
    /// that is given.
    pub(super) fn undecided_calls(&self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        let read = |table: &KeyTable| match of {
            Some(call) => {
                Ok(table.rows(KeysOf::Call(call.bytes()))?.into_iter().map(|(_, stored)| stored).collect())
            }
            None => table.all().map(|all| all.into_values().collect::<Vec<_>>()),
        };
        let keys = match self.with_sound_keys(|| read(&self.keys()?.table)) {
            Ok(keys) => keys,
            // Reading needs neither space nor the permission to write.
            Err(error) if error.kind().is_unwritable() => {
                let table = KeyTable::in_memory()?;
                self.read_journal_keys(&table, &writer_dir::names(self.root())?)?;
                read(&table)?
            }
            Err(error) => return Err(error),
        };
        let undecided = keys.iter().filter(|stored| stored.state == StoredKeyState::Undetermined);
        let mut calls: Vec<_> = undecided.map(|stored| stored.call).collect();
        calls.sort_unstable();
        calls.dedup();
        Ok(calls.into_iter().map(AuditId::from_bytes).collect())
    }

    /// Returns the key table, brought up to date from the journals.
    pub(super) fn keys(&self) -> Result<HeldKeys, AuditError> {
        let mut shared = self.share_keys()?;
        let opened = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(table) = opened.filter(|table| table.is_in_place()) {
            return Ok(HeldKeys { table, _shared: Arc::new(shared) });
        }
        // The journals may lack calls under keys: nothing runs under one until the operator accepts that.
        if let Some(loss) = self.checkpoints()?.reader.loss()? {
            return Err(AuditError::new(AuditErrorKind::Lost, loss));
        }
        for _ in 0..=BUSY_TIMEOUT.as_millis() / PAUSE.as_millis() {
            if let Some(table) = self.open_keys(false)? {
                return Ok(self.hold_keys(table, shared));
            }
            drop(shared);
            // Only a table that is made, or made again, must not be in use meanwhile. Many processes may begin at once: the
            // others open the one that the first of them makes.
            let alone = FileLock::try_acquire(&self.root().join(KEYS_LOCK));
            if let Some(alone) = alone.map_err(|error| AuditError::from_file(KEYS_LOCK, error))? {
                self.open_keys(true)?;
                drop(alone);
            } else {
                std::thread::sleep(PAUSE);
            }
            shared = self.share_keys()?;
        }
        Err(AuditError::new(AuditErrorKind::Locked, "the key table is in use"))
    }

    /// Returns the key table, if it is open and no process is rebuilding it.
    pub(super) fn keys_at_once(&self) -> Option<HeldKeys> {
        let table = self.keys.try_read().ok()?.clone()?;
        let shared = self.keys_lock.try_acquire().ok()??;
        table.is_in_place().then(|| HeldKeys { table, _shared: Arc::new(shared) })
    }

    /// Returns true if the table shows without waiting that the key is free. Only a claim reserves it.
    pub(super) fn is_free_at_once(&self, claim: &KeyClaim) -> bool {
        // An action's key depends on those of its steps.
        let is_whole = !matches!(claim.of, KeyScope::Action { .. });
        let table = self.keys.try_read().ok().and_then(|keys| keys.clone()).filter(|_| is_whole);
        table.is_some_and(|table| {
            table.is_in_place() && table.try_is_free(&key_digest(&claim.key)) == Some(true)
        })
    }

    /// Claims a key that no call has, without waiting. None if that requires waiting, or if another call has the key.
    pub(super) fn claim_at_once(
        &self,
        call: &OpenCall,
        claim: &KeyClaim,
        journal: &HeldJournal,
    ) -> Option<HeldClaim> {
        let keys = self.keys_at_once().filter(|_| !matches!(claim.of, KeyScope::Action { .. }))?;
        let key = key_digest(&claim.key);
        let is_claimed = keys.table.try_change(|keys| {
            let is_believed = is_believed(keys.seen(), claim.at.as_microsecond());
            let is_free = is_believed && keys.put_new(&key, &claimed(call, claim, journal))?;
            if is_free {
                advance(keys, claim.at.as_microsecond());
            }
            Ok(is_free)
        })?;
        is_claimed.then(|| HeldClaim { keys, key, before: None })
    }

    /// Takes the lock of the key table that all its users share.
    fn share_keys(&self) -> Result<SharedLockUse, AuditError> {
        let shared =
            self.keys_lock.acquire(BUSY_TIMEOUT).map_err(|error| AuditError::from_file(KEYS_LOCK, error))?;
        shared.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "the key table is made again"))
    }

    fn hold_keys(&self, table: KeyTable, shared: SharedLockUse) -> HeldKeys {
        let table = Arc::new(table);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&table));
        HeldKeys { table, _shared: Arc::new(shared) }
    }

    /// Runs `work`, and once more if the key table was damaged: it is made again from the journals meanwhile.
    pub(super) fn with_sound_keys<T>(
        &self,
        work: impl Fn() -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        match work() {
            Err(error) if is_damaged(&error) => {
                self.forget_damaged_keys(&error);
                work()
            }
            done => done,
        }
    }

    /// Has a key table that was found damaged made again when it is used next.
    pub(super) fn forget_damaged_keys(&self, error: &AuditError) {
        if is_damaged(error) {
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Opens the key table, and brings it up to date. One that is missing or damaged is made again, or none is returned
    /// if this process does not use it `alone`.
    fn open_keys(&self, alone: bool) -> Result<Option<KeyTable>, AuditError> {
        if !alone && !self.has_key_table() {
            return Ok(None);
        }
        let key = host_key::load_or_create(&self.home.join("host.key"))?;
        let path = self.root().join(KEYS);
        let table = match KeyTable::open(&path, &key, BUSY_TIMEOUT) {
            Err(error) if is_damaged(&error) && !alone => return Ok(None),
            Err(error) if is_damaged(&error) => {
                tracing::error!(target: "cofferdam::audit", %error, "the table of idempotency keys is made again from the journals");
                sqlite_file::move_away(&path, &["", "-wal", "-shm"])?;
                KeyTable::open(&path, &key, BUSY_TIMEOUT)?
            }
            table => table?,
        };
        self.read_journal_keys(&table, &writer_dir::names(self.root())?)?;
        Ok(Some(table))
    }

    /// Brings the key table up to date with the journals of these writers.
    pub(super) fn read_journal_keys(&self, table: &KeyTable, writers: &[String]) -> Result<(), AuditError> {
        let journals = JournalKeys::new(self.root(), self.signed_heads()?);
        let known =
            table.change(|keys| Ok(writers.iter().map(|it| keys.read_up_to(it)).collect::<Vec<_>>()))?;
        // A journal may be long, and other calls wait for a change: only what is added meanwhile is read within it.
        let read = writers.iter().zip(known).map(|(writer, from)| journals.read(writer, from, None));
        let read = read.collect::<Result<Vec<_>, _>>()?;
        table.change(|keys| {
            let (mut about_others, mut accepted) = (Vec::new(), None);
            for (writer, read) in writers.iter().zip(read) {
                let mut own = Vec::new();
                let last = journals.for_each(writer, keys.read_up_to(writer), Some(read), |read| {
                    about_others.extend(read.about_others);
                    add_accepted(&mut own, read.accepted);
                    read.facts.into_iter().try_for_each(|fact| fact.apply(keys, &journals))
                })?;
                keys.note_read(writer, last);
                accepted = accepted.into_iter().chain(own.pop()).min();
            }
            // A table that has a time got what was accepted when it was. Which of two journals has the last word cannot
            // be told: with the earlier time no key expires too soon.
            if let (None, Some(time)) = (keys.seen(), accepted) {
                keys.see(time);
            }
            about_others.into_iter().try_for_each(|fact| fact.apply(keys, &journals))
        })
    }

    /// Brings the key table up to date with a journal of this process, on another thread.
    pub(super) fn read_own_keys(self: &Arc<Self>, journal: &HeldJournal) {
        let writer = journal.writer.clone();
        self.in_background(|own| {
            own.keys().and_then(|keys| own.read_journal_keys(&keys.table, &[writer])).inspect_err(|error| {
                tracing::warn!(target: "cofferdam::audit", %error, "the table of idempotency keys is behind the journal");
            })
        });
    }

    /// Returns keys to an interrupted call if the calls that took them were never opened.
    pub(super) fn settle_keys_of(&self, keys: &HeldKeys, call: &AuditId) -> Result<(), AuditError> {
        let all = keys.table.all()?.into_iter();
        let mut taken =
            all.filter(|(_, stored)| stored.taken_from.is_some_and(|from| from.call == call.bytes()));
        taken.try_for_each(|(key, _)| self.settle_key(keys, key))
    }

    /// Brings a claim up to date whose process may have ended.
    pub(super) fn settle_key(&self, keys: &HeldKeys, key: [u8; 32]) -> Result<(), AuditError> {
        let table = &keys.table;
        let Some(stored) = table.get(&key)? else { return Ok(()) };
        if stored.step_of.as_ref().is_some_and(|of| of.has_value) {
            // Another call may take its place. If its journal was read later, the step would stand again.
            self.read_journal_keys(table, std::slice::from_ref(&stored.writer))?;
        }
        if stored.state != StoredKeyState::Claimed || self.is_running(&stored) {
            return Ok(());
        }
        // None if the call was opened. Otherwise the interrupted call to which the key returns, if there is one.
        let unopened = |journal: &Journal| {
            let first_entry = |call: [u8; 16]| journal.unended.first_entry(&AuditId::from_bytes(call));
            // A damaged journal is no evidence: the key stays taken.
            let is_known = !journal.is_changed && first_entry(stored.call).is_none();
            is_known.then(|| stored.taken_from.and_then(|from| Some((from, first_entry(from.call)?))))
        };
        if let Some(journal) = self.held_journal(&stored.writer) {
            // The call has an end that the table does not know yet, or was interrupted and its journal adopted.
            self.read_journal_keys(table, std::slice::from_ref(&stored.writer))?;
            let interrupted = journal.committer.with_journal(|journal| unopened(journal));
            // A claim locks the journal while it changes the table, so the table is changed after the journal is unlocked.
            return interrupted.map_or(Ok(()), |it| give_up_unopened(table, &key, &stored, it));
        }
        // None if another process took the journal just now, to resume the call.
        let Some(dir) = WriterDir::take_free(self.root(), &stored.writer)? else { return Ok(()) };
        self.read_journal_keys(table, std::slice::from_ref(&stored.writer))?;
        // A journal that is older than it was tells nothing either.
        let Some(signed) = self.signed_heads()?.get(&stored.writer).copied() else { return Ok(()) };
        let journal = Journal::open(dir, self.journal_settings, Some(signed))?;
        let interrupted = journal.as_ref().and_then(unopened);
        interrupted.map_or(Ok(()), |it| give_up_unopened(table, &key, &stored, it))
    }

    /// Returns the interrupted call that holds the key, if that may be repeated, also according to the call that
    /// repeats it.
    pub(super) fn interrupted_holder(
        &self,
        keys: &HeldKeys,
        claim: &KeyClaim,
        is_idempotent: bool,
    ) -> Result<Option<AuditId>, AuditError> {
        let stored = keys.table.get(&key_digest(&claim.key))?;
        let may_be_resumed =
            |stored: &StoredKey| stored.may_be_resumed(claim, is_idempotent) && !self.is_running(stored);
        Ok(stored.filter(may_be_resumed).map(|stored| stored.audit_id()))
    }

    /// Returns the journal, if this process holds it.
    fn held_journal(&self, writer: &str) -> Option<Arc<HeldJournal>> {
        let state = self.state();
        let own = state.own.iter().find(|own| own.writer == writer).cloned();
        own.or_else(|| state.adopted.get(writer).map(|adopted| Arc::clone(&adopted.journal)))
    }

    /// Returns true if the process of the key's call lives, so that the call runs or is about to.
    fn is_running(&self, stored: &StoredKey) -> bool {
        let call = stored.audit_id();
        {
            let state = self.state();
            // Also a call that is about to be opened.
            let is_ending = state.ending_keys.contains(&call);
            if is_ending || state.calls.contains_key(&call) || state.pending_opens.contains(&call) {
                return true;
            }
        }
        self.held_journal(&stored.writer).is_none() && WriterDir::is_held(self.root(), &stored.writer)
    }

    pub(super) fn state_of(&self, keys: &KeyChange<'_>, claim: &KeyClaim) -> Result<KeyState, AuditError> {
        let now = believed_time(keys.seen(), claim.at.as_microsecond());
        let outcome = |stored: &StoredKey| {
            let dir = self.root().join(&stored.writer);
            let read = |at: SealedOutcome| read_sealed(&dir, at.segment, at.offset, at.bytes);
            stored.outcome.map(read).transpose().map(Option::flatten)
        };
        key_state(claim, now, |key| keys.get(key), |stored| self.is_running(stored), outcome)
    }

    /// Claims a key for a call that is about to be opened, in this journal.
    pub(super) fn claim(
        &self,
        keys: &HeldKeys,
        call: &OpenCall,
        claim: &KeyClaim,
        journal: &HeldJournal,
    ) -> Result<ClaimOutcome, AuditError> {
        let key = key_digest(&claim.key);
        keys.table.change(|keys| {
            // A journal that was read since then may have another time that an operator accepted.
            check_clock(keys.seen(), claim.at.as_microsecond(), &self.maintenance.warnings, "the clock")?;
            let before = keys.get(&key)?;
            let resumes = call.resumes.as_ref().map(|(before, _)| before.bytes());
            let is_claimed = before.as_ref().is_some_and(|it| it.state == StoredKeyState::Claimed);
            let is_resumed = is_claimed && before.as_ref().map(|it| it.call) == resumes;
            match self.state_of(keys, claim)? {
                KeyState::Free => {}
                // An operator may resume a call that the host does not repeat.
                KeyState::Unknown { .. } if is_resumed => {}
                state => return Ok(ClaimOutcome::InUse(state)),
            }
            if let Some(interrupted) = before.as_ref().filter(|_| is_claimed && !is_resumed) {
                let audit_id = interrupted.audit_id();
                return Ok(match call.idempotent {
                    true => ClaimOutcome::Interrupted,
                    // Its package said otherwise.
                    false => ClaimOutcome::InUse(KeyState::Unknown { audit_id }),
                });
            }
            advance(keys, claim.at.as_microsecond());
            let taken_from = before.as_ref().filter(|before| Some(before.call) == resumes);
            let taken_from =
                taken_from.map(|it| InterruptedCall { call: it.call, is_idempotent: it.is_idempotent });
            keys.put(&key, &StoredKey { taken_from, ..claimed(call, claim, journal) })?;
            Ok(ClaimOutcome::Claimed { before })
        })
    }
}

/// Returns the stored form of a claim, for a call that is about to be opened in this journal.
fn claimed(call: &OpenCall, claim: &KeyClaim, journal: &HeldJournal) -> StoredKey {
    // All earlier calls with the key are in the journal by now.
    let since = journal.committer.with_journal(|journal| journal.head().n).saturating_add(1);
    StoredKey { writer: journal.writer.clone(), since, ..StoredKey::of_call(call, claim) }
}

/// Returns true if the key table is damaged, according to this error.
pub(super) fn is_damaged(error: &AuditError) -> bool {
    matches!(error.kind(), AuditErrorKind::Tampered | AuditErrorKind::Corrupt)
}

/// The key table while this process uses it: meanwhile no other process makes it again.
#[derive(Clone)]
pub(super) struct HeldKeys {
    pub(super) table: Arc<KeyTable>,
    _shared: Arc<SharedLockUse>,
}

/// A claim of a call that is about to be opened. It is held until the call is in the journal, from which the table can be
/// rebuilt.
pub(super) struct HeldClaim {
    pub(super) keys: HeldKeys,
    pub(super) key: [u8; 32],
    /// The key as it was stored.
    pub(super) before: Option<StoredKey>,
}

impl HeldClaim {
    /// Releases the claim of a call that was not opened.
    pub(super) fn release(&self, audit_id: &AuditId) {
        let key = &self.key;
        let released = self.keys.table.change(|keys| match (keys.get(key)?, &self.before) {
            (Some(stored), Some(before)) if stored.call == audit_id.bytes() => keys.put(key, before),
            (Some(stored), None) if stored.call == audit_id.bytes() => keys.remove(key),
            _ => Ok(()),
        });
        if let Err(error) = released {
            tracing::warn!(target: "cofferdam::audit", %error, "an idempotency key stays taken until this process ends");
        }
    }
}

/// Changes the key of a call of this process that has ended.
pub(super) fn end_key(
    keys: &mut KeyChange<'_>,
    key: &[u8; 32],
    end: &KeyEnd,
    outcome: Option<SealedOutcome>,
) -> Result<(), AuditError> {
    match set_end(keys, key, end, outcome)? {
        Some(until) => keys.end_steps_of(*key, until, |_| true),
        None => Ok(()),
    }
}

/// Changes the key of a call that has ended, if the call holds it. Returns the time until which the value of an action
/// stands.
pub(super) fn set_end(
    keys: &mut KeyChange<'_>,
    key: &[u8; 32],
    end: &KeyEnd,
    outcome: Option<SealedOutcome>,
) -> Result<Option<i64>, AuditError> {
    let mut ends_steps = None;
    keys.change_of(key, &end.call, |stored| {
        let ended = stored.ended(end, outcome);
        ends_steps =
            ended.as_ref().filter(|ended| ended.is_action && ended.has_value).and_then(|it| it.until);
        ended
    })?;
    Ok(ends_steps)
}

/// Releases the key of a call that never ran: its process ended before the call was in the journal. The key returns to the
/// interrupted call from which it was taken, given with the number of its first entry, or else is free.
fn give_up_unopened(
    table: &KeyTable,
    key: &[u8; 32],
    stored: &StoredKey,
    interrupted: Option<(InterruptedCall, u64)>,
) -> Result<(), AuditError> {
    table.change(|keys| match (keys.get(key)?, interrupted) {
        (Some(now), Some((InterruptedCall { call, is_idempotent }, since))) if now == *stored => {
            keys.put(key, &StoredKey { call, is_idempotent, since, taken_from: None, ..now })
        }
        (Some(now), None) if now == *stored => keys.remove(key),
        _ => Ok(()),
    })
}

/// The result of claiming a key.
pub(super) enum ClaimOutcome {
    /// The key is the call's; `before` is what was stored of it.
    Claimed {
        before: Option<StoredKey>,
    },
    InUse(KeyState),
    /// An interrupted call has the key, which this one does not resume.
    Interrupted,
}
