//! The trait by which a record shows all that a proof looks at.

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::command::CallStatus;
use super::error::AuditError;
use super::log::StoredEntry;
use super::seal::Sealed;

/// One unchanging view of a record. Its methods block.
pub trait AuditEvidence: Send {
    /// The number of the last entry; 0 where there is none.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn last(&mut self) -> Result<u64, AuditError>;

    /// Up to `most` entries, from the `from`-th on, with what is sealed beside them: at least one if there is any, and
    /// fewer where they are long.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn entries(&mut self, from: u64, most: usize) -> Result<Vec<KeptEntry>, AuditError>;

    /// The same without what is sealed.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn chain(&mut self, from: u64, most: usize) -> Result<Vec<KeptEntry>, AuditError>;

    /// All signed statements, in the order of the entries that they speak of.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn notes(&mut self) -> Result<Vec<KeptNote>, AuditError>;

    /// The signed statement that the beginning was pruned, where it was.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn base(&mut self) -> Result<Option<String>, AuditError>;

    /// Returns the row of this call in the list of calls.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn call(&mut self, audit_id: &AuditId) -> Result<Option<KeptCall>, AuditError>;

    /// Up to `most` calls of the list, in order, after this one.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn calls(&mut self, after: Option<&AuditId>, most: usize) -> Result<Vec<KeptCall>, AuditError>;

    /// Returns the number of calls in the list.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn count(&mut self) -> Result<u64, AuditError>;

    /// Returns true if the stored statistics equal those of a new count over all calls.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn counts_hold(&mut self) -> Result<bool, AuditError> {
        Ok(true)
    }

    /// Some of the keys that do not fit their calls.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn stray_keys(&mut self) -> Result<Vec<KeptKey>, AuditError>;

    /// Returns up to `most` keys after this one, in order, that stay blocked forever although their calls were
    /// pruned.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn keys_of_pruned(&mut self, after: Option<&str>, most: usize) -> Result<Vec<KeyOfPruned>, AuditError> {
        let _ = (after, most);
        Ok(Vec::new())
    }
}

/// An entry, and what stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEntry {
    /// The entry.
    pub entry: StoredEntry,
    /// The entry of the same call before it; 0 for none.
    pub prev: u64,
    /// The sealed part of the entry's call.
    pub sealed: Option<Sealed>,
}

/// A signed statement, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNote {
    /// The number that it is kept under.
    pub n: u64,
    /// The note.
    pub note: String,
    /// True if the statement is stored as the one about the beginning of the chain.
    pub is_base: bool,
}

/// A row of the list of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCall {
    /// The call; none where that is no id.
    pub audit_id: Option<AuditId>,
    /// When it was received.
    pub at: Timestamp,
    /// The number of its first entry,
    pub first: u64,
    /// and of its last.
    pub last: u64,
    /// The actor.
    pub actor: String,
    /// The number of attempts; none while the call has no end.
    pub attempts: Option<u32>,
    /// The connector.
    pub connector: Option<String>,
    /// The operation.
    pub op: Option<String>,
    /// The action.
    pub action: Option<String>,
    /// The step of it.
    pub step: Option<String>,
    /// True if the call may be repeated.
    pub idempotent: bool,
    /// Its state.
    pub status: Option<CallStatus>,
    /// The failure's class.
    pub class: Option<String>,
    /// The failure's or the error's code.
    pub code: Option<String>,
    /// The key that its caller gave.
    pub key: Option<String>,
    /// The state of that key, while this call holds it.
    pub held: Option<HeldKey>,
}

/// The state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey {
    /// The SHA-256 of what it stands for; empty where it is none.
    pub fingerprint: Vec<u8>,
    /// 0 running, 1 its outcome stands, 2 what it did is unknown, 3 that is decided.
    pub state: i64,
    /// Until when its outcome stands.
    pub until: Option<Timestamp>,
}

/// A key that does not fit its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptKey {
    /// The call that it names; none where that is no id.
    pub audit_id: Option<AuditId>,
    /// That call's last entry; 0 where there is no such call.
    pub last: u64,
}

/// A key of a call that was pruned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOfPruned {
    /// The key.
    pub key: String,
    /// The call.
    pub audit_id: Option<AuditId>,
    /// The value that it stood for.
    pub fingerprint: Vec<u8>,
}
