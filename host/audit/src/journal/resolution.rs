//! Resolution of interrupted calls: each is resumed once, or skipped.
//!
//! A call that resumes an interrupted one is written into the journal of that, whose lock the resuming process takes. So
//! each journal tells its own calls, and no two processes resume one call.

use std::sync::{Arc, PoisonError};

use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::Journal;
use super::key_claims::HeldKeys;
use super::key_facts;
use super::keys::KeysOf;
use super::line::EntryDraft;
use super::log::{AdoptedJournal, HeldJournal, LogWriter};
use super::stored_key::StoredKeyState;
use super::writer_dir::{self, WriterDir};
use crate::command::{KeyClaim, KeyState, OpenCall, OpenOutcome, ResolveCall};
use crate::error::AuditError;
use crate::log::wait;

impl LogWriter {
    /// Opens a call that resumes an interrupted one, in the journal of that.
    pub(super) fn open_resuming(
        self: &Arc<Self>,
        call: &OpenCall,
        before: &AuditId,
        actor: &Arc<str>,
    ) -> Result<OpenOutcome, AuditError> {
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        match self.adopt(before, call.at, call.resumption(actor))? {
            Some((adopted, resolved)) => {
                wait(self.begin(Arc::clone(&adopted.journal), call, vec![resolved], None))?;
                Ok(OpenOutcome::Started)
            }
            None => Ok(OpenOutcome::AlreadyResolved),
        }
    }

    /// Opens a call with a key that resumes an interrupted one. Its journal is taken before the key is claimed: others
    /// judge by it that the call's process lives.
    pub(super) fn open_keyed_resuming(
        self: &Arc<Self>,
        keys: &HeldKeys,
        claim: &KeyClaim,
        call: &OpenCall,
        before: &AuditId,
        actor: &Arc<str>,
    ) -> Result<Option<OpenOutcome>, AuditError> {
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((adopted, resolved)) = self.adopt(before, call.at, call.resumption(actor))? else {
            // Its outcome, or the call that runs, is the key's.
            let state = keys.table.change(|keys| self.state_of(keys, claim))?;
            return Ok(Some(match state {
                KeyState::Free => OpenOutcome::AlreadyResolved,
                KeyState::Unknown { audit_id } if audit_id == *before => OpenOutcome::AlreadyResolved,
                state => OpenOutcome::KeyInUse(state),
            }));
        };
        let journal = Arc::clone(&adopted.journal);
        let opened = self.open_claiming(keys, claim, call, journal, vec![resolved.clone()])?;
        if let Some(OpenOutcome::KeyInUse(KeyState::Done { .. })) = opened {
            // The outcome of the key is the interrupted call's as well.
            wait(self.write(&adopted.journal, vec![resolved], Box::new(|_| ()), None))?;
        }
        Ok(opened)
    }

    /// Takes the journal of an interrupted call, and returns it with the entry that resolves the call by this event.
    fn adopt(
        self: &Arc<Self>,
        audit_id: &AuditId,
        at: Timestamp,
        event: RecordedEvent<'_>,
    ) -> Result<Option<(JournalUse, EntryDraft)>, AuditError> {
        let Some(adopted) = self.journal_of(audit_id)? else { return Ok(None) };
        let last = adopted.journal.committer.with_journal(|journal| journal.last_event(audit_id))?;
        let seq = last.unwrap_or(0).saturating_add(1);
        Ok(Some((adopted, EntryDraft::of_resolution(audit_id, at, seq, event))))
    }

    /// Returns the journal with an interrupted call, taken by this process; none if no free journal has the call.
    fn journal_of(self: &Arc<Self>, audit_id: &AuditId) -> Result<Option<JournalUse>, AuditError> {
        let has = |journal: &mut Journal| journal.unended.first_entry(audit_id).is_some();
        let held: Vec<_> = {
            let state = self.state();
            // A call of this process runs, or is being ended.
            if state.calls.contains_key(audit_id) {
                return Ok(None);
            }
            let adopted = state.adopted.values().map(|adopted| &adopted.journal);
            state.own.iter().chain(adopted).cloned().collect()
        };
        for journal in held {
            if journal.committer.with_journal(has)
                && let Some(used) = JournalUse::new(self, journal)
            {
                return Ok(Some(used));
            }
        }
        let signed = self.signed_heads()?;
        for name in writer_dir::names(self.root())? {
            let Some(dir) = WriterDir::take_free(self.root(), &name)? else { continue };
            let opened = Journal::open(dir, self.journal_settings, signed.get(&name).copied())?;
            let Some(mut journal) = opened else { continue };
            if has(&mut journal) {
                journal.dir.keep()?;
                let journal = self.held(journal);
                let adopted = AdoptedJournal { journal: Arc::clone(&journal), users: 0 };
                self.state().adopted.insert(name, adopted);
                return Ok(JournalUse::new(self, journal));
            }
        }
        Ok(None)
    }

    /// Resolves an interrupted call, or the key of a call of which it is unknown what it did.
    pub(super) fn resolve(
        self: &Arc<Self>,
        audit_id: &AuditId,
        decision: &ResolveCall,
    ) -> Result<bool, AuditError> {
        let keys = self.keys()?;
        self.settle_keys_of(&keys, audit_id)?;
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((adopted, draft)) = self.adopt(audit_id, decision.at, decision.event())? {
            wait(self.write(&adopted.journal, vec![draft], Box::new(|_| ()), None))?;
            return keys
                .table
                .change(|keys| key_facts::resolve(keys, audit_id, decision.frees_key))
                .map(|_| true);
        }
        // Read later, the journal of the call would bring back what is decided now.
        self.read_journal_keys(&keys.table, &writer_dir::names(self.root())?)?;
        let held = keys.table.change(|keys| keys.rows(KeysOf::Call(audit_id.bytes())))?;
        let is_claimed = held.iter().any(|(_, stored)| stored.state == StoredKeyState::Claimed);
        let is_open = held.iter().any(|(_, stored)| stored.is_open_to(decision.frees_key));
        if is_claimed || !is_open {
            return Ok(false);
        }
        // The key is not free until the decision is in the log. The table is not locked meanwhile: a commit that fails
        // releases claims in it.
        let decided = key_facts::decided(audit_id, decision);
        wait(self.own_journal()?.committer.commit(vec![decided], Box::new(|_| ()), None))?;
        keys.table.change(|keys| key_facts::resolve(keys, audit_id, decision.frees_key))
    }
}

/// A journal that is about to be written to, and that is left if no call of this process is in it then.
struct JournalUse {
    own: Arc<LogWriter>,
    journal: Arc<HeldJournal>,
}

impl JournalUse {
    /// None if the journal was left meanwhile.
    fn new(own: &Arc<LogWriter>, journal: Arc<HeldJournal>) -> Option<Self> {
        let mut state = own.state();
        let is_own = state.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &journal));
        match state.adopted.get_mut(&journal.writer).filter(|it| Arc::ptr_eq(&it.journal, &journal)) {
            Some(adopted) => adopted.users = adopted.users.saturating_add(1),
            None if is_own => {}
            None => return None,
        }
        drop(state);
        Some(Self { own: Arc::clone(own), journal })
    }
}

impl Drop for JournalUse {
    fn drop(&mut self) {
        {
            let mut state = self.own.state();
            let adopted = state.adopted.get_mut(&self.journal.writer);
            if let Some(adopted) = adopted.filter(|it| Arc::ptr_eq(&it.journal, &self.journal)) {
                adopted.users = adopted.users.saturating_sub(1);
            }
        }
        if let Err(error) = self.own.leave(&self.journal) {
            tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
        }
    }
}
