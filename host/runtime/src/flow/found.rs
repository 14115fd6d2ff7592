//! A call as the record has it: where it stands, and what its events say of its attempts.

use cofferdam_audit::{
    AuditError, AuditLog, AuditReader, AuditTrouble, CallRow, CallStatus, Sealed, StoredEntry,
};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, RepeatRule};
use serde::Deserialize;

/// A call that is on record.
pub(super) struct Found {
    pub(super) row: CallRow,
    pub(super) attempts: Attempts,
    /// The package that was to run.
    pub(super) hash: Option<Digest>,
    /// Whether its manifest leaves open whether it may be repeated.
    pub(super) is_undeclared: bool,
    /// Its arguments, as the record has them.
    pub(super) arguments: Option<String>,
    /// The call that does it again.
    pub(super) resumed_by: Option<String>,
    /// Whether whoever asked for it cancelled it as it was to do another again.
    pub(super) was_cancelled: bool,
    /// Whether it has an end, and nobody knows what was done under its key, nor decided about that.
    pub(super) key_is_undecided: bool,
    /// The call whose outcome it was given, for its key.
    pub(super) replayed_of: Option<AuditId>,
    pub(super) request: Option<Sealed>,
    pub(super) outcome: Option<Sealed>,
}

/// What is known of a call's attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) begun: u32,
    pub(super) ended: u32,
    /// Requests of those that ended.
    pub(super) requests: u64,
    /// Of those that ended, how many may have sent an unkeyed request.
    pub(super) unkeyed: u32,
}

impl Attempts {
    /// Whether a request may have left: of an attempt without an end that is not known.
    pub(super) fn may_have_sent(self) -> bool {
        self.requests > 0 || self.begun > self.ended
    }

    /// Whether an unkeyed request may have left: of an attempt without an end that is not known.
    pub(super) fn may_have_sent_unkeyed(self) -> bool {
        self.unkeyed > 0 || self.begun > self.ended
    }
}

/// What is looked at of an entry. What is not there counts as nothing; the chain is what `audit verify` is for.
#[derive(Deserialize)]
struct Body {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    name: String,
    payload: Payload,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Payload {
    hash: Option<String>,
    candidate: u32,
    arguments: Arguments,
    by: Option<String>,
    /// A call, in one event; a number in others.
    of: serde_json::Value,
    status: Option<String>,
    usage: Usage,
    may_have_sent: bool,
    repeat: Option<String>,
    unkeyed: Option<serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Arguments {
    text: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Usage {
    requests: u64,
}

/// Finds a call.
///
/// # Errors
/// `audit_not_found`: the record has none of this id; `audit_unavailable`: it cannot be read.
pub(super) fn find(log: &dyn AuditLog, audit_id: &AuditId) -> Result<Found, HostError> {
    let mut reader = match log.reader() {
        Ok(reader) => reader,
        Err(error) if error.trouble() == AuditTrouble::Absent => return Err(not_found(audit_id)),
        Err(error) => return Err(unreadable(error)),
    };
    let Some(row) = reader.call(audit_id).map_err(unreadable)? else {
        return Err(not_found(audit_id));
    };
    whole(&mut *reader, row).map_err(unreadable)
}

/// What the record has of the call in this row.
pub(super) fn whole(reader: &mut dyn AuditReader, row: CallRow) -> Result<Found, AuditError> {
    let entries = reader.entries_of(&row.audit_id)?;
    let (request, outcome) = reader.sealed(&row.audit_id)?;
    let key_is_undecided = row.status != CallStatus::Running
        && row.status != CallStatus::Value
        && !reader.undecided_keys(Some(&row.audit_id))?.is_empty();
    // Before its end, the last entry of a call has nothing that is an outcome.
    let outcome = outcome.filter(|_| has_outcome(row.status));
    let mut found = Found {
        row,
        attempts: Attempts::default(),
        hash: None,
        is_undeclared: false,
        arguments: None,
        resumed_by: None,
        was_cancelled: false,
        key_is_undecided,
        replayed_of: None,
        request,
        outcome,
    };
    entries.iter().for_each(|entry| found.reads(entry));
    Ok(found)
}

fn has_outcome(status: CallStatus) -> bool {
    use CallStatus::{Cancelled, Resumed, Running, Skipped};
    !matches!(status, Running | Cancelled | Resumed | Skipped)
}

impl Found {
    /// Whether it may be done again.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.row.idempotent || (self.is_undeclared && !self.attempts.may_have_sent_unkeyed())
    }

    fn reads(&mut self, entry: &StoredEntry) {
        let Ok(body) = serde_json::from_str::<Body>(&entry.body) else { return };
        for Event { name, payload } in body.events {
            match name.as_str() {
                "admitted" if payload.candidate == 0 => {
                    self.hash = payload.hash.as_deref().and_then(digest);
                    self.arguments = payload.arguments.text;
                    self.is_undeclared = payload.repeat.as_deref() == Some(RepeatRule::UnlessUnkeyed.name());
                }
                "attempt_started" => self.attempts.begun = self.attempts.begun.saturating_add(1),
                "attempt_ended" => {
                    self.attempts.ended = self.attempts.ended.saturating_add(1);
                    self.attempts.requests = self.attempts.requests.saturating_add(payload.usage.requests);
                    let unkeyed = payload.unkeyed.is_some().into();
                    self.attempts.unkeyed = self.attempts.unkeyed.saturating_add(unkeyed);
                }
                // The calls of an action are what it attempts.
                "step_started" => self.attempts.begun = self.attempts.begun.saturating_add(1),
                "step_ended" => {
                    self.attempts.ended = self.attempts.ended.saturating_add(1);
                    self.attempts.requests =
                        self.attempts.requests.saturating_add(payload.may_have_sent.into());
                }
                "cut_short" => self.was_cancelled = payload.status.as_deref() == Some("cancelled"),
                "resumed" => self.resumed_by = payload.by,
                "replayed" => self.replayed_of = payload.of.as_str().and_then(AuditId::parse),
                _ => {}
            }
        }
    }
}

/// A digest with or without the name of what made it.
fn digest(text: &str) -> Option<Digest> {
    Digest::parse(text).or_else(|| Digest::parse(&format!("sha256:{text}")))
}

/// The record has no such call.
pub(super) fn not_found(audit_id: &AuditId) -> HostError {
    HostError::new(HostErrorKind::AuditNotFound, format!("The record has no call {audit_id}."))
        .hint("`cofferdam audit list` shows those it has; pruned ones are gone.")
}

/// The record cannot be read.
pub(super) fn unreadable(error: AuditError) -> HostError {
    let message = format!("The record cannot be read: {}.", error.says());
    HostError::new(HostErrorKind::AuditUnavailable, message).hint(error.trouble().fix()).because(error)
}
