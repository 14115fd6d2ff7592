//! Resolution of interrupted calls: each is resumed once, or skipped.
//!
//! A call that resumes an interrupted one is written into the journal of that, whose lock the resuming process takes. So
//! each journal tells its own calls, and no two processes resume one call.

use std::sync::{Arc, PoisonError};

use cofferdam_core::event::recorded::{EventLine, RecordedEvent, Resolution};
use cofferdam_core::failure::AuditId;

use super::Journal;
use super::key_claims::{ClaimOutcome, HeldKeys};
use super::key_facts;
use super::keys::StoredKeyState;
use super::line::EntryDraft;
use super::log::{HeldJournal, LogWriter, wait};
use super::writer_dir::{self, WriterDir};
use crate::command::{CallStatus, KeyClaim, KeyState, OpenCall, OpenOutcome, ResolveCall};
use crate::entry::Entry;
use crate::error::AuditError;

impl LogWriter {
    /// Opens a call that resumes an interrupted one, in the journal of that.
    pub(super) fn open_resuming(
        self: &Arc<Self>,
        call: &OpenCall,
        before: &AuditId,
        actor: &Arc<str>,
    ) -> Result<OpenOutcome, AuditError> {
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        match self.adopt(before, |seq| resumed_by(call, actor, seq))? {
            Some((journal, resolved)) => {
                wait(self.begin(journal, call, vec![resolved])).map(|()| OpenOutcome::Started)
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
    ) -> Result<OpenOutcome, AuditError> {
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((journal, resolved)) = self.adopt(before, |seq| resumed_by(call, actor, seq))? else {
            // Its outcome, or the call that runs, is the key's.
            let state = keys.table.change(|keys| self.state_of(keys, claim))?;
            return Ok(match state {
                KeyState::Free => OpenOutcome::AlreadyResolved,
                state => OpenOutcome::KeyInUse(state),
            });
        };
        match self.claim(keys, call, claim, &journal.writer)? {
            ClaimOutcome::Claimed { before } => {
                let opened = wait(self.begin(Arc::clone(&journal), call, vec![resolved]));
                if opened.is_err() {
                    self.release_claim(keys, claim, &call.audit_id, before.as_ref());
                    self.state().leave(&journal);
                }
                opened.map(|()| OpenOutcome::Started)
            }
            ClaimOutcome::InUse(state) => {
                self.state().leave(&journal);
                Ok(OpenOutcome::KeyInUse(state))
            }
        }
    }

    /// Takes the journal of an interrupted call, and returns it with the entry that resolves the call.
    fn adopt(
        &self,
        audit_id: &AuditId,
        resolution: impl FnOnce(u32) -> EventLine<'static>,
    ) -> Result<Option<(Arc<HeldJournal>, EntryDraft)>, AuditError> {
        let Some(journal) = self.journal_of(audit_id)? else { return Ok(None) };
        let seq = journal.committer.with_journal(|journal| journal.last_event(audit_id))?.unwrap_or(0);
        let line = resolution(seq.saturating_add(1)).to_text();
        Ok(Some((journal, EntryDraft::of_call(audit_id, true, &Entry::new(vec![line])))))
    }

    /// Returns the journal with an interrupted call, taken by this process; none if no free journal has the call.
    fn journal_of(&self, audit_id: &AuditId) -> Result<Option<Arc<HeldJournal>>, AuditError> {
        let has = |journal: &mut Journal| journal.unended().first_entry(audit_id).is_some();
        let held: Vec<_> = {
            let state = self.state();
            // A call of this process runs, or is being ended.
            if state.calls.contains_key(audit_id) {
                return Ok(None);
            }
            state.own.iter().chain(state.adopted.values()).cloned().collect()
        };
        for journal in held {
            if journal.committer.with_journal(has) {
                return Ok(Some(journal));
            }
        }
        let signed = self.signed_heads()?;
        for name in writer_dir::names(self.root())? {
            let patience = self.settings.busy_timeout;
            let Some(dir) = WriterDir::take_free(self.root(), &name, patience)? else { continue };
            let opened = Journal::open(dir, self.journal_settings, signed.get(&name).copied())?;
            let Some(mut journal) = opened else { continue };
            if has(&mut journal) {
                journal.keep()?;
                let journal = self.held(journal);
                self.state().adopted.insert(name, Arc::clone(&journal));
                return Ok(Some(journal));
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
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        let resolved = self.adopt(audit_id, |seq| {
            let event = match decision.status {
                CallStatus::Resumed => RecordedEvent::Resumed(decision.facts.clone()),
                _ => RecordedEvent::Skipped(decision.facts.clone()),
            };
            EventLine { at: decision.at, seq, event }
        })?;
        let resolve_keys =
            || keys.table.change(|keys| key_facts::resolve(keys, audit_id, decision.frees_key));
        if let Some((journal, draft)) = resolved {
            let written = wait(journal.committer.commit(vec![draft], Box::new(|_| ()), None));
            self.state().leave(&journal);
            written?;
            return resolve_keys().map(|_| true);
        }
        if decision.status != CallStatus::Skipped || self.is_claimed(&keys, audit_id)? {
            return Ok(false);
        }
        let is_changed = resolve_keys()?;
        if is_changed {
            let decided = key_facts::decided(audit_id, &decision.facts, decision.frees_key, decision.at);
            wait(self.write(&self.own_journal()?, vec![decided], Box::new(|_| ()), None))?;
        }
        Ok(is_changed)
    }

    /// Returns true if the call holds a key and has no end.
    fn is_claimed(&self, keys: &HeldKeys, audit_id: &AuditId) -> Result<bool, AuditError> {
        keys.table.change(|keys| {
            for key in keys.keys_of(&audit_id.bytes())? {
                if keys.get(&key)?.is_some_and(|stored| stored.state == StoredKeyState::Claimed) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }
}

/// Returns the event of a call that is resumed by this one.
fn resumed_by(call: &OpenCall, actor: &Arc<str>, seq: u32) -> EventLine<'static> {
    let facts = Resolution {
        actor: actor.to_string().into(),
        by: Some(call.audit_id.to_string().into()),
        ..Resolution::default()
    };
    EventLine { at: call.at, seq, event: RecordedEvent::Resumed(facts) }
}
