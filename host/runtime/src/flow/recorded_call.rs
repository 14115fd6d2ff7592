//! Reads a call from the audit log: its row, and its attempts as its events show them.

use cofferdam_audit::{
    AuditError, AuditErrorKind, AuditLog, AuditReader, CallRow, CallStatus, KeyDisposition, Sealed,
    StoredEntry,
};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::is_action;
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::{AuditId, RepeatRule};

use crate::log_errors::unreadable;

/// A call from the audit log.
pub(super) struct RecordedCall {
    pub(super) row: CallRow,
    pub(super) attempts: RecordedAttempts,
    /// The package that was to run.
    pub(super) hash: Option<Digest>,
    /// True if its manifest leaves open whether it may be repeated.
    pub(super) is_undeclared: bool,
    /// Its arguments, as the audit log has them.
    pub(super) arguments: Option<String>,
    /// The key that the caller of an action gave, as the audit log has it. That of a call is in its request.
    pub(super) action_key: Option<String>,
    /// The call that resumed it.
    pub(super) resumed_by: Option<String>,
    /// True if it was to resume another call and its caller cancelled it.
    pub(super) was_cancelled: bool,
    /// True if it has an end, its effect under its key is unknown, and no decision about that was made.
    pub(super) key_is_undecided: bool,
    /// The call whose outcome it was given for its key.
    pub(super) replayed_of: Option<AuditId>,
    pub(super) request: Option<Sealed>,
    pub(super) outcome: Option<Sealed>,
}

/// The facts about a call's attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RecordedAttempts {
    pub(super) begun: u32,
    pub(super) ended: u32,
    /// The number of requests of the ended attempts.
    pub(super) requests: u64,
    /// The number of ended attempts that may have sent an unkeyed request.
    pub(super) unkeyed: u32,
}

impl RecordedAttempts {
    /// True if a request may have left. This counts an attempt without an end, whose requests are unknown.
    pub(super) fn may_have_sent(self) -> bool {
        self.requests > 0 || self.begun > self.ended
    }

    /// True if an unkeyed request may have left. This counts an attempt without an end, whose requests are unknown.
    pub(super) fn may_have_sent_unkeyed(self) -> bool {
        self.unkeyed > 0 || self.begun > self.ended
    }
}

/// Finds a call.
///
/// # Errors
/// `audit_not_found`: the audit log has no call of this id; `audit_unavailable`: it cannot be read.
pub(super) fn find(log: &dyn AuditLog, audit_id: &AuditId) -> Result<RecordedCall, HostError> {
    let mut reader = match log.reader() {
        Ok(reader) => reader,
        Err(error) if error.kind() == AuditErrorKind::Absent => return Err(not_found(audit_id)),
        Err(error) => return Err(unreadable(error)),
    };
    let Some(row) = reader.call(audit_id).map_err(unreadable)? else {
        return Err(not_found(audit_id));
    };
    read_call(&mut *reader, row).map_err(unreadable)
}

/// Reads everything about the call of this row.
pub(super) fn read_call(reader: &mut dyn AuditReader, row: CallRow) -> Result<RecordedCall, AuditError> {
    let entries = reader.entries_of(&row.audit_id)?;
    let (request, outcome) = reader.sealed(&row.audit_id)?;
    // A call that has not ended by itself has no outcome in its last entry.
    let outcome = outcome
        .filter(|_| matches!(row.status, CallStatus::Value | CallStatus::Failure | CallStatus::Refused));
    let mut found = RecordedCall {
        row,
        attempts: RecordedAttempts::default(),
        hash: None,
        is_undeclared: false,
        arguments: None,
        action_key: None,
        resumed_by: None,
        was_cancelled: false,
        key_is_undecided: false,
        replayed_of: None,
        request,
        outcome,
    };
    entries.iter().for_each(|entry| found.apply_entry(entry));
    // An operator may have decided since.
    found.key_is_undecided =
        found.key_is_undecided && !reader.undecided_keys(Some(&found.row.audit_id))?.is_empty();
    Ok(found)
}

impl RecordedCall {
    /// True if it may be repeated.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.row.idempotent || (self.is_undeclared && !self.attempts.may_have_sent_unkeyed())
    }

    fn apply_entry(&mut self, entry: &StoredEntry) {
        // An entry that cannot be read has no events here: `audit verify` checks the chain.
        for event in entry.events().unwrap_or_default() {
            match event.event() {
                RecordedEvent::Admitted(admitted) if admitted.candidate == 0 => {
                    self.hash = digest(&admitted.hash);
                    self.arguments = admitted.arguments.and_then(|arguments| arguments.text);
                    let key = admitted.idempotency_key.filter(|_| is_action(&self.row.connector));
                    self.action_key = key.map(Into::into);
                    self.is_undeclared = admitted.repeat.as_deref() == Some(RepeatRule::UnlessUnkeyed.name());
                }
                RecordedEvent::AttemptStarted(_) => {
                    self.attempts.begun = self.attempts.begun.saturating_add(1)
                }
                RecordedEvent::AttemptEnded(ended) => {
                    self.attempts.ended = self.attempts.ended.saturating_add(1);
                    self.attempts.requests = self.attempts.requests.saturating_add(ended.usage.requests);
                    let unkeyed = ended.unkeyed.is_some().into();
                    self.attempts.unkeyed = self.attempts.unkeyed.saturating_add(unkeyed);
                }
                // The calls of an action count as its attempts.
                RecordedEvent::StepStarted(_) => self.attempts.begun = self.attempts.begun.saturating_add(1),
                RecordedEvent::StepEnded(ended) => {
                    self.attempts.ended = self.attempts.ended.saturating_add(1);
                    let sent = ended.may_have_sent.unwrap_or(false).into();
                    self.attempts.requests = self.attempts.requests.saturating_add(sent);
                }
                // Also of a value: a request may have been on its way when the connector returned.
                RecordedEvent::Final(end) => {
                    let key = end.key_end.as_ref().map(KeyDisposition::read);
                    self.key_is_undecided = key == Some(KeyDisposition::Undetermined);
                }
                RecordedEvent::CutShort(end) => {
                    self.was_cancelled = end.status == CallStatus::Cancelled.name()
                }
                RecordedEvent::Resumed(decision) => self.resumed_by = decision.by.map(Into::into),
                RecordedEvent::Replayed(replayed) => self.replayed_of = AuditId::parse(&replayed.of),
                _ => {}
            }
        }
    }
}

/// Parses a digest, with or without the name of its hash function.
fn digest(text: &str) -> Option<Digest> {
    Digest::parse(text).or_else(|| Digest::parse(&format!("sha256:{text}")))
}

/// Returns the error for a call that the audit log does not have.
pub(super) fn not_found(audit_id: &AuditId) -> HostError {
    HostError::new(HostErrorKind::AuditNotFound, format!("The audit log has no call {audit_id}."))
        .with_hint("`cofferdam audit list` shows those it has; pruned ones are gone.")
}
